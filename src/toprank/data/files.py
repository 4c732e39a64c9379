"""One door for all files: the format is told by content and name, and the right reader or writer does the work.

A stored copy beside a file serves in its place as long as the file and the reader's options stay the same.
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
    """Read ranking data, whatever the format.

    LETOR / SVMrank text (plain, .gz, .zst), Parquet (a file or a folder of them), Arrow IPC / Feather, CSV, TREC qrels
    and runs, and stored copies. Several files or folders of one format are read as one data set.

    Args:
        paths: a file, a folder, or a list of them.
        format: letor, parquet, arrow, csv, qrels, run or store. Default: told by content and name.
        cache: keep a stored copy of the file beside it, ``<file>.toprank-data``, and open that instead the next time,
            as long as file and options stay the same.
        verify: compare the content of a stored copy (or of the cache) with the hashes it was written with.
        threads: how many threads to use. Default: all cores.
        **options: for the reader of the format: see `toprank.data.letor.reading.read_letor`,
            `toprank.data.tables.reading.read_table`; a run takes ``qrels=``, a file of judgments for its labels.

    Raises:
        FileError: a file cannot be read.
        FormatError: a file's content is not what its format promises.
        UnknownNameError: there is no such format or option.
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
        problem = "{verify} checks the hashes of a stored copy; read one, or ask for {cache}."
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
    """Make a column the same feature in all parts of a collection.

    LETOR text does not say where its feature ids begin and end: an id that does not occur in one file may in another.
    Parts whose columns differ are read once more by `again`, which takes a part's number and options.
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
        return False  # the reader says what is wrong
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


@contextmanager
def as_plain_files(paths: Paths, spool: Path | None = None) -> Iterator[list[PathLike]]:
    """Yield the files, with a temporary copy (in `spool`) of each pipe: its bytes come once, but are read twice."""
    with ExitStack() as stack:
        plain: list[PathLike] = []
        for file in listed_paths(paths):
            if _is_pipe(file):
                with no_room(f"What comes from {file} cannot be kept", spool):
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="toprank-", dir=spool))
                plain.append(_copied(file, Path(folder, "pipe"), spool))
            else:
                plain.append(file)
        yield plain


def _copied(pipe: PathLike, target: Path, spool: Path | None) -> Path:
    """Copy what comes from a pipe to a file; an error says whether reading or writing failed."""
    kept = no_room(f"What comes from {pipe} cannot be kept", spool)
    with os_errors(pipe, "read"), open(pipe, "rb") as stream, kept, target.open("wb") as copy:
        while True:
            with os_errors(pipe, "read"):
                block = stream.read(1 << 20)
            if not block:
                return target
            copy.write(block)


def common_format(files: Sequence[PathLike], format: str | None = None) -> str:
    """Return the format of files that are read as one: `format` if given, else the one that all of them have."""
    if format is not None:
        if format not in FORMATS:
            raise UnknownNameError("format", format, FORMATS)
        return format
    kinds = [format_of(file) for file in files]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise DataError(f"{files[0]} is {kinds[0]} and {file} is {kind}; files that are read as one must be alike.")
    return kinds[0]


def _read_cached(files: Sequence[PathLike], kind: str, options: dict[str, Any], verify: bool) -> RankingData:
    if len(files) > 1 or os.path.isdir(files[0]):
        raise DataError("cache=True keeps a copy beside one file; read files one by one, or write a stored copy.")

    def read_as(path: PathLike, *, format: str, **rest: Any) -> RankingData:
        return reader_of(format)(path, **rest)

    return cached(files[0], {"format": kind, **options}, read_as, verify=verify)


def reader_of(kind: str) -> Callable[..., RankingData]:
    """The function that reads a format; its keywords are the options."""
    if kind == "letor":
        from toprank.data.letor.reading import read_letor

        return read_letor
    readers: dict[str, Callable[..., RankingData]] = {"qrels": _read_qrels, "run": _read_run, "store": open_store}
    if kind in readers:
        return readers[kind]
    from toprank.data.tables.reading import read_table

    return partial(read_table, format=kind)


def _keywords_of_reader(kind: str) -> tuple[str, ...]:
    """The options for reading a format."""
    if kind == "letor":
        from toprank.data.letor.reading import LetorKeywords

        return *LetorKeywords.__annotations__, "regroup"
    return TABLE_KEYWORDS if kind in TABLES else ("qrels",) if kind == "run" else ()


def _check_options(kind: str, options: Iterable[str], known: Sequence[str]) -> None:
    """Refuse options that are not among those that are known."""
    for name in options:
        if name not in known:
            raise UnknownNameError(kind, name, known or ("(there are none)",))


def check_reading(kind: str, options: Iterable[str]) -> None:
    """Refuse options for reading that a format does not have."""
    try:
        _check_options(f"option for reading {kind}", options, _keywords_of_reader(kind))
    except UnknownNameError as problem:
        if problem.name == "text":
            remedy = Remedy(f"Columns of words are those of a table (Parquet, Arrow, CSV), but these data are {kind}.")
            raise UnknownNameError(problem.kind, problem.name, problem.known, command=remedy) from None
        names_column = problem.name in (*ROLES, "features", "metadata")
        what = "names a column of a table (Parquet, Arrow or CSV)" if names_column else "is not for this kind of file"
        leave = f"{{{problem.name}}} {what}, but these data are of the format {kind}; leave it out."
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
    """Whether a folder is data by itself: a stored copy, or a folder of Parquet files."""
    folder = Path(path)
    with os_errors(folder, "read"):
        return is_store(folder) or any(entry.suffix.lower() in (".parquet", ".pq") for entry in folder.iterdir())


def format_of(path: PathLike) -> str:
    """The format of a file or folder, by content first and by name where that does not tell.

    Raises:
        FileError: the path cannot be read, or is a folder without data.
        FormatError: neither content nor name tells.
    """
    file = Path(path)
    with os_errors(file, "read"):
        is_folder = file.is_dir()
    if is_folder:
        if is_readable_folder(file):
            return "store" if is_store(file) else "parquet"
        raise FileError(
            f"{file} is a folder, but neither a stored copy nor one of Parquet files;",
            remedy=Remedy("for LETOR folds use folds().", "folders with LETOR folds are for toprank cv."),
        )
    from toprank.data.letor.reading import looks_like_letor

    head = head_of(file)
    if head.startswith(b"FEA1"):
        raise FormatError("This is the old Feather format (version 1); write it again as version 2.", path=file)
    by_magic = {b"PAR1": "parquet", b"ARROW1": "arrow"}
    magic = next((kind for start, kind in by_magic.items() if head.startswith(start)), None)
    promised = promised_format(file)
    named = None if promised == "letor" else promised  # .txt may hold anything
    content = "letor" if looks_like_letor(head) else _trec_format(head)
    format = magic or named or content or promised
    if format is None:
        instruction = f"give {{format}} as one of {', '.join(FORMATS)}."
        remedy = Remedy(instruction, "name it .txt, .csv … or use toprank convert {format}.", format=...)
        raise FormatError("Neither the content nor the name tells the format;", path=file, remedy=remedy)
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
    """Write ranking data; the file appears whole or not at all.

    Args:
        data: the data.
        path: where to. The suffix tells the format: .txt, .letor, .svm, .dat (LETOR text), .parquet, .arrow, .feather,
            .csv, .tsv, .qrels, .toprank-data (a stored copy); text may be compressed by .gz or .zst behind it.
        format: letor, parquet, arrow, csv, qrels or store, where the suffix does not tell.
        **options: for the writer of the format: see `toprank.data.letor.writing.write_letor`.
    """
    check_data("write", data)
    kind = format or format_to_write(path)
    if kind == "run":
        raise DataError("A run needs scores: toprank.write_run(data, scores, path).")
    if kind not in FORMATS:
        raise UnknownNameError("format", kind, [name for name in FORMATS if name != "run"])
    if kind == "letor" and data.encoding is not None:
        raise DataError(
            "LETOR text holds numbers alone, but these data have categories or dates; write Parquet instead."
        )
    _check_options(f"option for writing {kind}", options, ("first_feature_id", "missing") if kind == "letor" else ())
    _writer(kind)(data, path, **options)


def format_to_write(path: PathLike) -> str:
    """Return the format that a new file or folder gets by its name, or by the name of what a link leads to."""
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
        return lambda data, path: write_store(data, path)  # what a cache notes of its source is not the caller's to say
    from toprank.data.tables.writing import write_table

    return partial(write_table, format=kind)
