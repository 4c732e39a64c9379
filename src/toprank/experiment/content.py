"""What a cell's scores depend on, as one key: data, system, seed, rule of choice, and the code that computes them."""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from toprank import __version__
from toprank.data.checks import digest
from toprank.errors import DataError

__all__ = ["described", "key_of", "source_hash", "versions"]

_FORMAT = 1  # of the cells' files; a higher number makes all earlier ones strangers
# The version alone would do for releases, but not for those who change a loss and want its new numbers.
_ROOMS = ("compute.py", "data", "metrics", "losses", "scorers", "solvers", "rankers", "systems.py", "selection.py")
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "lightgbm", "pyarrow", "torch")


@cache
def source_hash() -> str:
    """A hash of the source of every room that scores depend on."""
    home = Path(__file__).parent.parent
    files = [path for room in _ROOMS for path in [home / room, *(home / room).rglob("*.py")] if path.is_file()]
    result = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        result.update(f"{path.relative_to(home).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return result.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Versions of toprank, Python and the packages that compute."""
    import platform

    found = {"toprank": __version__, "source": source_hash(), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def key_of(fingerprints: Mapping[str, str], system: Any, seed: int | None, metric: str | None, convention: str) -> str:
    """The key of a cell; `system` as `described`."""
    what = [_FORMAT, __version__, source_hash(), dict(fingerprints), system, seed, metric, convention]
    text = json.dumps(what, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def described(value: Any) -> Any:
    """A value (a hyper-parameter, a loss, an estimator) in plain terms: equal descriptions, equal behaviour.

    Classes from elsewhere are described with their source, so that a loss of your own is trained again once you
    change it.

    >>> described((1, 0.5, "a", None))
    [1, 0.5, 'a', None]
    """
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"array": digest(value)}
    if isinstance(value, Mapping):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [described(item) for item in value]
    kind = type(value)
    name = {"class": f"{kind.__module__}.{kind.__qualname__}", "source": _source_of(kind)}
    if is_dataclass(value):
        return name | {"fields": {one.name: described(getattr(value, one.name)) for one in fields(value)}}
    if hasattr(value, "get_params"):
        return name | {"parameters": {key: described(item) for key, item in value.get_params(deep=False).items()}}
    return name | {"pickled": _pickled(value)}


def _source_of(kind: type) -> str:
    """A hash of the file that a class comes from; empty for ours, whose source is part of every key."""
    if kind.__module__.partition(".")[0] == "toprank":
        return ""
    try:
        text = inspect.getsource(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):  # typed at a prompt or into a notebook: what it was compiled to
        functions = [getattr(one, "__code__", None) for _, one in sorted(vars(kind).items())]
        text = repr([_compiled(code) for code in functions if code is not None])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _compiled(code: CodeType) -> list[Any]:
    constants = [_compiled(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_names, constants]


def _pickled(value: Any) -> str:
    try:
        return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()
    except Exception:  # noqa: BLE001 - pickling fails in as many ways as there are objects
        raise DataError(
            f"{value!r} is part of a system, but has no content that could be compared with that of an earlier run; "
            "use a class with fields or parameters instead."
        ) from None
