"""`read` and `write` for all file formats, which are detected from content and name.

A stored copy next to a file is used as a cache while the file and the options stay the same.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from toprank.data.bytesource import (
    TABLES,
    PathLike,
    check_name,
    head_of,
    listed_paths,
    no_room,
    os_errors,
    promised_format,
)
from toprank.data.cache import cached
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData, check_data
from toprank.data.frames.options import TABLE_KEYWORDS
from toprank.data.roles import ROLES
from toprank.data.store import SUFFIX, is_store, open_store, write_store
from toprank.data.store.streaming import open_together
from toprank.errors import DataError, FileError, FormatError, Remedy, UnknownNameError

Paths = PathLike | Sequence[PathLike]
FORMATS = ("letor", "parquet", "arrow", "csv", "qrels", "run", "store")
_TO_WRITE = (
    ".txt", ".letor", ".svm", ".dat", ".parquet", ".arrow", ".feather", ".csv", ".tsv", ".qrels", SUFFIX,
)  # fmt: skip


def read(
    paths: Paths,
    *,
    format: str | None = None,
    cache: bool = False,
    verify: bool = False,
    threads: int | None = None,
    **options: Any,
) -> RankingData:
    """Read ranking data from files of any supported format.

    LETOR / SVMrank text (plain, .gz, .zst), Parquet (a file or a folder of them), Arrow IPC / Feather, CSV, TREC qrels
    and runs, and stored copies. Several files or folders of one format are read as one data set.

    Args:
        paths: a file, a folder, or a list of them.
        format: letor, parquet, arrow, csv, qrels, run or store. Default: detected from content and name.
        cache: whether to write a stored copy next to the file, ``<file>.toprank-data``, and to open it the next time if
            file and options are unchanged. Default: False.
        verify: whether to compare a stored copy (or the cache) with its hashes. Default: False.
        threads: number of threads. Default: all cores.
        **options: options of the reader, see `toprank.data.letor.reading.read_letor` and
            `toprank.data.tables.reading.read_table`; a run accepts ``qrels=``, a file of judgments for its labels.

    Raises:
        FileError: a file cannot be read.
        FormatError: the content of a file does not match its format.
        UnknownNameError: the format or an option is unknown.
    """
    files = listed_paths(paths)
    if any(_is_pipe(file) for file in files):
        if cache:
            raise DataError("A pipe cannot be cached; write it to a file first.")
        with as_plain_files(files) as plain:
            return read(plain, format=format, verify=verify, threads=threads, **options)
    kind = common_format(files, format)
    reader = reader_of(kind)
    check_reading(kind, options)
    if threads is not None and kind == "letor":
        options["threads"] = threads
    if kind == "store":
        return open_together(files, verify=verify)
    if cache:
        return _read_cached(files, kind, options, verify)
    if verify:
        problem = "{verify} needs a stored copy, which has hashes; read one, or use {cache}."
        raise DataError(remedy=Remedy(problem, verify=True, cache=True))
    return reader(files if len(files) > 1 else files[0], **options)


def with_metadata(kind: str, columns: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Add metadata columns to the options of a reader; formats without named columns are left as they are."""
    named = options.get("metadata") or ()
    wanted = dict.fromkeys([*([named] if isinstance(named, str) else named), *columns])
    return {**options, "metadata": list(wanted)} if wanted and kind in TABLES else dict(options)


def in_agreement(
    parts: Sequence[RankingData], again: Callable[[int, dict[str, int]], RankingData]
) -> list[RankingData]:
    """Give all parts of a collection the same columns.

    LETOR text does not specify the range of its feature ids: an id that is missing from one file may occur in another.
    Parts with different columns are read again by `again`, which gets the number of the part and its options.
    """
    known = [part.first_feature_id for part in parts if part.first_feature_id is not None]
    if not known:
        return list(parts)
    first = min(known)
    ends = [part.first_feature_id + part.n_features for part in parts if part.first_feature_id is not None]
    options = {"first_feature_id": first, "n_features": max(ends) - first}
    differ = [
        part.first_feature_id is not None and (part.first_feature_id, part.n_features) != tuple(options.values())
        for part in parts
    ]
    return [again(number, options) if differ[number] else part for number, part in enumerate(parts)]


def _is_pipe(path: PathLike) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # the reader reports the error
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


