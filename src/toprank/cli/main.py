"""The command `toprank`: exit status 0 (done), 1 (bad input), 2 (wrong usage), 130 (Ctrl-C) or 143 (ended by a signal).

Nothing is imported before `run` is called, so that Ctrl-C is a sentence from the start.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from toprank.cli import stopping
from toprank.errors import ToprankError, UnknownNameError

if TYPE_CHECKING:
    from toprank.cli.commands import app

__all__ = ["app", "run"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from toprank.cli.commands import app

    return app


_SPINS = "1000"
"""How often OpenMP's threads look for work before they sleep (GNU's). By default they spin for milliseconds, and
beside other processes a round of trees on two threads then takes 10 to 40 times as long as with sleeping ones. So few
spins cost a quiet machine nothing that can be measured; none would double its rounds (benchmarks/threads.py)."""


def run() -> None:
    """The entry point: errors become one sentence on standard error, never a traceback."""
    if "--version" in sys.argv[1:]:  # understood everywhere, behind any command
        sys.argv[1:] = ["--version"]
    if "OMP_WAIT_POLICY" not in os.environ:  # whoever set that has decided; runtimes read it when they are loaded
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    warnings.showwarning = _say_warning  # type: ignore[assignment]
    stopping.listen()
    try:
        _run()
    except Exception:
        if not stopping.requested():
            raise
        stopping.say()  # what breaks because we leave is no news
    finally:
        if stopping.requested():
            sys.exit(stopping.status())


def _run() -> None:
    try:
        from toprank.cli.commands import app

        app()
    except UnknownNameError as problem:
        _fail(str(problem), 2)
    except ToprankError as problem:
        _fail(str(problem), 1)
    except KeyboardInterrupt:
        _fail("Interrupted.", 130)
    except MemoryError:
        _fail("There is not enough memory for this; use sparse features, a stored copy, or a larger machine.", 1)
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say
        sys.stderr.close()
        sys.exit(1)
    except OSError as problem:
        about = "" if problem.filename is None else f"{problem.filename}: "
        _fail(f"{about}{problem.strerror or problem}.", 1)


def _say_warning(message: Warning | str, *_: Any) -> None:
    """Warnings of ours are sentences for people; where in the source they arose is not."""
    from toprank.cli.common import as_told

    sentence = message.args[0] if isinstance(message, Warning) and message.args else message
    sys.stderr.write(f"toprank: {as_told(sentence) if isinstance(sentence, str) else message}\n")


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"toprank: {message}\n")
    sys.exit(status)
