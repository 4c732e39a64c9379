"""What `read_letor` makes of well-formed text."""

from __future__ import annotations

import gzip
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import shared_data
from toprank.data.bytesource import head_of
from toprank.data.dataset import RankingData
from toprank.data.letor import looks_like_letor, read_letor
from toprank.data.letor import survey as letor_survey

NAN = np.nan


@pytest.fixture
def text_file(tmp_path):
    def write(text, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("folder", "n_queries", "n_documents", "n_features", "grades"),
    [
        ("OHSUMED", 106, 16140, 45, [11303, 2585, 2252]),
        ("OHSUMED-null", 106, 16140, 45, [11303, 2585, 2252]),
        ("MQ2008", 784, 15211, 46, [12279, 2001, 931]),
    ],
)
def test_published_counts(folder, n_queries, n_documents, n_features, grades):
    data = read_letor(sorted(shared_data("letor", folder).glob("S*.txt")))
    assert (data.n_queries, data.n_documents, data.n_features) == (n_queries, n_documents, n_features)
    assert np.bincount(data.labels.astype(int)).tolist() == grades
    assert data.document_ids is not None
    assert np.isnan(data.X).any() == (folder == "OHSUMED-null")


def test_features_agree_with_another_reader():
    from sklearn.datasets import load_svmlight_file

    path = shared_data("mslr-slices", "msn1.fold1.train.5k.txt")
    X, y, qid = load_svmlight_file(str(path), query_id=True, zero_based=False)
    data = read_letor(path, dtype=np.float64, missing="zero")
    assert data.n_features == 136
    np.testing.assert_array_equal(data.X, X.toarray())
    np.testing.assert_array_equal(data.labels, y)
    np.testing.assert_array_equal(data.qid, qid)


def test_lightgbm_example_takes_its_queries_from_the_side_file():
    path = shared_data("lightgbm-example", "rank.train")
    sizes = [int(line) for line in (path.parent / "rank.train.query").read_text().split()]
    data = read_letor(path, layout="sparse")
    assert data.queries.sizes.tolist() == sizes
    assert data.X.nnz == path.read_text().count(":")
    dense = read_letor(path, missing="zero")
    np.testing.assert_array_equal(dense.X, data.X.toarray())


AWKWARD = (
    "\ufeff# a header\r\n"
    "\r\n"
    "  2   qid:7\t1:0.5 3:-1e2  # docid = a \r\n"
    "0 qid:7 2:NULL 3:null 1:nan\t \n"
    "-1 qid:x9 # only = words here\n"
    "\t# indented comment\n"
    "1.5 qid:x9 3:inf 1:-inf#glued\n"
    "+3e0 qid:007 0002:.5 1:5."
)


def test_awkward_but_legal_text(text_file):
    data = read_letor(text_file(AWKWARD))
    expected = [[0.5, NAN, -100], [NAN, NAN, NAN], [NAN, NAN, NAN], [-np.inf, NAN, np.inf], [5, 0.5, NAN]]
    np.testing.assert_array_equal(data.X, np.array(expected, dtype=np.float32))
    assert data.labels.tolist() == [2, 0, -1, 1.5, 3]
    assert data.qids.tolist() == ["7", "x9", "007"]
    assert data.queries.sizes.tolist() == [2, 2, 1]
    assert data.document_ids is None
    assert data.X.dtype == np.float32


