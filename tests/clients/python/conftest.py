"""One stack per kind of engine, shared by all tests of the session."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import stack as stacks  # noqa: E402


@pytest.fixture(scope="session")
def simulated():
    with stacks.Stack("simulated") as stack:
        yield stack


@pytest.fixture(scope="session")
def llama():
    with stacks.Stack("llama") as stack:
        yield stack


@pytest.fixture(params=["simulated", "llama"])
def stack(request):
    """Each test that takes it runs against both kinds of engine."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def request_id(request):
    """An id of this test's own, to find its requests in the access log."""
    name = f"{request.module.__name__}-{request.node.name}"
    return "".join(c if c.isalnum() else "-" for c in name)[:100]


@pytest.fixture
def bad_messages(stack):
    """Messages that the engine itself refuses with 400."""
    if stack.kind == "llama":
        return [{"role": "user", "content": "far beyond the context " * 2000}]
    return []
