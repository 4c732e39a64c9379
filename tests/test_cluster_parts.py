"""Partitions without a cluster: sums over them, whole queries, meetings of trainers. Nothing here starts a process."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import toprank as tr
from loss_cases import LOSSES
from toprank import cluster
from toprank.cluster import allreduce, work
from toprank.cluster.allreduce import AllReduce, PeerLostError, free_port
from toprank.cluster.cluster import even_ranges, parts_of
from toprank.cluster.dataset import check_loss, moves
from toprank.cluster.runner import added
from toprank.cluster.sources import DataPart, FilePart, StorePart, joined, load, taken
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData
from toprank.errors import DataError, MissingExtraError, UnknownNameError
from toprank.rankers.source import InMemory
from toprank.scorers.expected_gain import Logits
from toprank.scorers.features import Moments, Standardization, first_row
from toprank.scorers.linear import LinearScorer, Thresholds


def graded(labels="graded", n_queries=14, seed=0):
    """Small ragged data with weights; the highest grade and the last query weight lie in one query only."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, n_queries)
    n = int(sizes.sum())
    y = {"graded": rng.integers(0, 4, n), "binary": rng.integers(0, 2, n), "real": rng.uniform(0, 2.5, n)}[labels]
    y = y.astype(float)
    y[-1] = {"graded": 4.0, "binary": 1.0, "real": 3.0}[labels]
    return RankingData(
        rng.normal(size=(n, 3)),
        y,
        queries=tr.Queries.from_sizes(sizes),
        document_weights=rng.uniform(0.5, 2, n),
        query_weights=rng.uniform(0.5, 2, n_queries),
        teacher=rng.normal(size=n),
    )


def cut(data, *bounds):
    """Neighboring queries as partitions."""
    edges = [0, *bounds, data.n_queries]
    pieces = [data.select(np.arange(a, b)) for a, b in itertools.pairwise(edges)]
    return [work.WorkerRows(piece, f"part {number}", None) for number, piece in enumerate(pieces)]


def scorer_of(name, options, data):
    if "columns" not in options:
        return LinearScorer(data.n_features, intercept=True)
    return Thresholds(data.n_features, 5) if name.startswith("ordinal") else Logits(data.n_features, 5)


@pytest.mark.parametrize(("name", "loss", "options"), LOSSES, ids=[case[0] for case in LOSSES])
def test_parts_add_up_to_the_whole(name, loss, options):
    data = graded(options.get("labels", "graded"))
    weighted = options.get("document_weights", True)
    if not weighted:
        data = data.replace(document_weights=None)
    if "columns" in options:
        loss = type(loss)(**{**vars(loss), "n_grades": 5})
    rows = cut(data, 4, 5, 9)
    facts = [work.summarize(part) for part in rows]
    drawn = options.get("random") and not loss.traits.random  # one that draws by the ids of queries adds up
    if drawn or name.startswith("boltzrank"):  # whose small queries need no draw, but others do
        with pytest.raises(DataError, match=r"global (document|query) index"):
            check_loss(loss, facts)
        return
    check_loss(loss, facts)
    scorer, standardization = scorer_of(name, options, data), Standardization.from_data(data.X)
    whole = work.GlobalFacts(sum(one.weight for one in facts), np.unique(data.labels))
    parts = [work.part_objective(part, scorer, loss, standardization, whole) for part in rows]
    alone = InMemory(data).objective(scorer, loss, standardization, 1)
    at = np.random.default_rng(1).normal(0, 0.3, scorer.n_weights)
    if "columns" in options and name.startswith("ordinal"):
        at[data.n_features :] = np.sort(at[data.n_features :]) * 3
    value, grad = added(*(work.value_and_grad(part, at) for part in parts))
    expected = alone.value_and_grad(at)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    np.testing.assert_allclose(grad, expected[1], rtol=1e-10, atol=1e-13)
    direction = np.random.default_rng(2).normal(size=scorer.n_weights)
    times = [work.products(part, at) for part in parts]
    (product,) = added(*(work.product(one, direction) for one in times))
    np.testing.assert_allclose(product, alone.hessian_product(at)(direction), rtol=1e-9, atol=1e-12)
    (bend,) = added(*(work.hessian(part, at) for part in parts))
    np.testing.assert_allclose(bend, alone.hessian(at), rtol=1e-9, atol=1e-12)


