"""No call changes limits, environment or other state of the process after it returned, failed or was interrupted."""

from __future__ import annotations

import gc
import importlib
import inspect
import io
import locale
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from types import FrameType
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import toprank as tr
from entry_points import CALLS, COMMANDS, ENDLESS, World, call_of, commands, public

LIBRARIES = (
    *(
        "scipy.linalg",
        "scipy.optimize",
        "scipy.stats",
        "scipy.sparse",
        "sklearn.base",
        "lightgbm",
        "torch._dynamo",
        "optuna",
    ),
    *("pandas", "polars", "pyarrow.parquet", "pyarrow.csv", "matplotlib", "dask.distributed", "xgboost", "catboost"),
    *("onnx", "onnxruntime", "uvicorn", "msgspec", "prometheus_client", "tantivy", "sqlalchemy", "loky", "Stemmer"),
    *("rich.console", "typer.testing", "pytrec_eval"),
)
"""Imported first: what their import sets up is not ours to undo."""

POOLS = ("toprank_", "pydevd", "IO loop", "Profile", "AsyncProcess", "Dask-", "asyncio_", "TCP-Executor")
"""Names of threads that stay: our pool (docs/scaling.md), and those of Dask, which ends them on its own."""


class State:
    """What a call must leave as it was."""

    pools: ThreadpoolController

    def __init__(self) -> None:
        # A failed call's frames hold its files, and a traceback that is dropped lets them go.
        gc.collect()
        numpy_state = np.random.get_state()  # noqa: NPY002 - the state that others share
        self.parts: dict[str, Any] = {
            "threads of BLAS and OpenMP": {pool.filepath: pool.num_threads for pool in self.pools.lib_controllers},
            "environment": dict(os.environ),
            "warning filters": list(warnings.filters),
            "the function that shows warnings": (warnings.showwarning, warnings._showwarnmsg_impl),
            "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
            "random state": random.getstate(),
            "NumPy's random state": (numpy_state[0], numpy_state[1].tobytes(), numpy_state[2:]),
            "NumPy's error handling": np.geterr(),
            "NumPy's print options": np.get_printoptions(),
            "working folder": os.getcwd(),
            "locale": locale.setlocale(locale.LC_ALL),
            "loggers": _loggers(),
            "threads of Python": {
                thread.ident: thread for thread in threading.enumerate() if not thread.name.startswith(POOLS)
            },
            "standard streams": (sys.stdin, sys.stdout, sys.stderr),
            "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook),
            "recursion limit": sys.getrecursionlimit(),
            "import path": list(sys.path),
            "umask": _umask(),
            "open files": _open_files(),
        }
        if (torch := sys.modules.get("torch")) is not None:
            self.parts["threads of PyTorch"] = torch.get_num_threads()
            self.parts["PyTorch's random state"] = torch.get_rng_state().numpy().tobytes()
        if (sklearn := sys.modules.get("sklearn")) is not None:
            self.parts["configuration of scikit-learn"] = sklearn.get_config()

    def changes(self, after: State) -> dict[str, tuple[Any, Any]]:
        """Return what differs in a later state."""
        changed: dict[str, tuple[Any, Any]] = {}
        for name, value in self.parts.items():
            later = after.parts.get(name)
            if isinstance(value, dict) and isinstance(later, dict):
                # What closes or ends only now was left behind by an earlier call, which has been told so.
                keys = later if name in ("open files", "threads of Python") else {*value, *later}
                for key in keys:
                    if value.get(key) != later.get(key):
                        changed[f"{name}: {key}"] = value.get(key), later.get(key)
            elif later != value:
                changed[name] = value, later
        return changed


def _loggers() -> dict[str, Any]:
    names = [None, "toprank", "optuna", "distributed", "uvicorn", "lightgbm", "matplotlib", "sqlalchemy"]
    return {str(n): (logging.getLogger(n).level, tuple(logging.getLogger(n).handlers)) for n in names}


def _umask() -> int:
    os.umask(now := os.umask(0))
    return now


def _open_files() -> dict[str, str]:
    """Return the open descriptors, and what they are open on."""
    found = {}
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the descriptor of this very listing
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    for name in LIBRARIES:
        with suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    for tracker in ("multiprocessing.resource_tracker", "loky.backend.resource_tracker"):
        importlib.import_module(tracker).ensure_running()  # started with the first process, it stays
    State.pools = ThreadpoolController()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = World(tmp_path_factory.mktemp("world"))
    gc.collect()
    gc.freeze()  # so that each collection looks at the objects of the call alone
    yield made
    gc.unfreeze()


class PlannedError(Exception):
    """Raised in the middle of a call."""


class Interruption:
    """Ends a call when so many functions of ours have been entered on this thread: by an error, or by Ctrl-C."""

    def __init__(self, at: int, by_signal: bool) -> None:
        self.at, self.by_signal, self.entered = at, by_signal, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        del event, argument
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            return  # closing a generator enters its frame again, and Python ignores what is raised there
        if "/toprank/" not in frame.f_code.co_filename or "/site-packages/" in frame.f_code.co_filename:
            return
        self.entered += 1
        if self.entered == self.at:
            sys.settrace(None)
            if not self.by_signal:
                raise PlannedError
            signal.raise_signal(signal.SIGINT)


def ended_early(call: Any, world: World, at: int, by_signal: bool) -> int:
    """Call, and end the call at the `at`-th function; return the number of functions that were entered."""
    interruption, before = Interruption(at, by_signal), sys.gettrace()
    sys.settrace(interruption)
    try:
        quietly(call, world)
    except (Exception, KeyboardInterrupt):
        if at == 0:  # nothing was planned
            raise
    finally:
        sys.settrace(before)
    return interruption.entered


