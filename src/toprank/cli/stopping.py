"""Ctrl-C and SIGTERM end the command within seconds, whatever it is doing.

Python tells the main thread of a signal between two of its instructions. That may take minutes while a library
computes or while the main thread waits for others, and a library that calls us back may swallow the exception. So a
thread of ours hears of the signal, too: it interrupts the threads that the main thread waits for, and where even that
does not help, it clears up and ends the process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

__all__ = ["listen", "requested", "say", "status"]

_PASS_ON = 1.0  # seconds after the signal: by then Python itself has told whoever can hear it
_END = 4.0  # seconds after the signal: about as long as a person waits before closing the window
_CLEARING = 0.5  # seconds that clearing up may take: what hangs may hold a lock that it needs
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_heard: list[int] = []


def requested() -> int:
    """The signal that asked us to stop; 0 where none did."""
    return _heard[0] if _heard else 0


def status() -> int:
    """The exit status of a command that was interrupted."""
    return 128 + (requested() or signal.SIGINT)


def say() -> None:
    """Say that we stop; for SIGTERM that was said at once."""
    if requested() != signal.SIGTERM:
        sys.stderr.write("toprank: Interrupted.\n")


def listen() -> None:
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
