"""Files as bytes (plain, gzip and zstd), read in pieces and written atomically.

Pieces are read on demand, so files may be larger than memory. Compressed files and pipes are copied to an anonymous
temporary file, so that they can be read several times.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from io import BufferedReader
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from toprank.data.decompression import gunzip, unzstd
from toprank.errors import DataError, FileError, FormatError, became_shorter, join_parts

Bytes = npt.NDArray[np.uint8]
_Numbered = tuple[int, bytes]
PathLike = str | os.PathLike[str]


@contextmanager
def os_errors(path: PathLike, done: str) -> Iterator[None]:
    """Convert operating-system errors within the block to a `FileError` about `path`."""
    try:
        yield
    except FileError:
        raise
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        raise FileError(f"{os.fspath(path)} cannot be {done}: {reason}.") from problem


def check_name(path: PathLike) -> None:
    """Raise an error for a path with a zero byte."""
    if "\0" in os.fsdecode(path):
        raise FileError(f"{os.fsdecode(path)!r} is not a valid file name: it contains a zero byte.")


MAX_LINE_BYTES = 64 << 20
"""Maximum length of a line in bytes, up to a block, since compressed files may expand to huge lines."""
_BLOCK = 1 << 20  # bytes per read
_LINE = 512  # bytes of the first read for a single line
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.ENOENT, errno.EROFS)
_ALWAYS_ALLOWED = 256 << 20  # bytes allowed for an array, whatever the size of its text


# "1:0 " has four bytes, as many as a float32 value, so text with one of twenty features can still become a dense array.
_ALLOWED_TIMES_TEXT = 20


@dataclass(frozen=True, eq=False)
class ByteSource:
    """The (decompressed) bytes of a file, read on demand.

    The file is not memory-mapped, because accessing truncated parts of a map would kill the process; reading them
    raises a `FileError`.
    """

    path: Path
    size: int
    _handle: _Handle

    @cached_property
    def start(self) -> int:
        """Offset of the text, after a byte order mark, if any."""
        return len(_BOM) if self.bytes(0, len(_BOM)) == _BOM else 0

    @cached_property
    def text(self) -> Bytes:
        """All bytes in memory."""
        return self.array(0, self.size)

    def array(self, first: int, last: int) -> Bytes:
        """Return the bytes ``[first, last)`` as an array; fewer at the end of the file."""
        content = np.empty(max(0, min(last, self.size) - first), dtype=np.uint8)
        view, done = content.data, 0
        while done < len(content):
            read = self._handle.read_into(view[done:], first + done)
            if read == 0:
                raise became_shorter(self.path)
            done += read
        return content

    def bytes(self, first: int, last: int) -> bytes:
        """Return the bytes ``[first, last)``; fewer at the end of the file."""
        return self.array(first, last).tobytes()

    def newline(self, position: int, most: int = MAX_LINE_BYTES) -> int:
        """Return the position of the next newline, or the file size; raise an error if the line is too long."""
        at, step = position, _LINE
        while at < self.size:
            place = self.bytes(at, at + step).find(b"\n")
            if place >= 0:
                return at + place
            at, step = at + step, min(2 * step, _BLOCK)
            if at - position > most:
                raise _endless_line(self.path, self.line_and_column(position)[0], most)
        return self.size

    def pieces(self, size: int, most: int = MAX_LINE_BYTES) -> Iterator[tuple[int, int]]:
        """Yield the bounds of pieces of complete lines, each of `size` bytes plus the rest of its last line."""
        at = self.start
        while at < self.size:
            end = min(self.newline(min(at + size, self.size) - 1, most) + 1, self.size)
            yield at, end
            at = end

    def lines(self) -> Iterator[_Numbered]:
        """Iterate over lines with their numbers, from 1."""
        number = 1
        for first, last in self.pieces(_BLOCK):
            lines = self.bytes(first, last).splitlines()
            yield from enumerate(lines, number)
            number += len(lines)

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Return the line and column of a byte, both from 1."""
        line, start = 1, min(self.start, position)
        for at in range(0, position, _BLOCK):
            block = self.bytes(at, min(at + _BLOCK, position))
            if newlines := block.count(b"\n"):
                line, start = line + newlines, at + block.rfind(b"\n") + 1
        return line, len(self.bytes(start, position).decode("utf-8", "replace")) + 1

    def lone_return(self, position: int) -> FormatError:
        """Return the error for a carriage return within a line."""
        problem = (
            "The line contains a carriage return, as in files with old Mac line endings; lines must end in LF or CR LF."
        )
        return self.fault(f"{problem} Convert the file first, for example with tr '\\r' '\\n'.", position)

    def fault(self, problem: str, position: int) -> FormatError:
        """Return an error with the line and column of a byte."""
        line, column = self.line_and_column(position)
        return FormatError(problem, path=self.path, line=line, column=column)


