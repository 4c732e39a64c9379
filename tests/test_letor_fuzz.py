"""Whatever the bytes, `read_letor` gives valid data or one of our errors."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toprank import kernels
from toprank.data.letor import looks_like_letor, read_letor
from toprank.data.letor import survey as letor_survey
from toprank.errors import ToprankError

VALID = (
    b"2 qid:10 1:0.5 2:-1e-3 5:NULL #docid = GX1 inc = 1\n"
    b"0 qid:10 1:1 2:0.123456789012345678 #docid = GX2\r\n"
    b"\n# comment\n1.5 qid:abc 3:7 1:4\n-1 qid:7 4:1e5 # x\n"
)
PIECES = b""" |\n|\t|\r\n|#|:|qid:|qid:1|0|1|-|.|e|nan|NULL|inf|1:2|2:0.5|docid =|\0|\xff|99999999999|1e400|
0.1234567890123456789|\x1f\x8b"""
bits_of_lines = st.sampled_from(PIECES.split(b"|"))
mutation = st.tuples(st.integers(0, len(VALID)), st.integers(0, 6), st.one_of(bits_of_lines, st.binary(max_size=4)))


def mutate(changes):
    text = VALID
    for at, cut, put in changes:
        text = text[:at] + put + text[at + cut :]
    return text


texts = st.one_of(
    st.binary(max_size=200),
    st.lists(bits_of_lines, max_size=60).map(b"".join),
    st.lists(mutation, min_size=1, max_size=4).map(mutate),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "data.txt"


@settings(max_examples=600, deadline=None)
@given(
    text=texts,
    dtype=st.sampled_from([np.float32, np.float64]),
    layout=st.sampled_from(["dense", "sparse"]),
    missing=st.sampled_from(["nan", "zero"]),
    regroup=st.booleans(),
    chunk=st.sampled_from([1, 16, 1 << 22]),
)
@example(text=VALID, dtype=np.float32, layout="dense", missing="nan", regroup=False, chunk=1)
@example(text=b"\xef\xbb\xbf", dtype=np.float32, layout="dense", missing="nan", regroup=False, chunk=16)
@example(text=b"0 qid:1 1:1 2:2", dtype=np.float64, layout="sparse", missing="zero", regroup=True, chunk=16)
def test_bytes_give_data_or_our_error(path, text, dtype, layout, missing, regroup, chunk):
    path.write_bytes(text)
    looks_like_letor(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor_survey, "_CHUNK", chunk)
        try:
            data = read_letor(path, dtype=dtype, layout=layout, missing=missing, regroup=regroup, threads=2)
        except ToprankError as problem:
            data, message = None, str(problem)
    if data is None:
        assert message
        assert "\n" not in message
        return
    rows = [line for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.partition(b"#")[0].strip(b" \t\r")]
    assert data.n_documents == len(rows)
    assert data.queries.offsets[-1] == len(data.labels) == data.X.shape[0]
    assert np.isfinite(data.labels).all()
    assert data.X.dtype == dtype
    if data.is_sparse:
        assert data.X.has_canonical_format
        data.X.check_format(full_check=True)
    if missing == "zero":
        assert not np.isnan(data.X.data if data.is_sparse else data.X).any()


MEANINGS = """
import hashlib, os, tempfile
from pathlib import Path
import numpy as np
from toprank.data.letor import read_letor
from toprank.errors import ToprankError
rng = np.random.default_rng(3)
os.chdir(tempfile.mkdtemp())  # so that no message names the folder
path = Path("some.txt")
for number in range(1500):
    lines = []
    for line in range(rng.integers(1, 5)):
        ids = np.flatnonzero(rng.random(40) < rng.choice([1, 0.98, 0.7])) + rng.integers(0, 2)
        shown = [f"{value:.{rng.integers(0, 9)}f}" for value in rng.normal(0, 30, len(ids))]
        end = rng.choice(["", " ", " # d", chr(13)])
        lines.append(f"{line} qid:1 {' '.join(f'{i}:{v}' for i, v in zip(ids, shown))}{end}")
    text = bytearray("\\n".join(lines).encode())
    for _ in range(rng.integers(0, 3)):
        at = rng.integers(0, len(text))
        put = rng.choice([b" ", b"\\t", b"\\n", b"#", b":", b"-", b".", b"/", b"e1", b"\\x01", b"NULL", b"7777777"])
        text[at : at + rng.integers(0, 3)] = put
    path.write_bytes(text)
    try:
        data = read_letor(path, dtype=[np.float32, np.float64][number % 2], layout=["dense", "sparse"][number % 3 == 0])
        X = data.X if number % 3 else np.concatenate([data.X.data, data.X.indices, data.X.indptr])
        print(hashlib.sha256(np.ascontiguousarray(X).tobytes() + data.labels.tobytes()).hexdigest())
    except ToprankError as problem:
        print(str(problem).encode())
"""


@pytest.mark.nightly
def test_any_bytes_mean_the_same_with_all_sets_of_instructions():
    """Rows of numbers, whole or damaged: wide registers read what the plain way reads, and refuse what it refuses."""
    found = kernels.library()
    said = {}
    for variant in found.variants[: found.variants.index(found.machine) + 1]:
        environment = os.environ | {"TOPRANK_KERNELS": variant}
        done = subprocess.run([sys.executable, "-c", MEANINGS], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said[variant] = done.stdout.splitlines()
    assert len(said["baseline"]) == 1500
    assert 500 < sum(line.startswith("b") for line in said["baseline"]) < 1000
    for variant, lines in said.items():
        assert lines == said["baseline"], variant