def quietly(call: Any, world: World) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown(call(world))


def shown(result: Any) -> None:
    """Show a result in every form that it has."""
    for one in result if type(result) is tuple else (result,):
        str(one), repr(one)
        for name in ("_repr_html_", "to_dict", "to_frame"):
            if callable(method := getattr(type(one), name, None)):
                with suppress(tr.errors.ToprankError):
                    method(one)


def command_call(name: str) -> Any:
    def call(world: World) -> None:
        from typer.testing import CliRunner

        from toprank.cli.commands import app

        words = [*name.split(), *map(str, COMMANDS[name](world))]
        CliRunner().invoke(app, words)

    return call


EVERY = {name: call_of(name, value) for name, value in public().items()}
EVERY |= {f"toprank {name}": command_call(name) for name in COMMANDS}
SLOW = (
    *("toprank.search.collections.python_docs", "toprank.cluster", "toprank.reproduce", "toprank.rankers.neural"),
    *(
        "toprank.clicks",
        "toprank.experiment",
        "toprank.model_selection.automatic",
        "toprank.explanations",
        "toprank.report",
    ),
    *("toprank cv", "toprank launch-report", "toprank reproduce", "toprank clicks", "toprank monitor", "toprank tune"),
    *(
        "toprank train",
        "toprank search",
        "toprank rank",
        "toprank export",
        "toprank.data.converting",
        "toprank compare",
    ),
    *("toprank.exporters.exporter.export", "toprank.rankers.foreign", "toprank fuse", "toprank check"),
)
"""What is called by `make nightly` alone."""
THOROUGH = (
    "toprank.model_selection.grid.grid_search",
    "toprank.model_selection.tuning.tune",
    "toprank.search.search_index.Index",
)
"""What is also ended early by `make test`: calls that change state of the process and restore it."""
ALLOWED = {
    "toprank.cluster.fit_distributed": {"open files": "PyTorch keeps a pipe from its first process group on"},
    "toprank.cluster": {"random state": "Dask draws its delays from it while it is connected"},
}
"""Changes that are not ours to undo, with the reason."""


def marked(name: str, *values: object, quick: bool) -> Any:
    return pytest.param(
        name, *values, marks=() if quick else pytest.mark.nightly, id=" ".join([name, *map(str, values)])
    )


def changes_by(name: str, act: Any) -> dict[str, Any]:
    before = State()
    act()
    changed = before.changes(State())
    for _ in range(20):  # a thread of our pool may hold the data of a call that was ended until it looks for work
        if not changed:
            break
        time.sleep(0.1)
        changed = before.changes(State())
    for room, allowed in ALLOWED.items():
        if name.startswith(room):
            changed = {what: value for what, value in changed.items() if what.partition(":")[0] not in allowed}
    return changed


def test_every_entry_point_has_a_call():
    assert [name for name, call in EVERY.items() if call is None] == []
    assert set(CALLS) <= set(EVERY), "the table holds calls of what is not exported"
    assert set(commands()) == {*COMMANDS, *ENDLESS}


@pytest.mark.parametrize("name", [marked(name, quick=not name.startswith(SLOW)) for name in EVERY])
def test_a_call_leaves_the_process_as_it_was(name, world, tmp_path):
    world.folder = tmp_path
    assert changes_by(name, lambda: quietly(EVERY[name], world)) == {}


@pytest.mark.parametrize(
    ("name", "ending"),
    [marked(name, ending, quick=name in THOROUGH) for name in EVERY for ending in ("an error", "Ctrl-C")],
)
def test_a_call_that_is_ended_early_leaves_the_process_as_it_was(name, ending, world, tmp_path):
    """In the middle of the functions of ours that it enters."""
    world.folder = tmp_path / "counted"
    world.folder.mkdir()
    entered = ended_early(EVERY[name], world, 0, by_signal=False)
    world.folder = tmp_path / "ended"
    world.folder.mkdir()
    middle = max(1, entered // 2)
    assert changes_by(name, lambda: ended_early(EVERY[name], world, middle, ending == "Ctrl-C")) == {}


def test_the_state_sees_what_a_call_changes(world, monkeypatch):
    """The checker itself: a leak of each kind is found."""
    library = next(pool for pool in State.pools.lib_controllers if pool.user_api == "blas")
    n_threads = library.num_threads

    def leaks():
        library.set_num_threads(n_threads + 1)
        monkeypatch.setenv("LEAK", "1")
        random.seed(0)
        leaks.file = open(os.devnull)  # noqa: SIM115 - left open on purpose
        logging.getLogger("toprank").setLevel(1)

    try:
        changed = changes_by("leaks", leaks)
    finally:
        library.set_num_threads(n_threads)
        leaks.file.close()
        logging.getLogger("toprank").setLevel(logging.NOTSET)
    assert {what.partition(":")[0] for what in changed} == {
        *("threads of BLAS and OpenMP", "environment", "random state", "open files", "loggers")
    }


def test_every_seed_is_0_unless_given():
    """Calls without a seed are repeatable, and give the same as with seed=0."""
    seeds = {}
    for name, value in public().items():
        with suppress(ValueError, TypeError):
            if (seed := inspect.signature(value).parameters.get("seed")) is not None:
                seeds[name] = seed.default
    assert len(seeds) > 20
    assert set(seeds.values()) == {0}
