"""Images once a session; a machine without the means skips, and says why."""

import contextlib
import signal

import pytest

from engine import Podman, Unavailable, build_images
from project import TAG


# Told to end, the suite ends its containers first.
signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated"))


@pytest.fixture(scope="session")
def podman():
    with contextlib.ExitStack() as ending:
        try:
            engine = ending.enter_context(Podman())
            build_images(engine, TAG)
        except Unavailable as why:
            pytest.skip(f"no containers here: {why}")
        yield engine