def test_missing_as_zero_and_sparse(text_file):
    path = text_file("0 qid:1 2:NULL 3:0\n1 qid:1 1:4\n")
    assert read_letor(path, missing="zero").X.tolist() == [[0, 0, 0], [4, 0, 0]]
    kept = read_letor(path, layout="sparse", dtype=np.float64).X
    assert kept.indices.tolist() == [1, 2, 0]
    np.testing.assert_array_equal(kept.data, [NAN, 0, 4])
    dropped = read_letor(path, layout="sparse", missing="zero").X
    assert (dropped.indices.tolist(), dropped.data.tolist(), dropped.indptr.tolist()) == ([2, 0], [0, 4], [0, 1, 2])
    assert dropped.shape == (2, 3)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_feature_ids_start_at_0_only_where_a_0_occurs(text_file, layout):
    def columns(text, **options):
        X = read_letor(text_file(text), layout=layout, missing="zero", **options).X
        return (X if layout == "dense" else X.toarray()).tolist()

    assert columns("0 qid:1 1:5 3:6\n") == [[5, 0, 6]]
    assert columns("0 qid:1 1:5 3:6\n", first_feature_id=0) == [[0, 5, 0, 6]]
    assert columns("0 qid:1 1:5 3:6\n", n_features=5) == [[5, 0, 6, 0, 0]]
    assert columns("0 qid:1 1:5\n0 qid:1 0:7\n") == [[0, 5], [7, 0]]
    # Ids out of order hide the least and the most one from the first pass.
    assert columns("0 qid:1 2:1 9:2 0:3 1:4\n0 qid:1 1:1 12:3 2:2\n") == [
        [3, 4, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        [0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
    ]


def test_rows_without_features_are_rows(text_file):
    data = read_letor(text_file("1 qid:1\n0 qid:2 # x\n"))
    assert data.X.shape == (2, 0)
    assert data.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("comments", "expected"),
    [
        (["#docid = GX-1 inc = 1 prob = 0.08", "# docid=b", "#  docid  =  c#d"], ["GX-1", "b", "c#d"]),
        (["# one", "#two ", "#\tthree\r"], ["one", "two", "three"]),
        (["# one", "", "# three"], None),
        (["# one", "# two words", "# three"], None),
        (["# one", "# docid = ", "# three"], None),
        (["# caf\u00e9", "# b", "# c"], ["café", "b", "c"]),
    ],
)
def test_document_ids_from_comments(text_file, comments, expected):
    data = read_letor(text_file("".join(f"0 qid:1 1:1 {comment}\n" for comment in comments)))
    assert (None if data.document_ids is None else data.document_ids.tolist()) == expected


def test_comments_need_not_be_utf8(text_file):
    data = read_letor(text_file(b"0 qid:1 1:1 # docid = \xff\xfe\n0 qid:1 1:2 # docid = ok\n"))
    assert data.document_ids.tolist() == ["\\xff\\xfe", "ok"]
    assert read_letor(text_file(b"# \x80\x81\n0 qid:1 1:1 #\xff \xff\n")).document_ids is None


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["3", "-5", "0"], [3, -5, 0]),
        (["3", "03", "5"], ["3", "03", "5"]),
        (["1", "-0"], ["1", "-0"]),
        (["1", "12345678901234567890"], ["1", "12345678901234567890"]),
        (["q\u00fc", "a:b"], ["qü", "a:b"]),
        (["2021-01-05T10:30:00", "x"], ["2021-01-05T10:30:00", "x"]),
    ],
)
def test_query_ids_are_integers_only_if_all_are_written_so(text_file, tokens, expected):
    data = read_letor(text_file("".join(f"0 qid:{token} 1:1\n" for token in tokens)))
    assert data.qids.tolist() == expected
    assert data.n_features == 1


def test_gzip_zstd_and_pipes_read_like_plain_files(text_file, tmp_path):
    import pyarrow as pa

    text = AWKWARD.encode() * 1
    plain = read_letor(text_file(text))
    two_members = gzip.compress(text[:40], mtime=0) + gzip.compress(text[40:], mtime=0) + b"\0" * 512
    compressed = {"data.txt.gz": two_members, "misnamed": pa.compress(text, "zstd", asbytes=True)}
    for name, content in compressed.items():
        path = text_file(content, name)
        assert read_letor(path).equals(plain)
        assert head_of(path, 20) == text.removeprefix(b"\xef\xbb\xbf")[:17]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(text))
    writer.start()
    assert read_letor(pipe).equals(plain)
    writer.join()


def test_several_files_are_one_data_set(text_file):
    first, second = text_file("0 qid:1 1:1\n", "a"), text_file("1 qid:2 3:1", "b")
    data = read_letor([first, second])
    assert data.qids.tolist() == [1, 2]
    np.testing.assert_array_equal(data.X, [[1, NAN, NAN], [NAN, NAN, 1]])


SCATTERED = "".join(
    f"{i % 3} qid:{'ab'[i % 2] * (i % 3 + 1)} {i % 4 + 1}:{i} 5:{-i}{' 6:1' * (i % 2)} # d{i}\n" for i in range(40)
)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("chunk", [1, 100, 1 << 22])
def test_regroup_is_the_stable_regrouping_of_ranking_data(text_file, monkeypatch, layout, chunk):
    monkeypatch.setattr(letor_survey, "_CHUNK", chunk)
    weights = "".join(f"{i}.5\n" for i in range(40))
    positions = "".join(f"{i % 7}\n" for i in range(40))
    path = text_file(SCATTERED)
    text_file(weights, "data.txt.weight")
    text_file(positions, "data.txt.position")
    dense = np.full((40, 6), NAN if layout == "dense" else 0.0, dtype=np.float32)
    for i in range(40):
        dense[i, i % 4], dense[i, 4] = i, -i
        if i % 2:
            dense[i, 5] = 1
    expected = RankingData(
        dense,
        [i % 3 for i in range(40)],
        qid=["ab"[i % 2] * (i % 3 + 1) for i in range(40)],
        document_ids=[f"d{i}" for i in range(40)],
        document_weights=[i + 0.5 for i in range(40)],
        positions=[i % 7 for i in range(40)],
        regroup=True,
    )
    data = read_letor(path, regroup=True, layout=layout)
    X = data.X if layout == "dense" else data.X.toarray()
    assert data.replace(X=X).equals(expected)


