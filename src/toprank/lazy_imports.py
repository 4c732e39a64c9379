"""Imports at first use, when several threads use toprank for the first time at once.

Packages import each other in circles, scikit-learn and SciPy among them, and two threads that enter a circle at
different points find a module half made, or a deadlock. So one thread at a time imports for toprank's doors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from os.path import dirname
from threading import RLock
from types import FrameType
from typing import Any

_IMPORT_LOCK = RLock()


def first_use(module: str) -> Any:
    """Import a module, one thread at a time.

    A thread that is importing already does not wait its turn: it holds the locks of modules that the thread whose turn
    it is may be waiting for.
    """
    if _importing():
        return import_module(module)
    with _IMPORT_LOCK:
        return import_module(module)


def installed(module: str) -> Any:
    """Import a module as `first_use` does; return None if it is not installed.

    >>> installed("math").floor(1.5), installed("no_such_module")
    (1, None)
    """
    try:
        return first_use(module)
    except ModuleNotFoundError:
        return None


def exported_names(package: str) -> dict[str, str]:
    """Return the names that a package exports, each with its module (or the package itself, for a module of its own).

    They are said once, for type checkers too: by the imports of the package's stub `__init__.pyi`, one a line.
    """
    with open(f"{dirname(str(sys.modules[package].__file__))}/__init__.pyi", encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from ")]
    return {name: home for _, home, _, name, *_ in words}


def lazy_exports(package: str) -> tuple[dict[str, str], Callable[[str], Any]]:
    """Return the names that a package exports, and a `__getattr__` for it that imports them at first use."""
    homes = exported_names(package)

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = first_use(f"{package}.{name}") if home == package else getattr(first_use(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return homes, get


def _importing() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