def _with_lines(path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks; raise an error for an extremely long line before it fills the disk."""
    line, length = 1, 0
    for block in blocks:
        last = block.rfind(b"\n")
        line, length = line + block.count(b"\n"), length + len(block) if last < 0 else len(block) - last - 1
        if length > MAX_LINE_BYTES:
            raise _endless_line(path, line, MAX_LINE_BYTES)
        yield block


def _endless_line(path: Path, line: int, most: int) -> FormatError:
    problem = f"This line is longer than {most >> 20} MiB; the file is damaged or not text."
    return FormatError(problem, path=path, line=line)


class _Handle:
    """An open file that threads can read at any position; closed when it is garbage-collected."""

    def __init__(self, number: int) -> None:
        self._number, self._turn = os.dup(number), Lock()
        weakref.finalize(self, os.close, self._number)

    def read_into(self, view: memoryview, position: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._number, [view], position)
        with self._turn:  # On Windows, threads share the file position.
            os.lseek(self._number, position, os.SEEK_SET)
            block = os.read(self._number, len(view))
            view[: len(block)] = block
            return len(block)


def open_bytes(path: PathLike, spool: Path | None = None) -> ByteSource:
    """Open a file as bytes; gzip and zstd, recognized by their first bytes, are decompressed to a temporary file.

    The temporary file is in the folder `spool`, or in that of the system.

    Raises:
        FileError: the file cannot be opened or read.
        FormatError: compressed data are damaged or truncated.
    """
    path = Path(path)
    with _open(path) as stream:
        blocks = _blocks(path, stream)
        if blocks is None:
            return _source(path, stream.fileno())
        room = no_room(f"{path} cannot be decompressed", spool, _NO_ROOM)
        with room, tempfile.TemporaryFile(prefix="toprank-", dir=spool) as unpacked:
            for block in _with_lines(path, blocks):
                unpacked.write(block)
            unpacked.flush()
            return _source(path, unpacked.fileno())


@contextmanager
def no_room(what: str, spool: Path | None, only: Collection[int] | None = None) -> Iterator[None]:
    """Convert errors in writing a temporary file to a `FileError`.

    Args:
        what: beginning of the message.
        spool: folder of the file, next to a target; None for the temporary folder of the system.
        only: error numbers to convert. Default: all.
    """
    try:
        yield
    except OSError as problem:
        if isinstance(problem, FileError) or (only is not None and problem.errno not in only):
            raise
        where, remedy = "in the folder of the target", ""
        if spool is None:
            where = f"in the folder for temporary files, {tempfile.gettempdir()}"
            remedy = ", or set the variable TMPDIR to another folder"
        raise FileError(f"{what} {where}: {problem.strerror or problem}. Free some space there{remedy}.") from None


def head_of(path: PathLike, size: int = 1 << 16) -> bytes:
    """Return the first decompressed bytes of a file, to detect its format; raises the errors of `open_bytes`."""
    path = Path(path)
    with _open(path) as stream:
        head = b""
        for block in _blocks(path, stream) or iter(lambda: stream.read(size), b""):
            head += block
            if len(head) >= size:
                break
        return head[:size].removeprefix(_BOM)


@contextmanager
def _open(path: Path) -> Iterator[BufferedReader]:
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise FileError(f"{path} is a folder, not a file.") from None
    except (OSError, ValueError) as problem:
        raise FileError(f"{path} cannot be opened: {getattr(problem, 'strerror', None) or problem}.") from None
    with stream, os_errors(path, "read"):
        yield stream


def _blocks(path: Path, stream: BufferedReader) -> Iterator[bytes] | None:
    """Iterate over the content of a compressed file or a pipe; None for a plain file."""
    magic = stream.peek(4)[:4]
    if magic.startswith(_GZIP):
        return gunzip(path, stream)
    if magic == _ZSTD:
        return unzstd(path, stream)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return None
    return iter(lambda: stream.read(_BLOCK), b"")


def _source(path: Path, handle: int) -> ByteSource:
    return ByteSource(path, os.fstat(handle).st_size, _Handle(handle))


def check_size(
    n_bytes: int, text_bytes: int, what: str, remedy: str, fault: Callable[[str], DataError] = DataError
) -> None:
    """Raise an error if an array would be far larger than its text, so that one wrong number cannot exhaust memory.

    `what` names the array in the message; `fault` makes the error, for example one with the position of the number.
    """
    if n_bytes > max(_ALWAYS_ALLOWED, _ALLOWED_TIMES_TEXT * text_bytes):
        sizes = f"{n_bytes / 2**20:,.0f} MiB for {text_bytes / 2**20:,.1f} MiB of text."
        raise fault(join_parts(f"{what} would need {sizes}", remedy))


def file_signature(path: PathLike) -> tuple[int, int, int] | None:
    """Return values that change when the file is replaced; None if the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def is_float(text: str | bytes) -> bool:
    """Return whether Python's `float` accepts the text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def plain_name(path: PathLike) -> Path:
    """Return the path without the suffix of its compression.

    >>> str(plain_name("train.txt.gz")), str(plain_name("train.txt"))
    ('train.txt', 'train.txt')
    """
    path = Path(path)
    return path.with_suffix("") if path.suffix in (".gz", ".zst") else path


_SUFFIXES = {
    ".txt": "letor", ".letor": "letor", ".svm": "letor", ".dat": "letor", ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "csv", ".qrels": "qrels", ".run": "run",
}  # fmt: skip


TABLES = ("parquet", "arrow", "csv")
"""Formats with named columns."""
_INSIDE = ("parquet", "arrow")  # compressed internally, so a compression suffix is not supported


def promised_format(path: PathLike) -> str | None:
    """Return the format of a file according to its name, or None.

    >>> promised_format("train.csv.gz"), promised_format("train.txt"), promised_format("train.parquet.gz")
    ('csv', 'letor', None)
    """
    name = plain_name(path)
    promised = _SUFFIXES.get(name.suffix.lower())
    return None if promised in _INSIDE and name != Path(path) else promised


def listed_paths(paths: Any) -> list[Path]:
    """Return one or several paths as a list; raise an error if it is empty or contains a file twice."""
    several = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    if not all(isinstance(path, str | os.PathLike) for path in several):
        raise DataError(f"Give a path, such as 'train.txt', or a list of paths, not {paths!r}.")
    if not several:
        raise DataError("The list of paths is empty; give at least one file.")
    listed = [Path(path) for path in several]
    seen: set[str] = set()
    for path in listed:
        check_name(path)
        real = os.path.realpath(path)
        if real in seen:
            raise DataError(f"The file {path} is given twice; name each file once.")
        seen.add(real)
    return listed


_NAME_BYTES = 100  # bytes of the target's name in a temporary name; file systems allow about 255 in total
_own = deque[Path](maxlen=1000)  # recent temporary paths; most of them are already renamed


def temporary_sibling(target: Path, suffix: str) -> Path:
    """Return a unique temporary name in the folder of the target, so that renaming is atomic."""
    sibling = target.with_name(f".{_label(target)}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{suffix}")
    _own.append(sibling)
    return sibling


def clear_own() -> None:
    """Remove incomplete files and folders of this process; called before it exits."""
    for sibling in list(_own):
        if sibling.is_dir():
            shutil.rmtree(sibling, ignore_errors=True)
        else:
            with suppress(OSError):
                sibling.unlink()


def leftover_files(folder: Path, suffix: str, target: Path | None = None) -> Iterator[Path]:
    """Yield incomplete files that dead processes of this machine left in a folder, for `target` or for any target."""
    if os.name != "posix":  # elsewhere, checking for a process could affect it
        return
    label = r"\..+" if target is None else re.escape(f".{_label(target)}")
    pattern = re.compile(rf"{label}\.{_machine()}-(\d{{1,9}})-[0-9a-f]{{8}}{re.escape(suffix)}", re.DOTALL)
    with suppress(OSError):  # without permission to list, writing reports the error
        for name in os.listdir(folder):
            match = pattern.fullmatch(name) if name.endswith(suffix) else None
            if match is not None and not _runs(int(match[1])):
                yield folder / name


def _label(target: Path) -> str:
    name = os.fsencode(target.name)
    if len(name) <= _NAME_BYTES:
        return target.name
    # Truncate by bytes, not within a character; the hash distinguishes names with the same beginning.
    return name[:_NAME_BYTES].decode(errors="ignore") + hashlib.blake2b(name, digest_size=4).hexdigest()


@cache
def _machine() -> str:
    """Return a hash of this machine or container, since process ids are ambiguous on a shared disk."""
    known = [platform.node()]
    with suppress(OSError):
        known.append(Path("/etc/machine-id").read_text())
    with suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b("\n".join(known).encode(), digest_size=4).hexdigest()


def _runs(process: int) -> bool:
    with suppress(PermissionError):  # a process of another user
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


_UNFINISHED = ".part"
_OURS = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d+)")


@contextmanager
def output(path: PathLike, *, compress: bool = True) -> Iterator[IO[bytes]]:
    """Write a file atomically: write a temporary file in the same folder, then rename it.

    For a symbolic link, its target is replaced. Devices and pipes are never replaced, but written directly. With
    `compress`, files whose names end in .gz or .zst are compressed. The same content gives the same bytes.

    Raises:
        FileError: the file cannot be written; an existing file stays unchanged.
    """
    with os_errors(path, "written"):
        file = _open_in_place(path) or _replace_atomically(Path(os.path.realpath(path)))
        with file as raw, _compressor(raw, Path(path).suffix if compress else "") as stream:
            yield stream


def _open_in_place(path: PathLike) -> IO[bytes] | None:
    """Open a device, a pipe or an output stream of this process for writing; None for a plain file or a new one."""
    if ours := _OURS.fullmatch(os.fspath(path)):
        # After `>` or `>>` of the shell, writing must continue at the position in that file.
        sys.stdout.flush()
        return os.fdopen(os.dup({"stdout": 1, "stderr": 2}.get(ours[1]) or int(ours[2])), "wb")
    try:
        plain = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return None
    except ValueError as problem:  # a zero byte in the name
        raise FileError(f"{path!r} cannot be written: {problem}.") from None
    return None if plain else open(path, "wb")


@contextmanager
def _replace_atomically(target: Path) -> Iterator[IO[bytes]]:
    for remains in leftover_files(target.parent, _UNFINISHED):
        with suppress(OSError):  # without permission to clean up, writing reports the error
            remains.unlink()
    sibling = temporary_sibling(target, _UNFINISHED)
    try:
        with sibling.open("xb") as raw:
            yield raw
        os.replace(sibling, target)
    except BaseException:
        with suppress(OSError):
            sibling.unlink()
        raise


@contextmanager
def _compressor(raw: IO[bytes], suffix: str) -> Iterator[Any]:
    if suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as stream:
            yield stream
    elif suffix == ".zst":
        import pyarrow as pa

        with pa.CompressedOutputStream(pa.PythonFile(raw, "w"), "zstd") as stream:
            yield stream
    else:
        yield raw


def delimiter_of(path: Path) -> str:
    """Return the column separator: a tab for .tsv files, else a comma."""
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","
