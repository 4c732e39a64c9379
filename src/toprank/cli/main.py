"""The command `toprank`: exit status 0 (done), 1 (bad input), 2 (wrong usage), 130 (Ctrl-C) or 143 (ended by a signal).

Nothing is imported before `run` is called, so that Ctrl-C is a sentence from the start.

Ctrl-C and SIGTERM end the command within seconds, whatever it is doing. Python tells the main thread of a signal
between two of its instructions. That may take minutes while a library computes or while the main thread waits for
others, and a library that calls us back may swallow the exception. So a thread of ours hears of the signal, too: it
interrupts the threads that the main thread waits for, and where even that does not help, it clears up and ends the
process.
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

_PASS_ON = 1.0  # seconds after the signal: by then Python itself has told whoever can hear it
_END = 4.0  # seconds after the signal: about as long as a person waits before closing the window
_CLEARING = 0.5  # seconds that clearing up may take: what hangs may hold a lock that it needs
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_heard: list[int] = []


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from toprank.cli.commands import app

    return app


_SPINS = "1000"
"""How often OpenMP's threads look for work before they sleep (GNU's). By default they spin for milliseconds, and
beside other processes a round of trees on two threads then takes 10 to 40 times as long as with sleeping ones. So few
spins cost a quiet machine nothing that can be measured; none would double its rounds (benchmarks/threads.py)."""


_LEAVE_BUSY_CORES = "TOPRANK_LEAVE_BUSY_CORES"  # what trees go by (rankers/trees/cores.py)


def run() -> None:
    """The entry point: errors become one sentence on standard error, never a traceback."""
    if "--version" in sys.argv[1:]:  # understood everywhere, behind any command
        sys.argv[1:] = ["--version"]
    if "OMP_WAIT_POLICY" not in os.environ:  # whoever set that has decided; runtimes read it when they are loaded
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    os.environ.setdefault(_LEAVE_BUSY_CORES, "1")
    warnings.showwarning = _say_warning  # type: ignore[assignment]
    _listen()
    try:
        _run()
    except Exception:
        if not requested():
            raise  # what breaks because we leave is no news
        if requested() != signal.SIGTERM:  # of which we spoke at once
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
        _fail("There is not enough memory for this; use sparse features, a stored copy, or a larger machine.", 1)
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say
        sys.stderr.close()
        sys.exit(1)
    except OSError as problem:
        about = "" if problem.filename is None else f"{problem.filename}: "
        _fail(f"{about}{problem.strerror or problem}.", 1)


def _say_warning(message: Warning | str, *_: Any) -> None:
    """Warnings of ours are sentences for people; where in the source they arose is not."""
    from toprank.cli.common import with_options

    sentence = message.args[0] if isinstance(message, Warning) and message.args else message
    sys.stderr.write(f"toprank: {with_options(sentence) if isinstance(sentence, str) else message}\n")


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"toprank: {message}\n")
    sys.exit(status)


def requested() -> int:
    """The signal that asked us to stop; 0 where none did."""
    return _heard[0] if _heard else 0


def status() -> int:
    """The exit status of a command that was interrupted."""
    return 128 + (requested() or signal.SIGINT)


def _listen() -> None:
    """Hear of both signals from now on; one that our caller has us ignore stays ignored."""
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
    """Leave by way of everyone who has to clear up, which the system's own way of ending a process skips."""
    del frame
    _note(number)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # asked a second time, we go at once
    sys.stderr.write("toprank: Terminated.\n")
    sys.exit(128 + number)


def _note(number: int) -> None:
    """From now on, what breaks breaks because we leave, and is no news."""
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
    """Interrupt the threads that work for the main thread: it waits for them before it goes."""
    for thread in threading.enumerate():
        if thread.name.startswith("toprank") and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(what))


def _end(number: int) -> NoReturn:
    clearing = threading.Thread(target=_clear_up, daemon=True)
    clearing.start()
    clearing.join(_CLEARING)
    os.write(2, b"toprank: Ended without waiting any longer for what was going on; what was not saved yet is lost.\n")
    os._exit(128 + number)


def _clear_up() -> None:
    if (remains := sys.modules.get("toprank.data.bytesource")) is not None:
        remains.clear_own()
    atexit._run_exitfuncs()  # temporary folders
