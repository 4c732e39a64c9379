"""Coverage-guided fuzzing of the LETOR reader, by hand: ``python tests/fuzz/atheris_letor.py [corpus] -runs=100000``.

Needs atheris (``pip install atheris``). To let its coverage reach into the loops, they run as plain Python here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

SEEDS = (b"2 qid:10 1:0.5 2:-1e-3 5:NULL #docid = GX1 inc = 1\n", b"0 qid:a 0:1\r\n\n# c\n1 qid:a 3:7 1:4")


def main() -> None:
    """Feed inputs to `read_letor`; anything but data or a `ToprankError` is a finding."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed; get it with: pip install atheris")

    os.environ["NUMBA_DISABLE_JIT"] = "1"
    import numpy as np

    np.seterr(all="ignore")  # wrap-around of integers is meant, and only compiled code is silent about it
    with atheris.instrument_imports(include=["toprank"]):
        from toprank.data import letor
        from toprank.data.letor import survey as letor_survey
        from toprank.errors import ToprankError

    read = letor_survey.Chunk.read

    def read_integers(chunk: letor_survey.Chunk) -> np.ndarray:
        """Bytes as int64: compiled code computes with bytes as 64-bit integers, plain NumPy would keep them bytes."""
        return read(chunk).astype(np.int64)

    letor_survey.Chunk.read = read_integers
    folder = Path(tempfile.mkdtemp())
    path = folder / "data.txt"

    def test_one_input(content: bytes) -> None:
        options = content[:1] or b"\0"
        letor_survey._CHUNK = 16 if options[0] & 1 else 1 << 22
        path.write_bytes(content[1:])
        with contextlib.suppress(ToprankError):
            letor.read_letor(
                path,
                layout="sparse" if options[0] & 2 else "dense",
                missing="zero" if options[0] & 4 else "nan",
                dtype="float64" if options[0] & 8 else "float32",
                regroup=bool(options[0] & 16),
                threads=1,
            )

    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS):
        (corpus / str(number)).write_bytes(b"\0" + seed)
    atheris.Setup([*sys.argv, str(corpus)], test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
