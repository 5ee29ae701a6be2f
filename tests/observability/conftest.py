"""One world under traffic, watched by two Prometheus servers, for all tests of the session."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients"), str(HERE.parents[1] / "deploy" / "grafana" / "source")]

import stack  # noqa: E402
import test_live  # noqa: E402
import world  # noqa: E402


# Scrapes that a starved machine leaves out are waited for.
stack.PATIENCE = 180.0


@pytest.fixture(scope="session")
def lively():
    with world.World() as lively:
        # Before the first request: what exists from registration.
        lively.untouched = {name: test_live.fetch(url, "text/plain") for name, url in test_live.pages(lively).items()}
        lively.watch()
        lively.until_everything_happened()
        yield lively