def test_the_grades_of_the_whole_data_matter():
    """ERR and unit targets look at the top grade, which only one partition has."""
    data = graded()
    rows = cut(data, 7)
    whole = work.GlobalFacts(float(data.query_weights.sum()), np.unique(data.labels))
    forgetful = whole._replace(grades=None)
    scorer, at = LinearScorer(3), np.ones(3)
    for loss in (tr.losses.ApproxMetric("err"), tr.losses.PowerRegression()):
        alone = InMemory(data).objective(scorer, loss, Standardization.from_data(data.X), 1).value_and_grad(at)[0]

        def value(known, loss=loss):
            parts = [work.part_objective(r, scorer, loss, Standardization.from_data(data.X), known) for r in rows]
            return added(*(work.value_and_grad(part, at) for part in parts))[0]

        assert value(whole) == pytest.approx(alone, rel=1e-12)
        assert value(forgetful) != pytest.approx(alone, rel=1e-6)


def test_a_partition_that_weighs_nothing_says_nothing():
    data = graded()
    weights = np.where(np.arange(data.n_queries) < 4, 0.0, data.query_weights)
    data = data.replace(query_weights=weights)
    rows, scorer = cut(data, 4), LinearScorer(3)
    whole = work.GlobalFacts(float(weights.sum()), np.unique(data.labels))
    standardization, loss = Standardization.from_data(data.X), tr.losses.ListNet()
    parts = [work.part_objective(part, scorer, loss, standardization, whole) for part in rows]
    assert work.value_and_grad(parts[0], np.ones(3))[0] == 0.0
    assert not work.hessian(parts[0], np.ones(3))[0].any()
    assert not work.product(work.products(parts[0], np.ones(3)), np.ones(3))[0].any()
    expected = InMemory(data).objective(scorer, loss, standardization, 1).value_and_grad(np.ones(3))
    assert work.value_and_grad(parts[1], np.ones(3))[0] == pytest.approx(expected[0], rel=1e-13)


@pytest.mark.parametrize("kind", ["dense", "gaps", "sparse", "constant"])
def test_standardization_from_sums_is_the_same(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) * [1, 10, 1e-3, 1] + [0, 1e5, 0, 3]
    if kind == "gaps":
        X[rng.uniform(size=X.shape) < 0.2] = np.nan
        X[:, 3] = np.nan
    if kind == "constant":
        X[:, 1] = 7.0
    if kind == "sparse":
        X = sparse.csr_matrix(np.where(rng.uniform(size=X.shape) < 0.5, X, 0))
    shift = first_row(X)
    parts = [Moments.from_data(X[a:b], shift) for a, b in ((0, 7), (7, 8), (8, 50))]
    got, expected = Standardization.from_moments(Moments.joined(parts)), Standardization.from_data(X)
    np.testing.assert_allclose(got.center, expected.center, rtol=1e-13)
    np.testing.assert_allclose(got.spread, expected.spread, rtol=1e-12)
    assert got.complete == expected.complete


# ---- whole queries ----


