"""The command `toprank`: exit status 0 (done), 1 (bad input), 2 (wrong usage), 130 (Ctrl-C) or 143 (ended by a signal).

Modules are imported inside `run`, so that Ctrl-C is handled from the start.

Ctrl-C and SIGTERM end the command within seconds. Python delivers signals to the main thread only between bytecode
instructions, which may take minutes during a library call, and a library callback may swallow the exception. A watcher
thread therefore receives the signal too. It interrupts the worker threads, and if the process is still running after a
few seconds, it cleans up and exits.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any, NoReturn

from toprank.errors import ToprankError, UnknownNameError

_PASS_ON = 1.0  # seconds after the signal, when Python has interrupted the main thread if it can
_END = 4.0  # seconds after the signal, about as long as users wait
_CLEARING = 0.5  # time limit of the cleanup, which may wait for a lock of a hanging thread
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_heard: list[int] = []


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from toprank.cli.commands import app

    return app


_SPINS = "1000"
"""Spin count of GNU OpenMP threads before they sleep. By default they spin for milliseconds, which slows down tree
training 10 to 40 times next to other processes. A count of 0 would double the time on an idle machine
(benchmarks/threads.py)."""


_LEAVE_BUSY_CORES = "TOPRANK_LEAVE_BUSY_CORES"  # read by rankers/trees/cores.py


def run() -> None:
    """Run the command line; errors are printed as one sentence on standard error, without a traceback."""
    if "--version" in sys.argv[1:]:  # valid after any command
        sys.argv[1:] = ["--version"]
    if "OMP_WAIT_POLICY" not in os.environ:  # respect the user's setting; read when OpenMP is loaded
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    os.environ.setdefault(_LEAVE_BUSY_CORES, "1")
    warnings.showwarning = _say_warning  # type: ignore[assignment]
    _listen()
    try:
        _run()
    except Exception:
        if not requested():
            raise  # errors caused by the shutdown are not reported
        if requested() != signal.SIGTERM:  # the handler of SIGTERM has printed its message already
            sys.stderr.write("toprank: Interrupted.\n")
    finally:
        if requested():
            sys.exit(status())


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
        _fail("Not enough memory; use sparse features, a stored copy, or a larger machine.", 1)
    except BrokenPipeError:  # the reader has closed the pipe
        sys.stderr.close()
        sys.exit(1)
    except OSError as problem:
        about = "" if problem.filename is None else f"{problem.filename}: "
        _fail(f"{about}{problem.strerror or problem}.", 1)


def _say_warning(message: Warning | str, *_: Any) -> None:
    """Print a warning as a sentence, without its source location."""
    from toprank.cli.common import with_options

    sentence = message.args[0] if isinstance(message, Warning) and message.args else message
    sys.stderr.write(f"toprank: {with_options(sentence) if isinstance(sentence, str) else message}\n")


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"toprank: {message}\n")
    sys.exit(status)


def requested() -> int:
    """Return the signal that requested the shutdown, or 0."""
    return _heard[0] if _heard else 0


def status() -> int:
    """Return the exit status of an interrupted command."""
    return 128 + (requested() or signal.SIGINT)


def _listen() -> None:
    """Install handlers for both signals, unless the parent process ignores them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(ear,), name="signals", daemon=True).start()


def _interrupted(number: int, frame: Any) -> None:
    del frame
    _note(number)
    raise KeyboardInterrupt


def _terminated(number: int, frame: Any) -> None:
    """Exit with cleanup, which the default action of SIGTERM would skip."""
    del frame
    _note(number)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second signal ends the process immediately
    sys.stderr.write("toprank: Terminated.\n")
    sys.exit(128 + number)


def _note(number: int) -> None:
    """Record the signal, and silence errors caused by the shutdown."""
    if not _heard:
        _heard.append(number)
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None


def _wait(ear: int) -> None:
    while (number := os.read(ear, 1)[0]) not in _SIGNALS:
        pass
    since = time.monotonic()
    _note(number)
    time.sleep(_PASS_ON)
    while time.monotonic() - since < _END:
        _pass_on(KeyboardInterrupt if number == signal.SIGINT else SystemExit)
        time.sleep(_PASS_ON / 2)
    _end(number)


def _pass_on(what: type[BaseException]) -> None:
    """Interrupt the worker threads, for which the main thread waits."""
    for thread in threading.enumerate():
        if thread.name.startswith("toprank") and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(what))


def _end(number: int) -> NoReturn:
    clearing = threading.Thread(target=_clear_up, daemon=True)
    clearing.start()
    clearing.join(_CLEARING)
    os.write(2, b"toprank: Ended without waiting for running computations; unsaved results are lost.\n")
    os._exit(128 + number)


def _clear_up() -> None:
    if (remains := sys.modules.get("toprank.data.bytesource")) is not None:
        remains.clear_own()
    atexit._run_exitfuncs()  # temporary folders
