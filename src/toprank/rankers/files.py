"""Model files: one ZIP archive that any tool can open, and that never runs code when it is read.

    metadata.json          what the model is: kind, parameters, features, where it comes from (UTF-8 JSON)
    arrays/NAME.npy        its numbers, in NumPy's plain format (pickled objects are refused)
    texts/NAME.txt         text parts, such as trees in LightGBM's own format
    checksums.json         SHA-256 of every other member

`unzip -p model.toprank metadata.json` shows the description. The bytes depend on the model alone, not on the clock.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import __version__
from toprank.data.bytesource import output
from toprank.errors import DataError, FileError, FormatError, MissingExtraError

__all__ = ["FORMAT_VERSION", "State", "inspect", "load", "save"]

FORMAT_VERSION = 1
_FORMAT = "toprank model"
_LIMIT = 1 << 32  # bytes of all members together: no model is larger, but a forged archive may claim to be
_RATIO = 200  # no honest member of more than a megabyte shrinks by more
_NAME = re.compile(r"metadata\.json|checksums\.json|arrays/\w+\.npy|texts/\w+\.txt")


class State(NamedTuple):
    """What a ranker writes down: plain values, arrays and texts."""

    values: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    texts: dict[str, str]


def save(ranker: Any, path: str | PathLike[str]) -> None:
    """Write a fitted ranker to one file, wholly or not at all."""
    _check_path(path)
    state: State = ranker.state()
    members = {f"arrays/{name}.npy": _npy(array) for name, array in state.arrays.items()}
    members |= {f"texts/{name}.txt": text.encode() for name, text in state.texts.items()}
    names = getattr(ranker, "feature_names_in_", None)
    metadata = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "toprank_version": __version__,
        "kind": type(ranker).__name__,
        "features": {
            "count": ranker.n_features_in_,
            "names": None if names is None else list(names),
            "first_id": getattr(ranker, "first_feature_id_", None),
        },
        "training": ranker.training_,
        "state": state.values,
    }
    members["metadata.json"] = json.dumps(_plain_json(metadata), indent=2, ensure_ascii=False, allow_nan=False).encode()
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(members.items())}
    members["checksums.json"] = json.dumps(sums, indent=2).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ["metadata.json", *sorted(set(members) - {"metadata.json"})]:
            archive.writestr(zipfile.ZipInfo(name), members[name], zipfile.ZIP_DEFLATED)
    with output(path) as stream:
        stream.write(packed.getvalue())


def load(path: str | PathLike[str]) -> Any:
    """The ranker in a model file. Nothing in the file is executed; damage and forgery are refused in a sentence."""
    from toprank import rankers

    members = _members(path)
    metadata = _metadata(path, members)
    kind = str(metadata.get("kind"))
    if kind not in rankers.KINDS:
        raise FormatError(f"A model of the kind '{kind}' is not known to toprank {__version__}.", path=fspath(path))
    try:
        arrays = {
            name[len("arrays/") : -len(".npy")]: np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
            for name, content in members.items()
            if name.startswith("arrays/")
        }
        texts = {n[len("texts/") : -len(".txt")]: c.decode() for n, c in members.items() if n.startswith("texts/")}
        ranker = getattr(rankers, kind).restore(State(metadata["state"], arrays, texts))
        ranker.n_features_in_ = int(metadata["features"]["count"])
        if metadata["features"]["names"] is not None:
            ranker.feature_names_in_ = np.array(metadata["features"]["names"], dtype=object)
        if metadata["features"].get("first_id") is not None:  # older files do not say it
            ranker.first_feature_id_ = int(metadata["features"]["first_id"])
        ranker.training_ = dict(metadata["training"])
        ranker.check_restored()
    except (FormatError, MissingExtraError):
        raise
    except Exception as problem:  # noqa: BLE001 - whatever a forged description breaks, it is the file's fault
        raise FormatError(f"The model is incomplete or inconsistent: {problem}.", path=fspath(path)) from None
    return ranker


def inspect(path: str | PathLike[str]) -> dict[str, Any]:
    """The description of a model file, checked like `load` does."""
    members = _members(path)
    metadata = _metadata(path, members)
    metadata["members"] = {name: len(content) for name, content in members.items()}
    return metadata


def _check_path(path: Any) -> None:
    if not isinstance(path, str | PathLike):
        raise DataError(f"A model file is named by its path, such as 'model.toprank', not by {path!r}.")


def _plain_json(value: Any) -> Any:
    """The value with NaN and infinities as None, which JSON has no words for."""
    if isinstance(value, dict):
        return {key: _plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _members(path: str | PathLike[str]) -> dict[str, bytes]:
    """All members of the archive, their checksums compared."""
    _check_path(path)
    where = fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            for part in parts:
                if not _NAME.fullmatch(part.filename):
                    raise FormatError(f"The part '{part.filename}' does not belong to a toprank model.", path=where)
                if part.file_size > _RATIO * part.compress_size + (1 << 20):
                    raise FormatError(f"The part {part.filename} claims an impossible size.", path=where)
            if sum(part.file_size for part in parts) > _LIMIT:
                raise FormatError("The parts together claim an impossible size.", path=where)
            members = {part.filename: archive.read(part) for part in parts}
    except (FileNotFoundError, IsADirectoryError, PermissionError) as problem:
        raise FileError(f"{where} cannot be read: {problem.strerror}.") from None
    except FormatError:
        raise
    except Exception as problem:  # noqa: BLE001 - a damaged archive fails in many ways, none of them ours
        raise FormatError(f"This is not a whole toprank model ({problem}).", path=where) from None
    try:
        sums = dict(json.loads(members.pop("checksums.json")))
    except Exception:  # noqa: BLE001
        raise FormatError("This is not a toprank model: it has no checksums.", path=where) from None
    for name in sorted(set(sums) | set(members)):
        if name not in members or hashlib.sha256(members[name]).hexdigest() != sums.get(name):
            raise FormatError(f"The part {name} is missing or was altered since the model was saved.", path=where)
    return members


def _metadata(path: str | PathLike[str], members: dict[str, bytes]) -> dict[str, Any]:
    where = fspath(path)
    try:
        metadata: dict[str, Any] = dict(json.loads(members["metadata.json"]))
        version = int(metadata["format_version"])
    except Exception:  # noqa: BLE001
        raise FormatError("This is not a toprank model: it has no readable metadata.", path=where) from None
    if metadata.get("format") != _FORMAT:
        raise FormatError("This is not a toprank model.", path=where)
    if version > FORMAT_VERSION:
        raise FormatError(
            f"The model has format {version}, written by toprank {metadata.get('toprank_version')}; this toprank "
            f"({__version__}) reads formats up to {FORMAT_VERSION}. Update toprank.",
            path=where,
        )
    return metadata