@st.composite
def scattered(draw):
    """Rows of a few queries in partitions, cut anywhere and in any order."""
    qid = draw(st.lists(st.integers(0, 5), min_size=1, max_size=25))
    cuts = sorted(draw(st.lists(st.integers(0, len(qid)), max_size=4)))
    edges = [0, *cuts, len(qid)]
    return qid, [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def repaired(rows, repair):
    """What `DistributedData` does with futures, here with the objects themselves."""
    planned = moves([work.summarize(part) for part in rows], repair)
    gone, come = {}, {}
    for move in planned:
        gone.setdefault(move.donor, []).append(move.qids)
        come.setdefault(move.home, []).append(taken(rows[move.donor], move.donor, move.qids))
    after = list(rows)
    for number in {*gone, *come}:
        left = np.concatenate(gone[number]) if number in gone else None
        after[number] = joined(rows[number], number, left, *come.get(number, []))
    return [part for part in after if part.data is not None]


@given(scattered(), st.booleans(), st.booleans())
def test_repair_brings_every_query_together(case, weighted, is_sparse):
    qid, ranges = case
    X = np.arange(len(qid), dtype=float)[:, None] + 1
    weight = {q: 1.0 + q for q in qid}

    def part(a, b):
        matrix = sparse.csr_matrix(X[a:b]) if is_sparse else X[a:b]
        data = RankingData(matrix, X[a:b, 0], qid=qid[a:b], regroup=True)
        return data.replace(query_weights=[weight[q] for q in data.qids.tolist()]) if weighted else data

    pieces = [part(a, b) for a, b in ranges]
    rows = [work.WorkerRows(piece, f"part {n}", None, piece.source_rows) for n, piece in enumerate(pieces)]
    after = repaired(rows, "all")
    whole = concatenate([part.data for part in after])  # refuses a query in two parts
    expected = {q: [i + 1 for i in range(len(qid)) if qid[i] == q] for q in set(qid)}
    assert {q: whole.labels[r].tolist() for q, r in zip(whole.qids.tolist(), whole.queries, strict=True)} == expected
    if weighted:
        assert whole.query_weights.tolist() == [weight[q] for q in whole.qids.tolist()]
    for part in after:  # every row knows where it stood: X holds its number in the whole
        number = rows.index(part) if part in rows else None
        owners = np.full(part.data.n_documents, number) if part.owners is None else part.owners
        order = np.arange(part.data.n_documents) if part.order is None else part.order
        starts = np.array([a for a, _ in ranges])
        at = part.data.X.toarray() if is_sparse else part.data.X
        np.testing.assert_array_equal(starts[owners] + order + 1, at[:, 0])


def rows_of(*qids):
    return [
        work.WorkerRows(
            RankingData(np.ones((len(q), 1)), np.zeros(len(q)), qid=list(q), regroup=True), f"file {n}", None
        )
        for n, q in enumerate(qids)
    ]


def test_what_is_repaired_and_what_is_refused():
    border = rows_of("aab", "bb", "bcc")  # b goes on over two borders
    assert [part.data.qids.tolist() for part in repaired(border, "neighbors")] == [["a", "b"], ["c"]]
    with pytest.raises(DataError, match=r"Query b has rows in file 0 and in file 1; partitions must hold"):
        repaired(border, "none")
    apart = rows_of("aab", "cc", "bd")
    with pytest.raises(DataError, match=r"Query b has rows in file 0 and in file 2, but not at the border"):
        repaired(apart, "neighbors")
    restarted = rows_of("abc", "abc")
    with pytest.raises(DataError, match=r"Query a has rows .* give them different ids"):
        repaired(restarted, "neighbors")
    assert sorted(qid for part in repaired(restarted, "all") for qid in part.data.qids.tolist()) == ["a", "b", "c"]


def test_ids_that_start_again_in_files_of_one_query():
    with pytest.raises(
        DataError, match=r"Query 0 is the only one in each of 3 partitions, file 0 to file 2.*on_split_queries='all'"
    ):
        repaired(rows_of([0, 0], [0], [0, 0]), "neighbors")
    assert len(repaired(rows_of([0, 0], [0], [0, 0]), "all")) == 1
    assert len(repaired(rows_of([0, 0], [0]), "neighbors")) == 1  # as a table cut by rows may have it
    assert len(repaired(rows_of([1, 0], [0], [0, 2]), "neighbors")) == 2


def test_repair_does_not_fill_one_partition():
    """Rows in any order: every partition has some of every query, and the first one most rows."""
    rng = np.random.default_rng(0)
    qid = rng.integers(0, 200, 4000)
    parts = [qid[:1600], qid[1600:2800], qid[2800:]]
    sizes = [part.data.n_documents for part in repaired(rows_of(*parts), "all")]
    assert sum(sizes) == len(qid)
    assert len(sizes) == 3
    assert max(sizes) < 1.3 * len(qid) / 3


def test_queries_go_where_most_of_their_rows_are():
    rows = rows_of("aab", "abbb", "aacbccc")
    assert [part.data.qids.tolist() for part in repaired(rows, "all")] == [["a"], ["b"], ["c"]]


def test_a_query_keeps_one_weight():
    one = RankingData([[1.0]], [1], qid=[7], query_weights=[1.0])
    two = RankingData([[1.0]], [1], qid=[7], query_weights=[2.0])
    with pytest.raises(DataError, match="Query 7 has several query weights"):
        repaired([work.WorkerRows(one, "a", None), work.WorkerRows(two, "b", None)], "neighbors")


# ---- sizes ----


def test_dask_is_told_what_a_partition_weighs(tmp_path):
    data = graded(n_queries=400)
    rows = work.WorkerRows(data, "in memory", None)
    content = sum(array.nbytes for array in data.arrays().values())
    assert content <= sys.getsizeof(rows) < 1.2 * content + 500
    sparse_rows = work.WorkerRows(data.replace(X=sparse.csr_matrix(data.X)), "sparse", None)
    assert sys.getsizeof(sparse_rows) > sparse_rows.data.X.data.nbytes + sparse_rows.data.X.indices.nbytes
    tr.write(data, tmp_path / "d.toprank-data")
    mapped = load(StorePart(str(tmp_path / "d.toprank-data"), 10, 390))
    assert sys.getsizeof(mapped) < mapped.data.X.nbytes / 2
    whole = work.GlobalFacts(float(data.query_weights.sum()), np.unique(data.labels))
    part = work.part_objective(rows, LinearScorer(3), tr.losses.ListNet(), Standardization.from_data(data.X), whole)
    assert data.labels.nbytes < sys.getsizeof(part) < sys.getsizeof(rows)
    times = work.products(part, np.ones(3))
    assert data.labels.nbytes < sys.getsizeof(times) < sys.getsizeof(rows)


# ---- sources ----


def test_rows_travel_as_their_recipe(tmp_path):
    data = tr.synthetic(n_queries=6, seed=0)
    tr.write(data, tmp_path / "d.toprank-data")
    rows = load(StorePart(str(tmp_path / "d.toprank-data"), 2, 5))
    assert rows.data.equals(data.select([2, 3, 4]))
    assert len(pickle.dumps(rows)) < 1000 < rows.data.X.nbytes
    assert pickle.loads(pickle.dumps(rows)).data.equals(rows.data)
    whole, at = work.GlobalFacts(3.0, np.arange(5.0)), np.full(data.n_features, 0.1)
    part = work.part_objective(
        rows, LinearScorer(data.n_features), tr.losses.ListNet(), Standardization.from_data(rows.data.X), whole
    )
    times = work.products(part, at)
    assert max(len(pickle.dumps(part)), len(pickle.dumps(times))) < 3000
    again, times_again = pickle.loads(pickle.dumps((part, times)))
    np.testing.assert_array_equal(work.value_and_grad(again, at)[1], work.value_and_grad(part, at)[1])
    np.testing.assert_array_equal(work.product(times_again, at)[0], work.product(times, at)[0])


def test_stored_copies_are_cut_into_whole_queries(tmp_path):
    data = tr.synthetic(n_queries=30, seed=0)
    tr.write(data, tmp_path / "d.toprank-data")
    parts = cluster.read(tmp_path / "d.toprank-data", partitions=4)
    assert len(parts) == 4
    assert concatenate([part.load() for part in parts.sources]).equals(data)
    with pytest.raises(UnknownNameError, match="label"):
        cluster.read(tmp_path / "d.toprank-data", label="y")
    with pytest.raises(DataError, match="partitions must be a whole number of at least 1"):
        cluster.read(tmp_path / "d.toprank-data", partitions=0)
    with pytest.raises(DataError, match="Each file is one partition"):
        cluster.read([tmp_path / "d.txt"], partitions=3)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 12))
