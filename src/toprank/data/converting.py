"""From files to files of any format; into a stored copy in bounded memory, whatever the size of the files.

A stream (`toprank.data.letor.streaming`, `toprank.data.tables.reading`, `toprank.data.store.streaming`) passes over
its files twice: a survey that counts, then blocks of rows. While one block is written and hashed on a thread of its
own, the next one is read.
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
    r"""Convert files to another format; to a stored copy also where they are larger than memory.

    Into a stored copy LETOR text (plain, .gz, .zst), Parquet (files or folders of them), Arrow IPC, CSV and stored
    copies pass through block by block: memory holds some ten megabytes of rows at a time, for each query its id
    and size, and the columns that are carried along. The copy is the one that ``write(read(source), target)`` makes,
    byte for byte but for its random id. Queries that are split between files are joined where they meet; a query that
    comes back later is refused, by file and place. All files of a table must have the same columns of the same types.
    Compressed text is unpacked beside the target while the conversion runs. Nothing may write to the source meanwhile.
    Into any other format data are held in memory on their way.

    Args:
        source: a file, a folder of Parquet files, a stored copy, or a list of them.
        target: where to; the suffix tells the format, ``.toprank-data`` a stored copy. Of folders only a stored copy is
            replaced. It appears when it is whole: a failure or an interrupt leaves nothing behind, and an older one in
            place.
        format: letor, parquet, arrow, csv, qrels, run or store: what the source is. Default: told by content and name.
        to: the format of the target, where its suffix does not tell.
        scores: for a TREC run as target, a file with one score for each document.
        verify: compare the content of stored copies with the hashes they were written with, before anything else.
        threads: how many threads to use. Default: all cores. The result is the same for any number.
        **options: for the reader of the format, as in `toprank.read`. With ``regroup=True`` scattered rows of a query
            are brought together; into a stored copy this reads all data into memory. Default: what passes block by
            block, and text, is refused where rows are scattered; tables that are held in memory are grouped.

    Returns:
        The data: a copy opened, its arrays mapped and not read; what was read otherwise.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text("1 qid:7 1:0.5\n0 qid:7 1:0.1\n")
    >>> convert(folder / "train.txt", folder / "train.toprank-data")
    RankingData(1 query, 2 documents, 1 feature, dense float32, grades 0-1)
    """
    kind = to or format_to_write(target)
    if (scores is None) == (kind == "run"):
        raise DataError(f"{target}: a TREC run needs scores, and only that does; give scores=, a file of them.")
    if kind == "store":
        if not checked_regroup(options.get("regroup"), default=False):
            options.pop("regroup", None)
        return _stored(source, target, format, verify, threads, options)
    data = read(source, format=format, verify=verify, threads=threads, **options)
    if scores is None:
        write(data, target, format=kind)
    else:
        from toprank.data.trec import write_run

        write_run(data, read_scores(scores, data.n_documents), target, order="source")
    return data


def _stored(
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
        writer.finish(shape, content)  # once the content of pipes, which waited in the same folder, is gone
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
    """Write the arrays that a stream brings."""
    while not _write_blocks(stream, writer):  # once more where the survey proved wrong
        pass
    for name, array in stream.rest().items():
        writer.put(name, array)


def _write_blocks(stream: Stream, writer: StoreWriter) -> bool:
    """Write the blocks of a stream; False where the stream asks to start again."""
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
