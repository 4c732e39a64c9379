"""Score files: one number per line, in the order of the data, or a NumPy file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.bytesource import ByteSource, PathLike, open_bytes, output
from toprank.errors import DataError, FormatError, Remedy

_AT_A_TIME = 1 << 16
_PIECE = 1 << 20  # bytes of text per block
_SHORT = 1 << 12  # bytes of a line inspected for messages


def read_scores(path: PathLike, n: int | None = None) -> FloatArray:
    """Read scores from text with one number per line, or from a NumPy ``.npy`` file; plain, .gz or .zst.

    Args:
        path: the file.
        n: expected number of scores, one for each document. Default: any number.

    Raises:
        FormatError: a line is not a finite number, or the number of scores is wrong.
    """
    source = open_bytes(path)
    is_numpy = source.bytes(0, 6) == b"\x93NUMPY"
    scores = _from_numpy(source) if is_numpy else _from_text(source)
    if n is not None and len(scores) != n:
        raise FormatError(
            f"There are {len(scores):,} scores for {n:,} documents; give one for each, in the order of the data.",
            path=path,
        )
    return scores


def _from_text(source: ByteSource) -> FloatArray:
    parts, number, blank = [np.zeros(0)], 1, 0
    for first, last in source.pieces(_PIECE):
        text = source.bytes(first, last)
        lines = text.rstrip().splitlines()
        if lines and blank:  # blank lines are allowed only at the end
            raise _fault(source.path, b"", number - blank)
        parts.append(_numbers(source.path, lines, number))
        ends = text.count(b"\n") + (not text.endswith(b"\n"))
        blank = blank + ends - len(lines)
        number += ends
    scores = np.concatenate(parts)
    if not len(scores):
        raise FormatError("The file is empty; expected one score per line.", path=source.path)
    return scores


def _numbers(path: Path, lines: list[bytes], first: int) -> FloatArray:
    """Parse the numbers in lines; `first` is the line number of the first."""
    try:
        scores = np.array(list(map(float, lines)), np.float64)
    except ValueError:
        scores = None
    # Reject 1_000, which float() accepts.
    if scores is not None and not any(b"_" in line for line in lines) and np.isfinite(scores).all():
        return scores
    for number, line in enumerate(lines, first):
        try:
            wrong = b"_" in line or not np.isfinite(float(line))
        except ValueError:
            wrong = True
        if wrong:
            raise _fault(path, line, number)
    raise AssertionError("a fault was seen, but no line has it")


def _fault(path: Path, line: bytes, number: int) -> FormatError:
    """Return the error for a line that is not a finite number."""
    shown = line[:40].decode("utf-8", "replace").strip()
    dots = "…" if len(line) > 40 else ""
    words = line[:_SHORT].split()
    run = len(words) == 6 and words[1].upper() == b"Q0"
    of_run = Remedy("Use tr.read_run for a TREC run.", "Evaluate a TREC run with {qrels}.", qrels=...)
    problem = f"Expected one finite number, not '{shown}{dots}'."
    return FormatError(problem, path=path, line=number, remedy=of_run if run else "")


def _from_numpy(source: ByteSource) -> FloatArray:
    path = source.path
    try:
        # Load from memory, since the bytes of a pipe can be read only once.
        array = np.load(io.BytesIO(source.text.data), allow_pickle=False)
    except (ValueError, EOFError, OSError, SyntaxError, MemoryError):
        raise FormatError("The NumPy file is damaged, or contains objects instead of numbers.", path=path) from None
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise FormatError(f"Expected a list of numbers, not {array.dtype} of shape {array.shape}.", path=path)
    scores: FloatArray = array.astype(np.float64)
    wrong = ~np.isfinite(scores)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise FormatError(f"Score number {place} (from 0) is {scores[place]}; scores must be finite.", path=path)
    return scores


def write_scores(scores: npt.ArrayLike, path: PathLike) -> None:
    """Write scores, one per line, with the fewest digits that read back exactly; names in ``.npy`` get a NumPy file."""
    array = np.asarray(scores)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise DataError("Scores must be a list of finite numbers, one for each document.")
    with output(path) as stream:
        if Path(path).suffix == ".npy":
            packed = io.BytesIO()  # NumPy needs a seekable file, unlike a pipe
            np.save(packed, array, allow_pickle=False)
            stream.write(packed.getbuffer())
            return
        for start in range(0, len(array), _AT_A_TIME):
            part = array[start : start + _AT_A_TIME].astype(np.float64).tolist()
            stream.write(("\n".join(map(repr, part)) + "\n").encode())
