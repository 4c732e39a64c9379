"""Settings for all tests."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
from hypothesis import settings

from support import entry_point
from toprank.errors import MissingExtraError

# Timings have no place in tests. A change is judged by the same examples
# every time; `make nightly` draws new ones, and more (HYPOTHESIS_PROFILE=explore), and what it finds becomes a test.
settings.register_profile("toprank", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "toprank"))

# Two test processes on two cores: OpenMP's threads, which by default spin for milliseconds after each tree or matrix
# product, then keep each other from working (a round of trees takes 10 to 40 times as long). Read when a library loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_configure(config):
    """Let Ctrl-C be heard, whoever started the tests."""
    # Started in the background by a shell, a process ignores SIGINT, and so would every process that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def skipped_without_torch():
    """A test of many rankers, networks among them, says where PyTorch is not at hand what it wanted; the others run."""
    try:
        yield
    except MissingExtraError as problem:
        if find_spec("torch") is not None or "needs torch" not in str(problem):
            raise
        pytest.skip(str(problem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with skipped_without_torch():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    try:
        with skipped_without_torch():
            return (yield)
    except pytest.skip.Exception as skipped:
        # What a fixture raised is raised again for its next test, past this hook: let that be the skip.
        _, key, _ = fixturedef.cached_result
        fixturedef.cached_result = (None, key, (skipped, skipped.__traceback__))
        raise


@pytest.fixture(autouse=True, scope="session")
def the_checkout_stays_clean(pytestconfig):
    """Tests write into folders of their own: a file in the checkout would be committed one day."""
    before = {path.name for path in pytestconfig.rootpath.iterdir()}
    yield
    assert {name for path in pytestconfig.rootpath.iterdir() if (name := path.name)[0] != "."} <= before


@pytest.fixture(autouse=True, scope="session")
def no_test_listens_to_signals():
    """A command ends its process 4 s after Ctrl-C, even one that a test sends later: run it by `run_command`."""
    yield
    assert "signals" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def run_command():
    with entry_point() as run:
        yield run
