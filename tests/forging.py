"""Forged model files, each loaded and asked for scores in a process that may die of it.

python forging.py [BYTES [tell]]   answers each path on standard input by a line: refused, finite, or what should not be

BYTES: memory that a case may add; `tell`: refusals with their sentence.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

PATIENCE = 120  # seconds; a case takes some milliseconds, and the first one the time to start
QIDS = [1, 1, 2, 2, 2, 3]


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array))
    return buffer.getvalue()


def parts_of(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "checksums.json"}


def seal(path, parts: dict[str, bytes], compression=zipfile.ZIP_DEFLATED) -> None:
    """Write parts of a model with checksums to match."""
    sums = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, part in (parts | {"checksums.json": json.dumps(sums).encode()}).items():
            archive.writestr(name, part)


def outcome(path: str, tell: bool = False) -> str:
    """What comes of a file: a sentence (told if asked for), or scores; anything else is told as it is."""
    import toprank as tr
    from toprank.errors import ToprankError

    try:
        ranker = tr.load(path)
        rows = np.random.default_rng(0).normal(size=(len(QIDS), ranker.n_features_in_))
        rows[0, 0] = np.nan
        names = getattr(ranker, "feature_names_in_", None)
        data = tr.RankingData(rows, np.arange(len(QIDS)) % 2, qid=QIDS, feature_names=names)
        scores = ranker.predict(data)
        ranker.score(data)
        ranker.save(f"{path}.again")
        again = tr.load(f"{path}.again").predict(data)
    except ToprankError as problem:
        return f"refused: {problem}".replace("\n", " ") if tell else "refused"
    except Exception as problem:  # noqa: BLE001
        return f"{type(problem).__name__}: {problem}".replace("\n", " ")
    if scores.shape != (len(QIDS),) or not np.isfinite(scores).all():
        return f"scores {scores!r}".replace("\n", " ")
    return "finite" if again.tobytes() == scores.tobytes() else "other scores after a save"


class Judges:
    """A few processes that load files; one that dies is replaced, and the file is known."""

    def __init__(self, count: int = 2, most_memory: int | None = None, tell: bool = False) -> None:
        """`most_memory`: bytes that a case may add to what its process took at most until then.

        The system refuses more than four times that, so that a case which does take it harms no other process.
        """
        options = [] if most_memory is None else [str(most_memory), *(["tell"] if tell else [])]
        self._command = [sys.executable, "-W", "ignore", __file__, *options]
        self._pool, self._own, self._all = ThreadPoolExecutor(count), threading.local(), []

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for process in self._all:
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def __call__(self, paths) -> dict[str, str]:
        """The outcome of each file."""
        names = [str(path) for path in paths]
        return dict(zip(names, self._pool.map(self._one, names), strict=True))

    def _one(self, path: str) -> str:
        process = getattr(self._own, "process", None)
        if process is None:
            process = self._own.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._all.append(process)
        too_long = threading.Timer(PATIENCE, process.kill)
        too_long.start()
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        too_long.cancel()
        if not answer:
            self._own.process = None
            return f"the process ended with {process.wait()}"
        return answer.rstrip("\n")


def _memory() -> int:
    """The most that this process took so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory(more: int) -> None:
    """Let the system refuse more memory for data than what this process has now and so many bytes."""
    import resource

    import toprank.rankers  # noqa: F401 - what libraries take is not counted

    if sys.platform == "linux" and "libasan" not in os.environ.get("LD_PRELOAD", ""):
        taken = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (taken + more, taken + more))


def as_it_is(problem: Exception) -> str:
    """What no reader foresaw is a gap in the reader, and told as such, where users are told of a damaged file."""
    raise RuntimeError(f"not foreseen: {type(problem).__name__}: {problem}") from problem


def main() -> None:
    from toprank.rankers import foreign

    foreign.unforeseen = as_it_is
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    most, tell = int(sys.argv[1]) if len(sys.argv) > 1 else None, "tell" in sys.argv
    if most is not None:
        limit_memory(4 * most)
    for line in sys.stdin:
        before, found = _memory(), outcome(line.rstrip("\n"), tell)
        if most is not None and _memory() - before > most:
            found = f"{_memory() - before:,} bytes of memory"
        print(found, file=answers, flush=True)
        Path(f"{line.rstrip()}.again").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
