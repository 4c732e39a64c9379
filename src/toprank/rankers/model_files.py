"""Model files: a ZIP archive that any tool can open; reading it never executes code.

    metadata.json          description of the model: kind, parameters, features, provenance (UTF-8 JSON)
    arrays/NAME.npy        numbers in NumPy's plain format (pickled objects are refused)
    texts/NAME.txt         text parts, such as trees in LightGBM's own format
    checksums.json         SHA-256 of every other member

`unzip -p model.toprank metadata.json` prints the description. The bytes depend only on the model, not on the time.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from os import PathLike, fspath, stat
from os.path import basename, isfile
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from toprank import __version__
from toprank.data.bytesource import check_name, output
from toprank.errors import DataError, FileError, FormatError, refuse_if
from toprank.rankers.former_names import array_name, upgraded
from toprank.rankers.schema import State, describe, needed

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

FORMAT_VERSION = 4
"""The version that is written. Version 1 had no categories and dates, 2 no text, and 3 other names (`former_names`)."""
_FIRST_WITH_PRESENT_NAMES = 4
_TEXT = "text_"  # prefix of arrays with word statistics
_FORMAT = "toprank model"
_OURS = b"PK\x03\x04"  # the first bytes of a ZIP archive
_MAX_BYTES = 1 << 32  # of all parts together; only forged archives claim more
_SAFE_BYTES = 1 << 28  # claimed sizes that fit into the memory of any machine
_MAX_RATIO = 200  # between claimed size and file size, for larger archives
_JSON_LIMITS = (1 << 24, 50)  # the same two limits for JSON, which takes more memory than its size
_BLOCK = 1 << 20
_NAME = re.compile(r"metadata\.json|checksums\.json|arrays/\w+\.npy|texts/\w+\.txt")

T = TypeVar("T")


# ---- writing ----


def save(ranker: Ranker, path: str | PathLike[str]) -> None:
    """Write a fitted ranker to one file, completely or not at all; refuse models that could not be read again."""
    _check_path(path)
    state: State = ranker.state()
    parts = {f"arrays/{name}.npy": _npy(array) for name, array in state.arrays.items()}
    if ranker.text_ is not None:
        parts |= {f"arrays/{_TEXT}{name}.npy": _npy(array) for name, array in ranker.text_.arrays().items()}
    metadata = json.dumps(_metadata(ranker, state), indent=2, ensure_ascii=False, allow_nan=False)
    try:
        parts |= {f"texts/{name}.txt": text.encode() for name, text in state.texts.items()}
        parts["metadata.json"] = metadata.encode()
    except UnicodeEncodeError as problem:
        near = problem.object[max(0, problem.start - 20) : problem.end + 20]
        raise DataError(
            f"This {type(ranker).__name__} cannot be saved: {near!a} contains a lone surrogate, which cannot be "
            "written to a file. Rename the feature or level that contains it."
        ) from None
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(parts.items())}
    parts["checksums.json"] = json.dumps(sums, indent=2).encode()
    packed = _packed(parts, zipfile.ZIP_DEFLATED)
    if _impossible({name: len(content) for name, content in parts.items()}, len(packed.getvalue())):
        packed = _packed(
            parts, zipfile.ZIP_STORED
        )  # very large arrays that compress to almost nothing look like a decompression bomb
    try:
        _restored(packed, fspath(path))
    except FormatError as problem:
        raise DataError(f"This {type(ranker).__name__} cannot be saved. {problem.problem}") from None
    with output(path, compress=False) as stream:
        stream.write(packed.getvalue())


def _metadata(ranker: Ranker, state: State) -> dict[str, Any]:
    """Return the description of a model for its file."""
    names, encoding, columns = getattr(ranker, "feature_names_in_", None), ranker.encoding_, ranker.columns_
    features = {
        "count": ranker.n_features_in_,
        "names": None if names is None else list(names),
        "first_id": getattr(ranker, "first_feature_id_", None),
    }
    if encoding is not None:
        features |= {"columns": encoding.plain(), "one_hot": None if columns is None else columns.plain()}
    if ranker.text_ is not None:
        features |= {"text": ranker.text_.plain()}
    described = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "toprank_version": __version__,
        "kind": type(ranker).__name__,
        "features": features,
        "training": ranker.training_,
        "state": state.values,
    }
    return dict(_plain_json(described))


def _packed(parts: Mapping[str, bytes], compression: int) -> io.BytesIO:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name in ["metadata.json", *sorted(set(parts) - {"metadata.json"})]:
            archive.writestr(zipfile.ZipInfo(name), parts[name], compression)
    return packed


def _check_path(path: Any) -> None:
    if not isinstance(path, str | PathLike):
        raise DataError(f"The path of a model file must be a string or path, such as 'model.toprank', not {path!r}.")
    check_name(path)


def _plain_json(value: Any) -> Any:
    """Return the value with None for NaN and infinities, which JSON does not support, and Python numbers for
    NumPy's.
    """
    if isinstance(value, dict):
        return {key: _plain_json(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


# ---- reading ----


def load(path: str | PathLike[str]) -> Any:
    """Return the ranker in a model file of toprank, LightGBM, XGBoost, CatBoost, RankLib or ONNX.

    Loading never executes code from the file; damaged and forged files are refused with the reason. Models of other
    libraries become rankers that predict but cannot be trained further.

    >>> import tempfile, toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tr.LinearRanker().fit(data).save(f"{folder}/model.toprank")
    ...     tr.load(f"{folder}/model.toprank").predict(data).shape == (data.n_documents,)
    True
    """
    with _opened(path) as stream:
        kind = _foreign(stream)
        if kind is None:
            return _restored(stream, fspath(path))
        from toprank.rankers import foreign

        return foreign.read(stream, kind, fspath(path))


def _foreign(stream: BinaryIO) -> str | None:
    """Return the format of another library's model, by its first bytes; None for our own or unknown files."""
    start = stream.read(64)
    stream.seek(0)
    if start.startswith(_OURS):  # avoids importing the readers of other formats
        return None
    from toprank.rankers import foreign

    return foreign.format_of(start)