@contextmanager
def as_plain_files(paths: Paths, spool: Path | None = None) -> Iterator[list[PathLike]]:
    """Yield the files, replacing each pipe by a temporary copy in `spool` that can be read twice."""
    with ExitStack() as stack:
        plain: list[PathLike] = []
        for file in listed_paths(paths):
            if _is_pipe(file):
                with no_room(f"The content of {file} cannot be stored", spool):
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="toprank-", dir=spool))
                plain.append(_copied(file, Path(folder, "pipe"), spool))
            else:
                plain.append(file)
        yield plain


def _copied(pipe: PathLike, target: Path, spool: Path | None) -> Path:
    """Copy a pipe to a file; errors distinguish failures of reading and writing."""
    kept = no_room(f"The content of {pipe} cannot be stored", spool)
    with os_errors(pipe, "read"), open(pipe, "rb") as stream, kept, target.open("wb") as copy:
        while True:
            with os_errors(pipe, "read"):
                block = stream.read(1 << 20)
            if not block:
                return target
            copy.write(block)


def common_format(files: Sequence[PathLike], format: str | None = None) -> str:
    """Return the common format of files: `format` if given, else the detected one."""
    if format is not None:
        if format not in FORMATS:
            raise UnknownNameError("format", format, FORMATS)
        return format
    kinds = [format_of(file) for file in files]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise DataError(f"{files[0]} is {kinds[0]}, but {file} is {kind}; give files of the same format.")
    return kinds[0]


def _read_cached(files: Sequence[PathLike], kind: str, options: dict[str, Any], verify: bool) -> RankingData:
    if len(files) > 1 or os.path.isdir(files[0]):
        raise DataError("cache=True works for a single file only; read files one by one, or write a stored copy.")

    def read_as(path: PathLike, *, format: str, **rest: Any) -> RankingData:
        return reader_of(format)(path, **rest)

    return cached(files[0], {"format": kind, **options}, read_as, verify=verify)


def reader_of(kind: str) -> Callable[..., RankingData]:
    """Return the reader of a format; its keywords are the options."""
    if kind == "letor":
        from toprank.data.letor.reading import read_letor

        return read_letor
    readers: dict[str, Callable[..., RankingData]] = {"qrels": _read_qrels, "run": _read_run, "store": open_store}
    if kind in readers:
        return readers[kind]
    from toprank.data.tables.reading import read_table

    return partial(read_table, format=kind)


def _keywords_of_reader(kind: str) -> tuple[str, ...]:
    """Return the options of the reader of a format."""
    if kind == "letor":
        from toprank.data.letor.reading import LetorKeywords

        return *LetorKeywords.__annotations__, "regroup"
    return TABLE_KEYWORDS if kind in TABLES else ("qrels",) if kind == "run" else ()


def _check_options(kind: str, options: Iterable[str], known: Sequence[str]) -> None:
    """Raise an error for unknown options."""
    for name in options:
        if name not in known:
            raise UnknownNameError(kind, name, known or ("(there are none)",))


def check_reading(kind: str, options: Iterable[str]) -> None:
    """Raise an error for options that the reader of a format does not have."""
    try:
        _check_options(f"option for reading {kind}", options, _keywords_of_reader(kind))
    except UnknownNameError as problem:
        if problem.name == "text":
            remedy = Remedy(f"Text columns exist only in tables (Parquet, Arrow, CSV), but these data are {kind}.")
            raise UnknownNameError(problem.kind, problem.name, problem.known, command=remedy) from None
        names_column = problem.name in (*ROLES, "features", "metadata")
        what = "names a column of a table (Parquet, Arrow or CSV)" if names_column else "is for other formats"
        leave = f"{{{problem.name}}} {what}, but these data have the format {kind}; leave it out."
        command = Remedy(leave, **{problem.name: ...})
        raise UnknownNameError(problem.kind, problem.name, problem.known, command=command) from None


def _read_qrels(paths: Paths) -> RankingData:
    from toprank.data.trec.files import data_of_qrels, read_qrels

    return concatenate([data_of_qrels(read_qrels(path)) for path in listed_paths(paths)])


def _read_run(paths: Paths, *, qrels: PathLike | None = None) -> RankingData:
    from toprank.data.trec.files import data_of_run, read_qrels, read_run

    judgments = None if qrels is None else read_qrels(qrels)
    return concatenate([data_of_run(read_run(path), judgments) for path in listed_paths(paths)])


