"""Files made to burst, read in a process to which the system gives little memory.

python confined.py BYTES      answers each READER and path on standard input, a tab between, by a line
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from forging import limit_memory

READERS = {
    "data": lambda tr, path: tr.read(path),
    "letor": lambda tr, path: tr.read(path, format="letor"),
    "csv": lambda tr, path: tr.read(path, format="csv"),
    "run": lambda tr, path: tr.read_run(path),
    "qrels": lambda tr, path: tr.read_qrels(path),
    "scores": lambda tr, path: __import__("toprank.data.scores", fromlist=["x"]).read_scores(path),
    "clicks": lambda tr, path: tr.clicks.read(path),
    "model": lambda tr, path: tr.load(path),
}


def outcomes(cases: list[tuple[str, Path]], memory: int) -> list[str]:
    """What comes of reading each file: refused and the sentence, `read`, or what should not be."""
    asked = "".join(f"{reader}\t{path}\n" for reader, path in cases)
    command = [sys.executable, "-W", "ignore", __file__, str(memory)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=600)
    answers = done.stdout.splitlines()
    died = [f"the process ended with {done.returncode}: {done.stderr[-300:]}"]
    return (answers + died * len(cases))[: len(cases)]


def main() -> None:
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401 - what libraries take is not counted

    import toprank as tr
    from toprank.errors import ToprankError

    tr.clicks  # noqa: B018
    answers, sys.stdout = sys.stdout, sys.stderr
    limit_memory(int(sys.argv[1]))
    for line in sys.stdin:
        reader, path = line.rstrip("\n").split("\t")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            READERS[reader](tr, path)
            found = "read"
        except ToprankError as problem:
            found = f"refused: {problem}"
        except BaseException as problem:  # noqa: BLE001
            found = f"{type(problem).__name__}: {problem}"
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        print(f"{found} (+ {more} MiB)".replace("\n", " "), file=answers, flush=True)


if __name__ == "__main__":
    main()
