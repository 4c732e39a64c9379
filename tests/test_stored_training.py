"""Training, prediction and evaluation from a stored copy: the same bits as from memory, without a copy of X."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import toprank as tr
from support import nightly
from toprank.compute import each_block
from toprank.data import dataset
from toprank.data.queries import Queries
from toprank.data.store import open_store
from toprank.rankers import source as objectives
from toprank.rankers.source import RankingObjective
from toprank.rankers.trees import memory as tree_memory
from toprank.rankers.trees import ranker as tree_rankers
from toprank.scorers import expected_gain
from toprank.scorers import features as scorer_features
from toprank.scorers.expected_gain import ExpectedGain, Logits
from toprank.scorers.features import Features, Standardization, row_blocks
from toprank.scorers.linear import LinearScorer
from toprank.solvers import Newton


def as_sparse(data):
    return data.replace(X=sparse.csr_matrix(np.where(np.asarray(data.X) > 0.5, data.X, 0)), feature_names=None)


@pytest.fixture(scope="module", params=["dense", "sparse"])
def both(request, tmp_path_factory):
    """The same data in memory and mapped from a stored copy."""
    data = tr.synthetic(n_queries=60, n_features=6, n_grades=3, seed=0)
    data = as_sparse(data) if request.param == "sparse" else data
    path = tmp_path_factory.mktemp("stored") / "data.toprank-data"
    tr.write(data, path)
    return data, tr.read(path)


RANKERS = {
    "linear": lambda: tr.LinearRanker("ListNet"),
    "linear by products": lambda: tr.LinearRanker("ListNet", solver=Newton(cholesky_limit=1), max_iterations=4),
    "kinks": lambda: tr.LinearRanker("Hinge", tolerance=1e-2),
    "expected gain": lambda: tr.ExpectedGainRanker("ListNet", max_iterations=10),
    "from linear": lambda: tr.ExpectedGainRanker("ListNet", init="linear", max_iterations=3),
    "likelihood by products": lambda: tr.ExpectedGainRanker("Multinomial", solver=Newton(), max_iterations=3),
    "ordinal": lambda: tr.ExpectedGainRanker("Ordinal", max_iterations=10),
    "trees": lambda: tr.TreeRanker("ListNet", n_trees=4, threads=1),
    "trees for grades": lambda: tr.TreeRanker("Multinomial", outputs="grades", n_trees=3, threads=1),
}


@pytest.mark.parametrize("name", RANKERS)
def test_a_stored_copy_trains_the_same_model(both, name):
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        for data in both:
            ranker = RANKERS[name]().fit(data)
            results.append((ranker.predict(data), ranker.training_, tr.evaluate(ranker.predict(data), data).mean))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]


def test_the_fingerprint_of_a_stored_copy_reads_nothing(both, monkeypatch):
    memory, mapped = both
    expected = memory.fingerprint
    monkeypatch.setattr(dataset, "digest", lambda array: pytest.fail("the content was read"))
    assert mapped.fingerprint == expected


def test_a_copy_without_hashes_has_its_fingerprint_computed(both, tmp_path):
    memory, _ = both
    tr.write(memory, tmp_path / "old.toprank-data")
    meta = json.loads((tmp_path / "old.toprank-data" / "meta.json").read_text())
    for described in meta["arrays"].values():
        described.pop("hash")
    (tmp_path / "old.toprank-data" / "meta.json").write_text(json.dumps(meta))
    assert open_store(tmp_path / "old.toprank-data").fingerprint == memory.fingerprint


@pytest.mark.parametrize("rule", ["irrelevant", "condense", "drop"])
def test_evaluation_takes_no_part_of_the_features(both, monkeypatch, rule):
    data = both[1]
    labels = np.where(np.arange(data.n_documents) % 50 == 3, -1.0, data.labels)
    data, scores = data.replace(labels=labels), np.arange(data.n_documents, dtype=float)
    rows = type(data)._rows
    widths = []
    monkeypatch.setattr(type(data), "_rows", lambda self, *args: widths.append(self.n_features) or rows(self, *args))
    value = tr.evaluate(scores, data, unjudged=rule).mean["ndcg@10"]
    assert widths == ([] if rule == "irrelevant" else [0])
    kept = {
        "irrelevant": labels > -2,
        "condense": labels > -1,
        "drop": data.queries.broadcast(data.queries.min(labels) > -1),
    }
    expected = tr.evaluate(scores[kept[rule]], np.maximum(labels, 0)[kept[rule]], qid=data.qid[kept[rule]])
    assert value == expected.mean["ndcg@10"]


# Sums in groups


@pytest.mark.parametrize("kind", [LinearScorer(6), Logits(6, 3), ExpectedGain(6, np.array([0.0, 1.0, 3.0]))])
def test_terms_that_are_added_in_groups_give_the_same_bits(both, monkeypatch, kind):
    data = both[1]
    loss = tr.losses.Multinomial(n_grades=3) if isinstance(kind, Logits) else tr.losses.ListNet()
    bound = loss.on(data.labels, data.queries)
    weights = np.random.default_rng(1).normal(size=kind.n_weights)

    def everything(threads):
        objective = RankingObjective(kind, Features(data.X, Standardization.from_data(data.X)), bound, threads)
        objective.blocks = [bound.slice(q, q + 1) for q in range(data.n_queries)]
        parts = [*objective.value_and_grad(weights), objective.hessian_product(weights)(weights)]
        return parts + ([objective.hessian(weights)] if objective.hessian else [])

    whole = everything(1)
    monkeypatch.setattr(objectives, "_MAX_TERM_BYTES", 1)
    monkeypatch.setattr(objectives, "_MIN_TERMS_PER_THREAD", 7)
    for threads in (1, 2):
        for one, other in zip(whole, everything(threads), strict=True):
            np.testing.assert_array_equal(one, other)


def test_products_of_the_curvature_hold_no_copy_of_the_features(both):
    data = both[1]
    bound = tr.losses.Multinomial(n_grades=3).on(data.labels, data.queries)
    objective = RankingObjective(Logits(6, 3), Features(data.X, Standardization.from_data(data.X)), bound)
    weights = np.random.default_rng(1).normal(size=21)
    times = objective.hessian_product(weights)
    prepared = next(cell.cell_contents for cell in times.__closure__ if isinstance(cell.cell_contents, list))
    assert all(scored is None for _, scored, _ in prepared)
    steps = 1e-6 * np.eye(21)[:5]
    for step in steps:
        difference = objective.value_and_grad(weights + step)[1] - objective.value_and_grad(weights - step)[1]
        np.testing.assert_allclose(2 * times(step), difference, atol=1e-12)


def test_sparse_features_are_passed_over_in_parts(both, monkeypatch):
    memory, mapped = both
    if not mapped.is_sparse:
        pytest.skip("about sparse features")
    whole = Standardization.from_data(memory.X)
    weights = np.arange(6.0)
    product = Features(memory.X, whole).times(slice(3, memory.n_documents), weights)
    monkeypatch.setattr(scorer_features, "_ENTRIES", 5)
    monkeypatch.setattr(scorer_features, "_CHUNK", 7)
    parts = Standardization.from_data(mapped.X)
    # sums of parts are added up in another order than one sum is
    np.testing.assert_allclose(parts.spread, whole.spread, rtol=1e-14)
    np.testing.assert_allclose(parts.center, whole.center, rtol=1e-14)
    rows = slice(3, mapped.n_documents)
    np.testing.assert_allclose(Features(mapped.X, parts).times(rows, weights), product, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [Logits(6, 3), ExpectedGain(6, np.array([0.0, 1.0, 3.0]))])
def test_one_large_query_needs_no_copy_of_its_features(both, monkeypatch, kind):
    data = both[1]
    loss = tr.losses.Multinomial(n_grades=3) if isinstance(kind, Logits) else tr.losses.ListNet()
    bound = loss.on(data.labels, Queries([0, data.n_documents]))
    weights, direction = np.random.default_rng(1).normal(size=(2, kind.n_weights))
    objective = RankingObjective(kind, Features(data.X, Standardization.from_data(data.X)), bound)
    sizes, dense = [], Features.dense
    monkeypatch.setattr(Features, "dense", lambda self, rows: sizes.append(rows.stop - rows.start) or dense(self, rows))

    def everything():
        value, grad = objective.value_and_grad(weights)
        return [value, grad, objective.scores(weights), objective.hessian_product(weights)(direction)]

    whole = everything()
    assert min(sizes) == data.n_documents
    sizes.clear()
    monkeypatch.setattr(expected_gain, "_MAX_BYTES", 100 * 6 * 8)
    for one, other in zip(whole, everything(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)
    assert max(sizes) == 100


def test_a_large_sparse_query_is_multiplied_in_parts(both, monkeypatch):
    data = both[1]
    if not data.is_sparse:
        pytest.skip("about sparse features")
    features = Features(data.X, Standardization.from_data(data.X))
    rows, values = slice(3, data.n_documents), np.random.default_rng(0).normal(size=data.n_documents - 3)
    whole, sizes, filled = features.transposed_times(rows, values), [], Features._filled
    monkeypatch.setattr(scorer_features, "_CHUNK", 7)
    monkeypatch.setattr(
        Features, "_filled", lambda self, part: sizes.append(part.stop - part.start) or filled(self, part)
    )
    np.testing.assert_allclose(features.transposed_times(rows, values), whole, rtol=1e-12)
    assert max(sizes) == 7
    assert sum(sizes) == len(values)


# Prediction in blocks


def test_predictions_come_in_blocks(both, monkeypatch):
    data = both[1]
    calls = []
    times = Features.times
    monkeypatch.setattr(Features, "times", lambda self, rows, w: calls.append(rows) or times(self, rows, w))
    ranker = tr.ExpectedGainRanker("Multinomial", max_iterations=50).fit(data)
    whole, probabilities = ranker.predict(data), ranker.predict_proba(data)
    in_two = lambda X: [slice(0, 9), slice(9, X.shape[0])]  # noqa: E731
    monkeypatch.setattr("toprank.rankers.linear.expected_gain.row_blocks", in_two)
    calls.clear()
    np.testing.assert_allclose(ranker.predict(data), whole, rtol=1e-14)
    np.testing.assert_allclose(ranker.predict_proba(data), probabilities, rtol=1e-13)
    grades = len(ranker.coef_)  # each has weights of its own
    assert sorted(rows.start for rows in calls) == 2 * grades * [0] + 2 * grades * [9]
    assert {rows.stop for rows in calls} == {9, data.n_documents}
    np.testing.assert_allclose(probabilities @ [0.0, 1.0, 3.0], whole, rtol=1e-14)


def test_trees_for_grades_predict_in_blocks(both, monkeypatch):
    data = both[1]
    ranker = tr.TreeRanker("Multinomial", outputs="grades", n_trees=3, threads=1).fit(data)
    whole, probabilities = ranker.predict(data), ranker.predict_proba(data)
    monkeypatch.setattr(tree_rankers, "_ROWS_PER_BLOCK", 7)
    np.testing.assert_allclose(ranker.predict(data), whole, rtol=1e-14)
    np.testing.assert_allclose(ranker.predict_proba(data), probabilities, rtol=1e-14)


def test_a_classifier_predicts_in_blocks(both, monkeypatch):
    from sklearn.linear_model import LogisticRegression

    data = both[0]
    ranker = tr.ExpectedGainRanker(classifier=LogisticRegression(max_iter=500)).fit(data)
    whole = ranker.predict_proba(data)
    monkeypatch.setattr("toprank.rankers.outputs.row_blocks", lambda X, _: [slice(0, 9), slice(9, X.shape[0])])
    np.testing.assert_allclose(ranker.predict_proba(data), whole, rtol=1e-13)


def test_blocks_of_rows_cover_all_and_stay_small():
    for n, d in ((1, 0), (8192, 1), (20_000, 3), (300, 1 << 20)):
        blocks = row_blocks(sparse.csr_matrix((n, d)))
        assert [(b.start, b.stop) for b in blocks] == list(
            zip([0, *(b.stop for b in blocks[:-1])], [b.stop for b in blocks], strict=True)
        )
        assert blocks[-1].stop == n
        assert all((b.stop - b.start) * d * 8 <= 1 << 21 or b.stop - b.start <= 64 for b in blocks)


# Under a limit on memory


def in_a_fresh_process(folder, *work):
    command = [sys.executable, Path(__file__).with_name("limited.py"), str(folder), *work]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("scorer", ["linear", *nightly("expected gain")])
def test_training_and_prediction_fit_in_less_memory_than_the_features(tmp_path, scorer):
    found = in_a_fresh_process(tmp_path, scorer)
    assert found["allowed"] < found["features"]  # a single copy of X, in single precision, would not have fitted
    assert found["copied"] == "MemoryError"
    assert found[scorer] > 0.6


def test_conversion_fits_in_less_memory_than_the_features(tmp_path):
    found = in_a_fresh_process(tmp_path, "convert")
    assert found["allowed"] < found["features"]
    assert found["copied"] == "MemoryError"
    assert found["convert"] == found["documents"]


@pytest.mark.nightly
def test_conversion_of_text_fits_in_less_memory_than_the_features(tmp_path):
    found = in_a_fresh_process(tmp_path, "convert text")
    assert found["allowed"] < found["features"]
    assert found["convert text"] == found["documents"]


def test_trees_take_a_byte_a_value_and_no_copy_of_the_features(tmp_path):
    found = in_a_fresh_process(tmp_path, "trees", "trees of a whole sample")
    assert found["allowed"] < found["features"]
    assert found["copied"] == "MemoryError"
    assert found["trees"] > 0.6
    # Zeros of the sample of 200,000 rows are not held; of the others, values and rows, in lists that double.
    assert found["trees of a whole sample"].startswith(
        "There is too little memory to train trees on 240,000 documents with 200 features: LightGBM needs about "
        f"{200 * 12 * 2**18 / 2**20:,.0f} MiB in addition to the data."
    )
    assert "lightgbm_params={'bin_construct_sample_cnt': 20000}" in found["trees of a whole sample"]


def in_a_container(root, groups, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  700 kB\nSwapFree:  300 kB\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


SECOND = {
    "a/b/memory.max": "max\n", "a/b/memory.current": "10\n", "a/memory.max": "900\n", "a/memory.current": "500\n",
    "a/memory.stat": "anon 1\nactive_file 30\ninactive_file 4\n",
}  # fmt: skip
FIRST = {
    "memory/c/memory.limit_in_bytes": "800\n", "memory/c/memory.usage_in_bytes": "500\n",
    "memory/c/memory.stat": "active_file 7\ntotal_active_file 20\ntotal_inactive_file 1\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "500\n",
}  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("0::/a/b\n", SECOND, 900 - 500 + 34),  # the limit of the group above
        ("5:cpu:/\n4:memory:/c\n0::/\n", FIRST, 800 - 500 + 21),
        ("4:memory:/elsewhere\n", FIRST, 1000 << 10),  # no limit to speak of, so it is the machine's
        ("", {}, 1000 << 10),
    ],
)
def test_the_memory_that_is_left_is_that_of_the_container_or_of_the_machine(tmp_path, monkeypatch, groups, files, left):
    in_a_container(tmp_path, groups, files)
    monkeypatch.setattr(tree_memory, "_ROOT", tmp_path)
    assert tree_memory.memory_left() == left


def test_trees_that_would_end_the_process_are_refused_before(both, monkeypatch):
    data = both[0]
    fits = max(tree_memory.Memory.from_features(data.X))
    monkeypatch.setattr(tree_memory, "memory_left", lambda: fits - 1)
    with pytest.raises(tr.errors.DataError, match=r"too little memory to train trees .* MiB are available"):
        tr.TreeRanker(n_trees=1, threads=1).fit(data)
    monkeypatch.setattr(tree_memory, "memory_left", lambda: fits)
    tr.TreeRanker(n_trees=1, threads=1).fit(data)


def test_a_system_that_starts_no_more_threads_is_worked_on_by_those_there_are(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert each_block(lambda block: 2 * block, list(range(5)), 4) == [0, 2, 4, 6, 8]