def test_regroup_joins_a_query_over_files(text_file):
    paths = [text_file("0 qid:1 1:1\n0 qid:2 1:2\n", "a"), text_file("0 qid:1 1:3\n", "b")]
    data = read_letor(paths, regroup=True)
    assert data.qids.tolist() == [1, 2]
    assert data.X.tolist() == [[1], [3], [2]]


words = st.text("abcdef0123456789:.-", min_size=1, max_size=4)
rows = st.tuples(st.integers(-2, 4), st.dictionaries(st.integers(0, 12), st.floats(width=32), max_size=6))
blocks = st.lists(
    st.tuples(words, st.lists(rows, min_size=1, max_size=4)), min_size=1, max_size=5, unique_by=lambda b: b[0]
)


@settings(max_examples=150, deadline=None)
@given(blocks=blocks, chunk=st.integers(1, 80), threads=st.integers(1, 3), room=st.integers(1, 3), sparse=st.booleans())
def test_chunks_threads_and_buffers_change_nothing(tmp_path_factory, blocks, chunk, threads, room, sparse):
    lines = [
        f"{label} qid:{qid} " + " ".join(f"{feature}:{value}" for feature, value in features.items())
        for qid, block in blocks
        for label, features in block
    ]
    path = tmp_path_factory.mktemp("chunks") / "data.txt"
    path.write_text("\n".join(lines))
    options = {"layout": "sparse" if sparse else "dense", "first_feature_id": 0, "dtype": np.float64, "regroup": True}
    whole = read_letor(path, threads=1, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor_survey, "_CHUNK", chunk)
        patch.setattr(letor_survey, "_ROOM", room)
        pieces = read_letor(path, threads=threads, **options)
    assert pieces.equals(whole)
    X = whole.X.toarray() if sparse else whole.X
    for row, (_, features) in enumerate(row for _, block in blocks for row in block):
        for feature, value in features.items():
            assert X[row, feature] == value or (np.isnan(X[row, feature]) and np.isnan(value))
    assert whole.qids.astype(str).tolist() == [qid for qid, _ in blocks]


def test_side_files_beside_a_compressed_text(text_file):
    path = text_file(gzip.compress(b"0 1:1\n0 1:2\n0 1:3\n", mtime=0), "data.txt.gz")
    text_file("2\n1\n", "data.txt.query")
    text_file("1\n\n0.5\n2e0\n", "data.txt.gz.weight")
    data = read_letor(path)
    assert data.queries.sizes.tolist() == [2, 1]
    assert data.document_weights.tolist() == [1, 0.5, 2]


def test_qid_tokens_and_agreeing_side_files(text_file):
    path = text_file("0 qid:4 1:1\n0 qid:4 1:2\n0 qid:9 1:3\n")
    text_file("2\n1\n", "data.txt.query")
    text_file("2\n1", "data.txt.group")
    assert read_letor(path).qids.tolist() == [4, 9]


@pytest.mark.parametrize(
    ("first_bytes", "expected"),
    [
        (b"\xef\xbb\xbf\r\n# c\n2 qid:a 1:0.5 2:NULL #x\n", True),
        (b"0 1:0.5 7:1e-3", True),
        (b"0 qid:1", True),
        (b"0 qid:1 12:0.5 1", True),
        (b"1.5\n0.2\n", False),
        (b"", False),
        (b"# only a comment\n", False),
        (b"301 0 CR93E-10279 0\n", False),
        (b"301 Q0 doc 1 2.5 tag\n", False),
        (b"a,b\n1,2\n", False),
        (b"PAR1\x15\x04\x15\x80", False),
        (b"x qid:1 1:1\n", False),
    ],
)
def test_looks_like_letor(first_bytes, expected):
    assert looks_like_letor(first_bytes) is expected


def test_a_long_line_of_descending_ids_is_read_in_one_go(text_file):
    n = 1_000_000
    path = text_file(b"0 qid:1 " + b" ".join(b"%d:1" % i for i in range(n, 0, -1)))
    assert path.stat().st_size > 8_000_000
    assert (read_letor(path).X == 1).all()
    sparse = read_letor(path, layout="sparse").X
    assert sparse.indices.tolist() == list(range(n))
