"""Images once a session; a machine without the means skips, and says why."""

import contextlib

import pytest

from engine import Podman, Unavailable, build_images
from project import TAG


@pytest.fixture(scope="session")
def podman():
    with contextlib.ExitStack() as ending:
        try:
            engine = ending.enter_context(Podman())
            build_images(engine, TAG)
        except Unavailable as why:
            pytest.skip(f"no containers here: {why}")
        yield engine