def is_model(path: str | PathLike[str]) -> bool:
    """Return whether a file starts like a model, ours or of another library; only regular files qualify."""
    if not isfile(path):
        return False
    with _opened(path) as stream:
        ours = stream.read(len(_OURS)) == _OURS
        stream.seek(0)
        return ours or _foreign(stream) is not None


def digest_of(path: str | PathLike[str]) -> str:
    """Return the SHA-256 of a model file; services use its first digits as the version of the model."""
    with _opened(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def inspect(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the description of a model file, after checking its checksums.

    Models of other libraries are read, and described like the file that they would be saved to.
    """
    with _opened(path) as stream:
        kind = _foreign(stream)
        if kind is not None:
            from toprank.rankers import foreign

            ranker = foreign.read(stream, kind, fspath(path))
            size = stream.seek(0, io.SEEK_END)
            of_ours = ("format", "format_version", "toprank_version")
            described = {name: part for name, part in _metadata(ranker, ranker.state()).items() if name not in of_ours}
            return described | {"members": {basename(fspath(path)): size}}
        archive = _Archive(stream, fspath(path))
        metadata = archive.metadata()
        metadata["members"] = {name: archive.check(name) for name in archive.sizes if name != "checksums.json"}
        return metadata


def _opened(path: str | PathLike[str]) -> io.BufferedReader:
    """Open a regular file; check its type first, since opening a pipe would block until there is a writer."""
    _check_path(path)
    try:
        mode = stat(path).st_mode
        if S_ISREG(mode):
            return open(path, "rb")
    except FileNotFoundError:
        raise FileError(f"There is no file {fspath(path)}.") from None
    except OSError as problem:
        raise FileError(f"{fspath(path)} cannot be read: {problem.strerror}.") from None
    if S_ISDIR(mode):
        raise FileError(f"{fspath(path)} is a folder, not a file.")
    raise FileError(f"{fspath(path)} is a pipe or a device, but models need random access. Write it to a file first.")


def _restored(stream: BinaryIO, where: str) -> Any:
    from toprank import rankers

    archive = _Archive(stream, where)
    metadata = archive.metadata()
    kind = metadata.get("kind")
    if not isinstance(kind, str) or kind not in rankers.KINDS:
        raise FormatError(f"toprank {__version__} does not know models of the kind '{kind}'.", path=where)
    arrays, texts = archive.parts("arrays/", ".npy", archive.array), archive.parts("texts/", ".txt", archive.text)
    if metadata["format_version"] < _FIRST_WITH_PRESENT_NAMES:
        arrays = arrays.renamed(array_name)
    family = getattr(rankers, kind)
    try:
        ranker = family.restore(State(needed(metadata, "state"), _beside(arrays, _TEXT), texts))
        describe(ranker, metadata, under(arrays, _TEXT))
        ranker.check_restored()
        for unused in (*arrays.unasked(), *texts.unasked()):
            raise DataError(f"the part {unused} is unused")
        ranker.finalized()
    except (FormatError, ImportError):  # a missing package is not the fault of the file
        raise
    except Exception as problem:  # noqa: BLE001 - any error from a forged description is the fault of the file
        wrong = str(problem).removesuffix(".") or type(problem).__name__
        raise FormatError(f"The model is incomplete or inconsistent: {wrong}.", path=where) from None
    return ranker


class _Parts(Mapping[str, T], Generic[T]):
    """Parts of an archive, each read at its first use, so that unused ones take no memory."""

    def __init__(self, readers: dict[str, Callable[[], T]]) -> None:
        self._readers, self._asked = readers, set[str]()

    def __getitem__(self, name: str) -> T:
        self._asked.add(name)
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def renamed(self, rename: Callable[[str], str]) -> _Parts[T]:
        """Return the same parts under other names."""
        return _Parts({rename(name): reader for name, reader in self._readers.items()})

    def unasked(self) -> list[str]:
        """Return the names of parts that were never read."""
        return [name for name in self._readers if name not in self._asked]


def under(parts: Mapping[str, T], prefix: str) -> Mapping[str, T]:
    """Return the parts whose names have a prefix, without the prefix; each is still read at its first use.

    >>> dict(under({"m0_coef": 1, "m1_coef": 2}, "m1_"))
    {'coef': 2}
    """
    names = [name for name in parts if name.startswith(prefix)]
    return _Parts({name.removeprefix(prefix): partial(parts.__getitem__, name) for name in names})


def _beside(parts: Mapping[str, T], prefix: str) -> Mapping[str, T]:
    """Return the parts whose names do not have a prefix."""
    return _Parts({name: partial(parts.__getitem__, name) for name in parts if not name.startswith(prefix)})


def _impossible(sizes: Mapping[str, int], packed: int) -> bool:
    """Return whether the claimed sizes exceed any model in a file of that size (a decompression bomb)."""
    total, texts = sum(sizes.values()), sum(size for name, size in sizes.items() if name.endswith(".json"))
    safe_bytes, ratio = _JSON_LIMITS
    return total > min(_MAX_BYTES, max(_SAFE_BYTES, _MAX_RATIO * packed)) or texts > max(safe_bytes, ratio * packed)


class _Archive:
    """An archive with checked names and sizes, whose parts are compared with their checksums when read."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self.where = where
        stream.seek(0)
        if stream.read(len(_OURS)) != _OURS:
            raise FormatError(
                "This is not a model of toprank, LightGBM, XGBoost, CatBoost, RankLib or ONNX.",
                path=where,
            )
        try:
            self._zip = zipfile.ZipFile(stream)
            members = self._zip.infolist()
        except Exception as problem:  # noqa: BLE001 - damaged archives raise many kinds of exceptions
            self._damaged(problem)
        for member in members:
            if not _NAME.fullmatch(member.filename):
                raise FormatError(f"The part '{member.filename}' does not belong to a toprank model.", path=where)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FormatError(
                    f"The part {member.filename} uses a compression method that models do not use.", path=where
                )
        self.sizes = {member.filename: member.file_size for member in members}
        packed = stream.seek(0, io.SEEK_END)
        if len(self.sizes) < len(members) or _impossible(self.sizes, packed):
            raise FormatError("The claimed size of the parts is impossible.", path=where)
        self._sums = self._checksums()

    def _damaged(self, problem: Exception) -> NoReturn:
        raise FormatError(f"This is not a complete toprank model ({problem}).", path=self.where) from None

    def _checksums(self) -> dict[str, str]:
        try:
            sums = dict(json.loads(self._zip.read("checksums.json")))
        except Exception:  # noqa: BLE001
            raise FormatError("This is not a toprank model: it has no checksums.", path=self.where) from None
        for name in sorted(set(sums) ^ (set(self.sizes) - {"checksums.json"})):
            self._altered(name)
        return sums

    def _altered(self, name: str) -> NoReturn:
        message = f"The part {name} is missing or was altered since the model was saved."
        raise FormatError(message, path=self.where)

    def _blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a part; raise after the last block if the checksum differs."""
        seen = hashlib.sha256()
        try:
            with self._zip.open(name) as member:
                while block := member.read(_BLOCK):
                    seen.update(block)
                    yield block
        except Exception as problem:  # noqa: BLE001
            self._damaged(problem)
        if seen.hexdigest() != self._sums.get(name):
            self._altered(name)

    def check(self, name: str) -> int:
        """Return the number of bytes of a part, after checking its checksum."""
        return sum(len(block) for block in self._blocks(name))

    def text(self, name: str) -> str:
        """Return a text part."""
        return b"".join(self._blocks(name)).decode()

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array part, backed by the bytes read."""
        content = bytearray()
        for block in self._blocks(name):
            content += block
        stream = io.BytesIO(content[:_BLOCK])
        refuse_if(np.lib.format.read_magic(stream) != (1, 0), f"the array {name} is not in NumPy's plain format")
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
        refuse_if(dtype.kind not in "fiu" or dtype.subdtype is not None, f"the array {name} is not numeric")
        refuse_if(
            math.prod(shape) * dtype.itemsize != len(content) - stream.tell(),
            f"the size of the array {name} does not match its header",
        )
        flat = np.frombuffer(content, dtype, offset=stream.tell())
        return flat.reshape(shape, order="F" if in_columns else "C")

    def parts(self, folder: str, suffix: str, read: Callable[[str], T]) -> _Parts[T]:
        """Return the parts in a folder."""
        names = [name for name in self.sizes if name.startswith(folder)]
        return _Parts({name[len(folder) : -len(suffix)]: partial(read, name) for name in names})

    def metadata(self) -> dict[str, Any]:
        """Return the description, with the present names, if its format is known."""
        unreadable = FormatError("This is not a toprank model: it has no readable metadata.", path=self.where)
        if "metadata.json" not in self.sizes:
            raise unreadable
        content = b"".join(self._blocks("metadata.json"))
        try:
            metadata: dict[str, Any] = dict(json.loads(content, parse_constant=_no_number))
            version = int(metadata["format_version"])
        except Exception:  # noqa: BLE001
            raise unreadable from None
        if metadata.get("format") != _FORMAT:
            raise FormatError("This is not a toprank model.", path=self.where)
        if version > FORMAT_VERSION:
            raise FormatError(
                f"The model has format version {version}, written by toprank {metadata.get('toprank_version')}; this "
                f"toprank ({__version__}) reads versions up to {FORMAT_VERSION}. Update toprank.",
                path=self.where,
            )
        if version < _FIRST_WITH_PRESENT_NAMES:
            try:
                return upgraded(metadata)
            except (DataError, RecursionError) as problem:
                raise FormatError(f"The model is incomplete or inconsistent: {problem}.", path=self.where) from None
        return metadata


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
