"""Thread-safe imports at first use.

Packages import each other in cycles, scikit-learn and SciPy among them, and two threads that enter a cycle at different
points see a partially initialized module, or deadlock. So only one thread at a time runs toprank's lazy imports.
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

    A thread that is already importing does not wait for the lock: it may hold module locks that the thread with our
    lock is waiting for.
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
    """Return the names that a package exports, each with its module (or the package itself, for a submodule).

    They are listed in one place, also for type checkers: in the imports of the package's stub `__init__.pyi`, one per
    line.
    """
    with open(f"{dirname(str(sys.modules[package].__file__))}/__init__.pyi", encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from ")]
    return {name: home for _, home, _, name, *_ in words}


def lazy_exports(package: str) -> tuple[dict[str, str], Callable[[str], Any]]:
    """Return the exported names of a package, and a `__getattr__` that imports them at first use."""
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
