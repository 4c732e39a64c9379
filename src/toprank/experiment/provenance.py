"""Cache keys of cells and provenance of results.

The key of a cell is a hash of everything that its scores depend on: data, system, seed, selection rule and source code.
The provenance of results records versions, machine, command, data, systems and conventions.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pickle
import platform
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from importlib import metadata
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank import __version__, rankers
from toprank.data.command_line import command_line
from toprank.data.folds import Fold
from toprank.data.hashes import digest
from toprank.display.record import to_json
from toprank.errors import DataError
from toprank.kernels import library

if TYPE_CHECKING:
    from toprank.experiment.spec import Experiment

_FORMAT = 2  # format of the cell files, part of every key
# Hash the source too: the version does not change while a loss is being developed.
_ROOMS = (
    "compute.py", "data", "text", "metrics", "significance", "evaluation", "losses", "scorers", "solvers", "rankers",
    "systems.py", "model_selection", "experiment",
)  # fmt: skip
_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "pyarrow", "torch")
COMPUTING = ("numpy", "scipy", "scikit-learn", "lightgbm")
# Modules identified by the source hash (toprank) or by a version.
_KNOWN = {"toprank", "sklearn", "numpy", "scipy", "lightgbm", *sys.stdlib_module_names}
_IGNORED_MEMBERS = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__abstractmethods__",
    "_abc_impl", "__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__",
}  # fmt: skip


@cache
def source_hash() -> str:
    """Return a hash of the source of all packages that scores depend on, including the kernels."""
    home = Path(__file__).parent.parent
    files = [path for room in _ROOMS for path in ([home / room] if ".py" in room else (home / room).rglob("*.py"))]
    parts = (f"{path.relative_to(home).as_posix()}\0".encode() + path.read_bytes() + b"\0" for path in sorted(files))
    return _hash(library().identity.encode() + b"".join(parts))


def _hash(content: bytes, size: int = 16) -> str:
    return hashlib.blake2b(content, digest_size=size).hexdigest()


@cache
def versions() -> dict[str, str]:
    """Return the versions of toprank, Python and the numerical packages."""
    known = {"toprank": __version__, "source": source_hash(), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return known


def key_of(fingerprints: Mapping[str, str], system: Any, seed: int | None, metric: str | None, convention: Any) -> str:
    """Return the key of a cell; `system` and `convention` are in the form of `described`."""
    definition = json.dumps(system)
    own_code = '"source": ' in definition.replace('"source": ""', "")  # user code may use any installed package
    kinds = [getattr(rankers, name) for name in rankers.KINDS if own_code or name in definition]
    packages = {*COMPUTING, *(name for kind in kinds for name in kind.packages)}
    used = {name: version for name, version in versions().items() if name in packages}
    content = [_FORMAT, __version__, source_hash(), used, dict(fingerprints), system, seed, metric, convention]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return _hash(text.encode())


def described(value: Any) -> Any:
    """Describe a value (hyper-parameter, loss, estimator) by plain values; equal descriptions mean equal behavior.

    User-defined functions and classes include a hash of their source, so that changing a custom loss invalidates its
    cells. Imports of their modules are not followed.

    >>> described((1, 0.5, "a", None))
    [1, 0.5, 'a', None]
    """
    return _described(value, ())


def _described(value: Any, within: tuple[Any, ...]) -> Any:
    """Describe a value; `within` holds the enclosing functions and classes, to stop at self-references."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"array": digest(value)}
    if isinstance(value, Mapping):
        return {str(key): _described(item, within) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_described(item, within) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted(json.dumps(_described(item, within)) for item in value)}
    if isinstance(value, FunctionType | MethodType | partial | type):
        return _code_described(value, within)
    kind = type(value)
    name = {"class": _name(kind), "source": _source_of(kind, within)}
    if hasattr(value, "get_params"):
        parameters = value.get_params(deep=False)
        return name | {"parameters": {key: _described(item, within) for key, item in parameters.items()}}
    if is_dataclass(value):
        return name | {
            "fields": {field.name: _described(getattr(value, field.name), within) for field in fields(value)}
        }
    return name | {"pickled": _pickled(value)}


