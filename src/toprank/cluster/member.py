"""One process of `fit_distributed`: ``python -m toprank.cluster.member FOLDER RANK``."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path

from toprank.compute import available_threads
from toprank.data.files import read
from toprank.errors import FileError, ToprankError

__all__ = ["PREFIX", "main"]

PREFIX = "toprank-"
"""How the name of the folder begins that `fit_distributed` makes, and that may be removed."""


def main(folder: Path, rank: int) -> int:
    """Train as the folder's specification says; the first process writes what was learnt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started us is interrupted, and ends us
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    from toprank.cluster.team import meet

    spec = pickle.loads((folder / "spec").read_bytes())
    ranker, size, paths = spec["ranker"], spec["size"], spec["paths"]
    if ranker.threads is None:
        ranker.threads = max(1, available_threads() // size)
    where = f"file://{folder / 'meet'}"
    try:
        data, valid = (None if path is None else read(path) for path in (paths["train"], paths["valid"]))
        ranker._team = meet(spec["patience"], init_method=where, rank=rank, world_size=size)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UserWarning)
            ranker.fit(data, valid=valid)
    except ToprankError as problem:
        kind = "file" if isinstance(problem, FileError) else "data"
        (folder / f"problem-{rank}").write_text(f"{kind}\n{problem}")
        return 1
    if rank == 0:
        learnt = {name: value for name, value in vars(ranker).items() if name.endswith("_")}
        said = [one.message for one in told if type(one.message).__module__.startswith("toprank.")]
        (folder / "fitted").write_bytes(pickle.dumps((learnt, said)))
    return 0


def _end_with_parent(folder: Path) -> None:
    """Wait until the process that started us is gone, which closes our standard input; then nobody needs us.

    It was killed, so that it could not remove its temporary folder either.
    """
    sys.stdin.buffer.read()
    if folder.name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    status = 1
    try:
        status = main(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception:  # noqa: BLE001 - the last words, which the process that started us passes on
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)  # gloo's threads may abort an orderly exit, though all work is done
