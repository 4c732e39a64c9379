"""What several test modules share."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

# Without a GPU, kernels for one are run by Triton's interpreter; it looks at this when they are defined.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1",
    reason="kernels are compiled for a GPU here and take its tensors alone",
)


def shared_data(*parts: str) -> Path:
    """A path below TOPRANK_DATA; the test is skipped, with the reason, where the data are not at hand."""
    root = os.environ.get("TOPRANK_DATA")
    if not root:
        pytest.skip("TOPRANK_DATA is not set: the benchmark collections are not at hand")
    path = Path(root, *parts)
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


def nightly(*values: object) -> list[object]:
    """Values of a parameter that take long: left out of `make test`. A tuple is several."""
    return [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.nightly) for v in values]


class Done(NamedTuple):
    """What a command left: named as `subprocess.run` names it."""

    returncode: int
    stdout: str
    stderr: str


@contextmanager
def entry_point() -> Iterator[Callable[[], None]]:
    """The entry point of the command, which in here leaves signals, the environment and warnings as they were."""
    from toprank.cli import main
    from toprank.rankers.trees import cores

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(main, "_listen", lambda: None)
        for name in ("GOMP_SPINCOUNT", cores.VARIABLE):
            patch.setenv(name, os.environ.get(name, ""))  # so that it is put back
            patch.delenv(name)
        yield main.run


# Python's own list of what a process does not show; pytest's makes every warning an error.
_UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def toprank(*arguments: object, status: int = 0) -> Done:
    """A command as a shell starts it, only that no process starts for it: that takes longer than most commands."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    ended = 0
    with pytest.MonkeyPatch.context() as patch, entry_point() as run, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "argv", ["toprank", *map(str, arguments)])
        warnings.resetwarnings()
        for category in _UNSEEN:
            warnings.simplefilter("ignore", category)
        try:
            run()
        except SystemExit as leaving:
            ended = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    done = Done(ended, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]
    assert done.returncode == status, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


def invoked(*arguments: object, status: int = 0) -> Result:
    """A command without its entry point: what was refused is the exception of the result."""
    from toprank.cli.commands import app

    result: Any = CliRunner().invoke(app, [str(word) for word in arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result