def _code_described(value: Any, within: tuple[Any, ...]) -> Any:
    if any(value is outer for outer in within):
        return {"itself": _name(value)}
    if isinstance(value, partial):
        return {"partial": [_described(part, within) for part in (value.func, value.args, value.keywords)]}
    if isinstance(value, MethodType):
        return {"method": _described(value.__func__, within), "of": _described(value.__self__, within)}
    if isinstance(value, type):
        return {"class": _name(value), "source": _source_of(value, within)}
    inside = (*within, value)
    return {
        "function": _name(value),
        "source": "typed" if (source := _module_source(value.__module__)) is None else source,
        "code": _compiled(value.__code__),
        "defaults": _described([value.__defaults__, value.__kwdefaults__], inside),
        "closure": [_described(_content(cell), inside) for cell in value.__closure__ or ()],
    }


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an unbound name
        return None


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _source_of(kind: type, within: tuple[Any, ...]) -> str:
    """Return a hash of the source of a class and its bases; empty if all are known."""
    foreign = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _KNOWN]
    if not foreign or any(kind is outer for outer in within):
        return ""
    # Classes defined at a prompt or in a notebook have no file: hash their bytecode.
    parts = [[_name(base), _module_source(base.__module__) or _members(base, (*within, kind))] for base in foreign]
    return _hash(json.dumps(parts, sort_keys=True).encode())


def _module_source(name: str | None) -> str | None:
    """Return a hash of the file of a module: empty for known modules, None if it has no file."""
    if name is None:
        return None
    if name.partition(".")[0] in _KNOWN:
        return ""
    try:
        text = inspect.getsource(sys.modules[name])
    except (OSError, TypeError, KeyError):
        return None
    return _hash(text.encode())


def _members(kind: type, within: tuple[Any, ...]) -> dict[str, Any]:
    """Describe the methods, properties and other attributes of a class."""
    return {name: _member(member, within) for name, member in vars(kind).items() if name not in _IGNORED_MEMBERS}


def _member(value: Any, within: tuple[Any, ...]) -> Any:
    if isinstance(value, property):
        return [_member(part, within) for part in (value.fget, value.fset, value.fdel)]
    if isinstance(value, staticmethod | classmethod):
        return [type(value).__name__, _member(value.__func__, within)]
    if isinstance(value, cached_property):
        return _member(value.func, within)
    try:
        return _described(value, within)
    except DataError:  # locks, open files and descriptors are described by their class only
        return {"class": _name(type(value))}


def _compiled(code: CodeType) -> list[Any]:
    """Describe compiled code in a form that is the same in every process."""
    constants = [
        _compiled(constant) if isinstance(constant, CodeType) else _constant(constant) for constant in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), constants]


def _constant(value: Any) -> str:
    """Describe a constant as text; members of sets are sorted, because their order differs between processes."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _pickled(value: Any) -> str:
    try:
        return _hash(pickle.dumps(value))
    except Exception:  # noqa: BLE001 - pickling can raise any exception
        raise DataError(
            f"{value!r} is part of a system, but cannot be pickled, so that it cannot be compared between runs. Use a "
            "class with fields or parameters instead."
        ) from None


_CIRCUMSTANCES = ("versions", "machine", "command", "created", "notes")


def experiment_key(provenance: Mapping[str, Any]) -> str:
    """Return the key of an experiment, which is the same for every run: data, systems, metrics, conventions."""
    definition = {name: value for name, value in provenance.items() if name not in _CIRCUMSTANCES}
    text = json.dumps(to_json(definition, repr), sort_keys=True, ensure_ascii=False)
    return _hash(text.encode(), 8)


def provenance_of(
    experiment: Experiment, datasets: dict[str, Any], seeds: tuple[int, ...], notes: list[str]
) -> dict[str, Any]:
    """Return everything needed to reproduce the experiment; `seeds` are all seeds that were used."""
    return {
        "versions": versions(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
        "command": command_line(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "datasets": datasets,
        "systems": {
            entry.name: {"definition": entry.describe(), "system": entry.system and entry.system.name}
            for entry in experiment.entries
        },
        "metrics": {
            name: {"measure": str(measure), "higher_is_better": measure.higher_is_better}
            for name, measure in experiment.measures.items()
        },
        "conventions": {name: str(rules) for name, rules in experiment.conventions.items()},
        "seeds": list(seeds),
        "selection_metric": experiment.selection_metric,
        "selection_convention": experiment.selection_convention.name,
        "split_seed": experiment.split_seed,
        "baseline": experiment.baseline,
        "notes": notes,
    }


def fold_facts(fold: Fold, fingerprints: dict[str, str]) -> dict[str, Any]:
    """Return sizes, highest grade and fingerprints of a fold."""
    return {
        "name": fold.name,
        "queries": {part: data.n_queries for part, data in fold.parts.items()},
        "documents": {part: data.n_documents for part, data in fold.parts.items()},
        "features": fold.train.n_features,
        # Maximum over the whole fold, because the test part may lack the highest grade.
        "max_grade": max(float(np.max(data.labels[data.judged], initial=0.0)) for data in fold.parts.values()),
        "feature_names": None if fold.train.feature_names is None else list(fold.train.feature_names),
        "fingerprints": fingerprints,
    }