def is_readable_folder(path: PathLike) -> bool:
    """Return whether a folder is a stored copy or contains Parquet files."""
    folder = Path(path)
    with os_errors(folder, "read"):
        return is_store(folder) or any(entry.suffix.lower() in (".parquet", ".pq") for entry in folder.iterdir())


def format_of(path: PathLike) -> str:
    """Detect the format of a file or folder from its content or, if that is not conclusive, from its name.

    Raises:
        FileError: the path cannot be read, or is a folder without data.
        FormatError: neither content nor name determines the format.
    """
    file = Path(path)
    with os_errors(file, "read"):
        is_folder = file.is_dir()
    if is_folder:
        if is_readable_folder(file):
            return "store" if is_store(file) else "parquet"
        raise FileError(
            f"{file} is a folder, but neither a stored copy nor a folder of Parquet files;",
            remedy=Remedy("for LETOR folds use folds().", "for folders with LETOR folds use toprank cv."),
        )
    from toprank.data.letor.reading import looks_like_letor

    head = head_of(file)
    if head.startswith(b"FEA1"):
        raise FormatError("This is the old Feather format (version 1); write it again as version 2.", path=file)
    by_magic = {b"PAR1": "parquet", b"ARROW1": "arrow"}
    magic = next((kind for start, kind in by_magic.items() if head.startswith(start)), None)
    promised = promised_format(file)
    named = None if promised == "letor" else promised  # .txt may have any content
    content = "letor" if looks_like_letor(head) else _trec_format(head)
    format = magic or named or content or promised
    if format is None:
        instruction = f"give {{format}} as one of {', '.join(FORMATS)}."
        remedy = Remedy(instruction, "name it .txt, .csv … or use toprank convert {format}.", format=...)
        raise FormatError("Neither content nor name determines the format;", path=file, remedy=remedy)
    return format


def _trec_format(head: bytes) -> str | None:
    """Return "qrels" or "run" if the first row has the columns of TREC judgments or of a TREC run, else None."""
    rows = (line.split() for line in head.split(b"\n"))
    first = next((row for row in rows if row), [])
    try:
        if len(first) == 4:  # query, iteration, document, grade
            int(first[3])
            return "qrels"
        if len(first) == 6:  # query, Q0, document, rank, score, name of the run
            float(first[4])
            return "run"
    except ValueError:
        return None
    return None


def write(data: RankingData, path: PathLike, *, format: str | None = None, **options: Any) -> None:
    """Write ranking data atomically.

    Args:
        data: the data.
        path: output path, whose suffix determines the format: .txt, .letor, .svm, .dat (LETOR text), .parquet, .arrow,
            .feather, .csv, .tsv, .qrels, .toprank-data (a stored copy). A further .gz or .zst compresses text.
        format: letor, parquet, arrow, csv, qrels or store, if the suffix does not determine it.
        **options: options of the writer, see `toprank.data.letor.writing.write_letor`.
    """
    check_data("write", data)
    kind = format or format_to_write(path)
    if kind == "run":
        raise DataError("write cannot write a run, which needs scores; use toprank.write_run(data, scores, path).")
    if kind not in FORMATS:
        raise UnknownNameError("format", kind, [name for name in FORMATS if name != "run"])
    if kind == "letor" and data.encoding is not None:
        raise DataError(
            "LETOR text supports only numbers, but these data have categories or dates; write Parquet instead."
        )
    _check_options(f"option for writing {kind}", options, ("first_feature_id", "missing") if kind == "letor" else ())
    _writer(kind)(data, path, **options)


def format_to_write(path: PathLike) -> str:
    """Return the output format according to the name of a path or, for a link, of its target."""
    check_name(path)
    if any(os.fspath(name).rstrip("/").endswith(SUFFIX) for name in (path, os.path.realpath(path))):
        return "store"
    promised = promised_format(path)
    if promised is None:
        raise UnknownNameError("format for the suffix", Path(path).suffix, _TO_WRITE)
    return promised


def _writer(kind: str) -> Callable[..., None]:
    if kind == "letor":
        from toprank.data.letor.writing import write_letor

        return write_letor
    if kind == "qrels":
        from toprank.data.trec.files import write_qrels

        return write_qrels
    if kind == "store":
        return lambda data, path: write_store(data, path)  # without the arguments that describe the source of a cache
    from toprank.data.tables.writing import write_table

    return partial(write_table, format=kind)