def test_ranges_are_even_and_complete(sizes, count):
    offsets = tr.Queries.from_sizes(sizes).offsets
    ranges = even_ranges(offsets, count)
    assert len(ranges) <= count
    assert [a for a, _ in ranges] == [0, *(b for _, b in ranges[:-1])]
    assert ranges[-1][1] == len(sizes)
    documents = [int(offsets[b] - offsets[a]) for a, b in ranges]
    assert max(documents) <= offsets[-1] / count + max(sizes)


def test_what_can_be_distributed(tmp_path):
    data = tr.synthetic(n_queries=9, seed=0)
    parts = parts_of(data, partitions=3)
    assert all(isinstance(part, DataPart) for part in parts.sources)
    assert concatenate([part.data for part in parts.sources]).equals(data)
    assert parts_of(parts, partitions=2) is parts
    with pytest.raises(DataError, match="Data of type list cannot be distributed"):
        parts_of([1, 2], partitions=2)
    with pytest.raises(tr.ToprankError, match=r"contains no Parquet files"):
        cluster.read(tmp_path)
    with pytest.raises(DataError, match="The list of paths is empty"):
        cluster.read([])
    with pytest.raises(UnknownNameError, match="neighbors"):
        cluster.read(["a.txt"], on_split_queries="neighbours")
    with pytest.raises(tr.ToprankError, match=r"gone.txt"):
        FilePart(str(tmp_path / "gone.txt")).load()


# ---- what cannot be done ----


