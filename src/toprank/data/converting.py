"""Conversion between file formats; conversion to a stored copy needs bounded memory, whatever the size of the files.

A stream (`toprank.data.letor.streaming`, `toprank.data.tables.reading`, `toprank.data.store.streaming`) reads its files
twice: first to count rows and queries, then in blocks. One thread writes and hashes a block while the next one is read.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from toprank.data.bytesource import PathLike
from toprank.data.dataset import RankingData
from toprank.data.files import Paths, as_plain_files, check_reading, common_format, format_to_write, read, write
from toprank.data.queries import checked_regroup
from toprank.data.scores import read_scores
from toprank.data.store import open_store
from toprank.data.store.stream import Block, StartAgain, Stream
from toprank.data.store.streaming import StoreStream
from toprank.data.store.writing import StoreWriter
from toprank.errors import DataError


def convert(
    source: Paths,
    target: PathLike,
    *,
    format: str | None = None,
    to: str | None = None,
    scores: PathLike | None = None,
    verify: bool = False,
    threads: int | None = None,
    **options: Any,
) -> RankingData:
    r"""Convert files to another format; the source of a stored copy may be larger than memory.

    For a stored copy, LETOR text (plain, .gz, .zst), Parquet (files or folders), Arrow IPC, CSV and stored copies are
    converted in blocks: memory contains some ten megabytes of rows, the id and size of each query, and the metadata.
    Except for its random id, the copy has the same bytes as that of ``write(read(source), target)``. A query may
    continue in the next file; queries whose rows are not contiguous raise an error with file and position. All files of
    a table must have the same columns and types. Compressed text is decompressed next to the target during the
    conversion. The source must not change during the conversion. For all other formats, data are loaded into memory.

    Args:
        source: a file, a folder of Parquet files, a stored copy, or a list of them.
        target: path of the output; its suffix determines the format, ``.toprank-data`` for a stored copy. Existing
            folders are replaced only if they are stored copies. The output is written atomically: after a failure or an
            interrupt, an older file stays in place.
        format: format of the source: letor, parquet, arrow, csv, qrels, run or store. Default: detected from content
            and name.
        to: format of the target, if its suffix does not determine it.
        scores: file with one score for each document, if the target is a TREC run.
        verify: whether to compare stored copies with their hashes first. Default: False.
        threads: number of threads. Default: all cores. The result does not depend on it.
        **options: options of the reader, as in `toprank.read`. ``regroup=True`` groups scattered rows of a query, which
            loads all data into memory for a stored copy. By default, scattered rows raise an error for text and for
            conversion in blocks, and are grouped for other tables.

    Returns:
            The data; for a stored copy, opened from the target with memory-mapped arrays.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text("1 qid:7 1:0.5\n0 qid:7 1:0.1\n")
    >>> convert(folder / "train.txt", folder / "train.toprank-data")
    RankingData(1 query, 2 documents, 1 feature, dense float32, grades 0-1)
    """
    kind = to or format_to_write(target)
    if (scores is None) == (kind == "run"):
        raise DataError(f"{target}: scores= is needed for a TREC run, and only for a TREC run; give a file of scores.")
    if kind == "store":
        if not checked_regroup(options.get("regroup"), default=False):
            options.pop("regroup", None)
        return _convert_to_store(source, target, format, verify, threads, options)
    data = read(source, format=format, verify=verify, threads=threads, **options)
    if scores is None:
        write(data, target, format=kind)
    else:
        from toprank.data.trec import write_run

        write_run(data, read_scores(scores, data.n_documents), target, order="source")
    return data


def _convert_to_store(
    source: Paths, target: PathLike, format: str | None, verify: bool, threads: int | None, options: dict[str, Any]
) -> RankingData:
    with StoreWriter(target) as writer:
        with as_plain_files(source, writer.folder) as files:
            kind = common_format(files, format)
            check_reading(kind, options)
            if kind != "store" and (verify or "regroup" in options or kind in ("qrels", "run")):
                content: Any = read(files, format=kind, verify=verify, threads=threads, **options)
                writer.put_all(content.arrays(source=True))
                shape = content.X.shape
            else:
                stream = _stream(kind, files, writer, verify, threads, options)
                _write_stream(stream, writer)
                shape, content = stream.shape, stream.description
        writer.finish(shape, content)  # after temporary copies of pipes in the same folder are removed
    return open_store(target)


def _stream(
    kind: str, files: list[PathLike], writer: StoreWriter, verify: bool, threads: int | None, options: dict[str, Any]
) -> Stream:
    if kind == "store":
        return StoreStream(files, verify=verify)
    if kind == "letor":
        from toprank.data.letor.streaming import LetorStream

        return LetorStream(files, threads=threads, spool=writer.folder, **options)
    from toprank.data.frames.options import TableOptions
    from toprank.data.tables.reading import TableStream

    return TableStream(files if len(files) > 1 else files[0], TableOptions.from_keywords(options), kind)


def _write_stream(stream: Stream, writer: StoreWriter) -> None:
    """Write the arrays of a stream."""
    while not _write_blocks(stream, writer):  # repeat if the survey was wrong
        pass
    for name, array in stream.rest().items():
        writer.put(name, array)


def _write_blocks(stream: Stream, writer: StoreWriter) -> bool:
    """Write the blocks of a stream; return False if the stream requests a restart."""
    for name, started in stream.arrays().items():
        writer.start(name, *started)

    def append(block: Block) -> None:
        for name, rows in block.items():
            writer.append(name, rows)

    with ThreadPoolExecutor(1, thread_name_prefix="toprank-writer") as pool:
        before: Future[None] | None = None
        try:
            for block in stream.blocks():
                if before is not None:
                    before.result()
                before = pool.submit(append, block)
        except StartAgain:
            return False
        finally:
            if before is not None:
                before.result()
    return True