def test_refusals_without_a_cluster(tmp_path):
    data = tr.synthetic(n_queries=5, seed=0)
    for refused in (
        lambda: tr.LinearRanker().fit(cluster.read(["a.txt"])),
        lambda: tr.LinearRanker().fit(data, valid=cluster.read(["a.txt"])),
    ):
        with pytest.raises(DataError, match=r"Data on a cluster need .*connect\(address\)\.fit\(ranker, train"):
            refused()


def test_connecting_in_vain():
    with pytest.raises(cluster.ClusterError, match="This process has no Dask client"):
        cluster.connect()
    with pytest.raises(cluster.ClusterError, match=r"No Dask scheduler replies at tcp://127.0.0.1:1 "):
        cluster.connect("tcp://127.0.0.1:1", timeout=0.5)
    with pytest.raises(DataError, match="not both"):
        cluster.connect("tcp://127.0.0.1:1", workers=2)
    with pytest.raises(DataError, match="timeout must be a positive number"):
        cluster.connect(workers=2, timeout=0)
    with pytest.raises(DataError, match="checkpoint_every must be"):
        cluster.connect(workers=2, checkpoint_every=0)


def test_the_extra_is_named(monkeypatch):
    import toprank.errors as errors

    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(errors, "first_use", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'toprank\[cluster\]'"):
        cluster.connect("tcp://10.0.0.1:8786")


# ---- sums over trainers ----


def met(size, talk, token=b"secret"):
    """Trainers in threads; what each talk gave, or the exception."""
    (port,) = free_port()
    results = [None] * size

    def run(rank):
        try:
            with AllReduce(rank, size, ("127.0.0.1", port), token, 10.0) as all_reduce:
                results[rank] = talk(all_reduce)
        except Exception as problem:  # noqa: BLE001 - it is what the test looks at
            results[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_trainers_agree_on_a_sum_to_the_last_bit():
    numbers = np.random.default_rng(0).normal(size=(3, 5)) * 10.0 ** np.arange(5)
    found = met(3, lambda all_reduce: [all_reduce.sum(numbers[all_reduce.rank]) for _ in range(3)])
    expected = (numbers[0] + numbers[1]) + numbers[2]
    for sums in found:
        for total in sums:
            np.testing.assert_array_equal(total, expected)


def test_nobody_waits_for_the_dead():
    def talk(all_reduce):
        all_reduce.sum(np.ones(2))
        if all_reduce.rank == 1:
            raise ValueError("gone")
        return all_reduce.sum(np.ones(2))

    first, second, third = met(3, talk)
    assert isinstance(second, ValueError)
    assert isinstance(first, PeerLostError)
    assert isinstance(third, PeerLostError)


def test_strangers_are_sent_away():
    (port,) = free_port()

    def stranger(words):
        for _ in range(10_000):  # until somebody listens
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as line:
                line.sendall(words)
                return
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(AllReduce, 0, 2, ("127.0.0.1", port), b"secret", 20.0)
        for words in (b"", b"short", b"password!!"):
            pool.submit(stranger, words).result()
        second = pool.submit(AllReduce, 1, 2, ("127.0.0.1", port), b"secret", 20.0)
        with first.result() as one, second.result() as other:
            sums = [pool.submit(all_reduce.sum, np.ones(2)) for all_reduce in (one, other)]
            for total in sums:
                np.testing.assert_array_equal(total.result(), [2.0, 2.0])


def test_ports_are_not_those_of_outgoing_connections():
    ports = free_port(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768  # the first that Linux gives out; others begin later


def test_a_port_of_a_connection_just_closed_is_not_given(monkeypatch):
    """LightGBM cannot listen there for a minute."""
    (port,) = free_port()
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as guest:
        host, _ = server.accept()
        host.close()  # first: the connection stays on this side
        assert guest.recv(1) == b""
    monkeypatch.setattr(allreduce, "_FIRST_PORT", port)
    monkeypatch.setattr(allreduce, "_LAST_PORT", port + 10)
    assert port not in [free_port()[0] for _ in range(100)]


def test_a_meeting_that_never_fills_up_ends():
    (port,) = free_port()
    with pytest.raises(PeerLostError, match="not all trainers met"):
        AllReduce(0, 2, ("127.0.0.1", port), b"secret", 0.2)
    with pytest.raises(PeerLostError, match="not all trainers met"):
        AllReduce(1, 2, ("127.0.0.1", port), b"secret", 0.2)
