"""Losses that learn from a teacher, losses made of losses, unique and calibrated softmax, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_expit, log_softmax, rel_entr, softmax

import toprank as tr
from support import toprank
from test_losses_yetirank import mixed
from toprank import kernels, losses
from toprank.data.hashes import id_hashes
from toprank.errors import DataError
from toprank.losses import CalibratedSoftmax, Gumbel, Mix, Multicategory, UniqueSoftmax
from toprank.losses.base import BoundLoss, Diagonal, Judgments, Loss, Traits
from toprank.losses.composed import reseeded
from toprank.losses.random_stream import RandomStream

SIZES = (6, 1, 9, 2)
QUERIES = tr.Queries.from_sizes(SIZES)


def drawn(seed=0, scale=1.0):
    """Labels, scores, a teacher's scores and weights of some ragged queries."""
    rng = np.random.default_rng(seed)
    n = QUERIES.n_documents
    return rng.integers(0, 4, n).astype(float), *(scale * rng.normal(size=(2, n))), rng.uniform(0.3, 2, n)


def mean_over_queries(loss_of_query):
    return np.mean([loss_of_query(rows) for rows in QUERIES])


# --- a teacher --------------------------------------------------------------------------------------------------------


def pairs(rows):
    return [(i, j) for i in range(rows.start, rows.stop) for j in range(i + 1, rows.stop)]


def margin_mse(s, t, w):
    def of(rows):
        terms = [w[i] * w[j] * ((s[i] - s[j]) - (t[i] - t[j])) ** 2 for i, j in pairs(rows)]
        return sum(terms) / max(len(terms), 1)

    return mean_over_queries(of)


def soft_logistic(s, t, w, temperature):
    def of(rows):
        terms = []
        for i, j in pairs(rows):
            target, d = expit((t[i] - t[j]) / temperature), s[i] - s[j]
            terms.append(-w[i] * w[j] * (target * log_expit(d) + (1 - target) * log_expit(-d)))
        return sum(terms) / max(len(terms), 1)

    return mean_over_queries(of)


def softmax_kl(s, t, w, temperature):
    def of(rows):
        wanted, model = softmax(t[rows] / temperature), softmax(s[rows] / temperature)
        return temperature**2 * float(np.sum(w[rows] * rel_entr(wanted, model)))

    return mean_over_queries(of)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 0.1, 1.0, 10.0]), weighted=st.booleans())
def test_losses_of_a_teacher_are_what_they_say(seed, scale, weighted):
    labels, s, t, w = drawn(seed, scale)
    weights, w = (w, w) if weighted else (None, np.ones(len(w)))

    def value(loss):
        return loss.on(labels, QUERIES, teacher=t, document_weights=weights).at(s).value

    assert value(losses.MarginMSE()) == pytest.approx(margin_mse(s, t, w), rel=1e-9, abs=1e-300)
    for temperature in (0.7, 1.0, 4.0):
        expected = soft_logistic(s, t, w, temperature)
        assert value(losses.SoftLogistic(temperature)) == pytest.approx(expected, rel=1e-9)
        expected = softmax_kl(s, t, w, temperature)
        assert value(losses.SoftmaxKL(temperature)) == pytest.approx(expected, rel=1e-7, abs=1e-13 * temperature**2)


@pytest.mark.parametrize("loss", [losses.MarginMSE(), losses.SoftLogistic(2.0), losses.SoftmaxKL(3.0)])
def test_the_teacher_up_to_a_constant_for_each_query_is_the_minimum(loss):
    labels, _, t, _ = drawn(3)
    bound = loss.on(labels, QUERIES, teacher=t)
    rng = np.random.default_rng(0)
    best = t / getattr(loss, "temperature", 1.0) if isinstance(loss, losses.SoftLogistic) else t
    least = bound.at(best + QUERIES.broadcast(rng.normal(size=len(QUERIES))))
    assert np.abs(least.grad).max() < 1e-14
    assert all(bound.at(best + 0.1 * rng.normal(size=len(t))).value > least.value for _ in range(20))
    if not isinstance(loss, losses.SoftLogistic):  # whose least is the targets' entropy
        assert abs(least.value) < 1e-14


@pytest.mark.parametrize("loss", [losses.MarginMSE(), losses.SoftLogistic(2.0), losses.SoftmaxKL(3.0)])
def test_a_constant_of_any_size_changes_nothing(loss):
    labels, s, t, _ = drawn(4)
    bound = loss.on(labels, QUERIES, teacher=t)
    near, far = bound.at(s), bound.at(s + 2.0**20)  # rounds the scores to 2⁻³²
    assert far.value == pytest.approx(near.value, rel=1e-8)
    np.testing.assert_allclose(far.grad, near.grad, atol=1e-9)


@pytest.mark.parametrize("name", ["MarginMSE", "SoftLogistic", "SoftmaxKL", "Mix"])
def test_a_loss_without_its_teacher_says_so(name, tmp_path, monkeypatch):
    data = tr.synthetic(n_queries=4, seed=0)
    with pytest.raises(DataError, match=r"learns from a teacher's scores, but the data have none; .*teacher=scores"):
        tr.LinearRanker(name).fit(data)
    monkeypatch.chdir(tmp_path)
    tr.write(data, "train.parquet")
    told = toprank("train", "train.parquet", "--system", "Distilled", "-o", "m.toprank", "-q", status=1).stderr
    assert "name their column by --teacher" in told


def test_temperatures_are_positive_and_shares_between_zero_and_one():
    for name in ("SoftLogistic", "SoftmaxKL", "Gumbel"):
        for wrong in (0.0, -1.0, math.nan, True, "warm"):
            with pytest.raises(DataError, match=f"{name}'s temperature must be a positive number"):
                losses.make(name, temperature=wrong)
    for wrong in (-0.1, 1.1, "half"):
        with pytest.raises(DataError, match="Mix's weight must be a number of at least 0 and at most 1"):
            Mix(weight=wrong)
    with pytest.raises(DataError, match="Gumbel's samples"):
        Gumbel(samples=0)
    for around in (Mix, Gumbel):
        with pytest.raises(DataError, match="Multinomial needs one per grade"):
            around("Multinomial")


@pytest.fixture(scope="module")
def taught():
    data = tr.synthetic(n_queries=80, n_documents=(4, 15), n_features=6, n_grades=4, noise=2.0, seed=1)
    return data.replace(teacher=data.expected_gain())


@pytest.mark.parametrize("kind", ["linear", "trees", "network"])
@pytest.mark.parametrize("loss", ["MarginMSE", "SoftLogistic", "SoftmaxKL"])
def test_students_learn_from_queries_that_nobody_judged(taught, kind, loss):
    unjudged = taught.replace(labels=np.full(taught.n_documents, np.nan))
    ranker = {
        "linear": tr.LinearRanker(loss, l2=1e-4),
        "trees": tr.TreeRanker(loss, n_trees=40, num_leaves=7, min_data_in_leaf=5, threads=1),
        "network": tr.NeuralRanker(
            loss, hidden=(16,), epochs=20, batch_documents=64, learning_rate=0.02, dropout=0.0, device="cpu", threads=1
        ),
    }[kind]
    if kind == "network":
        pytest.importorskip("torch")
    scores = ranker.fit(unjudged).predict(taught)
    assert tr.evaluate(scores, taught.replace(labels=np.round(taught.teacher)), "ndcg@10").mean["ndcg@10"] > 0.9
    some = taught.replace(labels=np.where(np.arange(taught.n_documents) % 3 == 0, np.nan, taught.labels))
    np.testing.assert_array_equal(scores, type(ranker)(**ranker.get_params()).fit(unjudged).predict(taught))
    with pytest.raises(DataError, match="documents are unjudged"):
        type(ranker)(**ranker.get_params() | {"loss": Mix(loss, "ListNet", weight=0.5)}).fit(some)
    for by_grades in (tr.ExpectedGainRanker(loss), tr.TreeRanker(loss, outputs="grades")):
        with pytest.raises(DataError, match="documents are unjudged"):
            by_grades.fit(some)
    if kind == "linear":  # a share of 1 reads no label, and is the loss itself
        alone = tr.LinearRanker(Mix(loss, "ListNet", weight=1.0), l2=1e-4).fit(some)
        np.testing.assert_allclose(alone.predict(taught), scores, atol=1e-4)


def test_a_teacher_goes_where_its_rows_go(taught, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(taught.n_documents)
    data = taught.replace(teacher=rows.astype(float))
    assert data.select([3, 1]).teacher.tolist() == [*rows[slice(*data.queries.offsets[3:5])],
                                                    *rows[slice(*data.queries.offsets[1:3])]]  # fmt: skip
    assert data.filter(rows % 2 == 0).teacher.tolist() == rows[rows % 2 == 0].tolist()
    assert tr.concatenate([data.select([5]), data.select([2])]).equals(data.select([5, 2]))
    assert all(len(part.teacher) == part.n_documents for part in tr.split(data))
    with pytest.raises(DataError, match="Some parts have teacher and others do not"):
        tr.concatenate([data.select([0]), data.select([1]).replace(teacher=None)])
    scattered = np.random.default_rng(0).permutation(data.n_documents)
    shuffled = tr.RankingData(data.X[scattered], qid=data.qid[scattered], teacher=rows[scattered].astype(float))
    assert shuffled.in_source_order(shuffled.teacher).tolist() == scattered.tolist()
    frame = data.to_frame()
    assert frame["teacher"].tolist() == rows.tolist()
    assert tr.RankingData.from_frame(frame.rename(columns={"teacher": "mono"}), teacher="mono").equals(data)
    assert tr.RankingData.from_frame(frame, teacher=False).teacher is None
    for name in ("a.parquet", "a.csv", "a.txt", "a.toprank-data"):
        tr.write(data, name)
        assert tr.read(name).teacher.tolist() == rows.tolist()
    for source in ("a.parquet", "a.txt", "a.toprank-data"):
        assert tr.convert(source, f"b-{source}.toprank-data").teacher.tolist() == rows.tolist()


def test_a_command_trains_on_a_teacher_where_nobody_judged(taught, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unjudged = taught.replace(labels=np.where(np.arange(taught.n_documents) % 3 == 0, -1.0, taught.labels))
    tr.write(unjudged, "train.txt")
    both = ["--set", "first=SoftmaxKL", "--set", "second=SoftmaxKL"]
    toprank("train", "train.txt", "--system", "Distilled", *both, "-o", "m.toprank")
    ranker = tr.load("m.toprank")
    assert ranker.training_["metrics"] == {}
    expected = tr.systems.make("Distilled", first="SoftmaxKL", second="SoftmaxKL").fit(taught)
    np.testing.assert_allclose(ranker.coef_, expected.coef_, rtol=1e-6, atol=1e-9)


def test_a_teacher_is_named_on_the_command_line(taught, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    taught.to_frame().rename(columns={"teacher": "mono"}).to_parquet("train.parquet")
    toprank("train", "train.parquet", "--teacher", "mono", "--system", "distilled", "-o", "m.toprank", "-q")
    ranker = tr.load("m.toprank")
    expected = tr.systems.make("Distilled").fit(taught)
    np.testing.assert_allclose(ranker.predict(taught), expected.predict(taught), rtol=1e-9)
    assert ranker.loss == Mix("SoftmaxKL", "ListNet", weight=1.0)
    assert "mono" not in ranker.feature_names_in_


# --- losses made of losses --------------------------------------------------------------------------------------------


def test_a_mix_is_the_weighted_mean_of_its_losses():
    labels, s, t, w = drawn(7)
    more = {"teacher": t, "document_weights": w, "query_weights": [1.0, 0.0, 2.0, 0.5]}
    first, second = losses.SoftLogistic(2.0), losses.ListNet(alpha=0.5)
    one, two = (loss.on(labels, QUERIES, **more).at(s, curvature=True) for loss in (first, second))
    mix = Mix(first, second, weight=0.3).on(labels, QUERIES, **more).at(s, curvature=True)
    assert mix.value == pytest.approx(0.3 * one.value + 0.7 * two.value, rel=1e-12)
    np.testing.assert_allclose(mix.grad, 0.3 * one.grad + 0.7 * two.grad, atol=1e-15)
    V = np.random.default_rng(0).normal(size=(len(s), 2))
    expected = 0.3 * (one.curvature @ V) + 0.7 * (two.curvature @ V)
    np.testing.assert_allclose(mix.curvature @ V, expected, atol=1e-15)


def gumbel_of(query_id, m, samples, seed=0, draw=0):
    """The noise from its description: YetiRank's words for (seed, draw, id), the sample and the place."""
    step = 0x9E3779B97F4A7C15
    word = int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0])
    key = int(id_hashes(np.array([query_id]))[0]) ^ word
    for number in range(samples):
        start = mixed(key + (number + 1) * step)
        u = [((mixed(start + (j + 1) * step) >> 12) + 0.5) / 2**52 for j in range(m)]
        yield np.array([-math.log(-math.log(one)) for one in u])


def test_gumbel_is_the_mean_of_its_loss_at_noisy_scores():
    labels, s, _, _ = drawn(9)
    ids = np.array(["a", "b", "ccc", "d"])
    loss, inner = Gumbel(losses.ListNet(alpha=0.5), samples=3, temperature=0.8, seed=5), losses.ListNet(alpha=0.5)
    found = loss.on(labels, QUERIES, query_ids=ids).at(s, draw=2)
    value, grad = 0.0, np.zeros(len(s))
    for rows, query_id in zip(QUERIES, ids, strict=True):
        m = rows.stop - rows.start
        one = inner.on(labels[rows], tr.Queries([0, m]))
        for noise in gumbel_of(query_id, m, 3, seed=5, draw=2):
            at = one.at((s[rows] + noise) / 0.8)
            value += at.value / 3 / 4
            grad[rows] += at.grad / 0.8 / 3 / 4
    assert found.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found.grad, grad, rtol=1e-11, atol=1e-15)
    order = [2, 0, 3, 1]  # queries keep their noise wherever they stand
    rows = np.concatenate([np.arange(*QUERIES.offsets[[q, q + 1]]) for q in order])
    moved = loss.on(labels[rows], tr.Queries.from_sizes(np.array(SIZES)[order]), query_ids=ids[order])
    np.testing.assert_allclose(moved.at(s[rows], draw=2).grad, found.grad[rows], rtol=1e-12)


class Growth(Loss):
    """Σ e^s: its gradient is its curvature."""

    traits = Traits(convex=True, smooth=True, shift_invariant=False)

    def bind(self, judgments):
        return BoundGrowth(judgments)


class BoundGrowth(BoundLoss):
    def evaluate_block(self, block, scores, grad, requested):
        grad[:] = np.exp(scores) * block.broadcast(block.scale)
        return block.sum(np.exp(scores)), Diagonal(grad) if requested.curvature else None


def test_a_curvature_may_hold_on_to_the_gradient_that_its_loss_has_filled():
    labels, s, _, _ = drawn(11)
    scale = QUERIES.broadcast(np.full(len(QUERIES), 1.0 / len(QUERIES)))
    _, diagonal = Mix(Growth(), "Squared", weight=0.25).on(labels, QUERIES).derivatives(s)
    np.testing.assert_allclose(diagonal, (0.25 * np.exp(s) + 0.75 * 2.0) * scale)
    grad, diagonal = Gumbel(Growth(), samples=2, temperature=2.0).on(labels, QUERIES).derivatives(s)
    np.testing.assert_allclose(diagonal, grad / 2.0)


def test_noisy_orders_come_as_often_as_plackett_and_luce_say():
    scores, draws = np.array([0.7, -0.4, 0.1]), 100_000
    queries = tr.Queries.from_sizes([3] * draws)
    noise = np.empty(3 * draws)
    kernels.gumbel_noise(
        queries.offsets, RandomStream.from_judgments(Judgments(np.zeros(3 * draws), queries), 0).keys, 0, noise
    )
    first_two = np.argsort(-(noise.reshape(-1, 3) + scores), axis=1)[:, :2]
    p = softmax(scores)
    for a in range(3):
        for b in set(range(3)) - {a}:
            chance = p[a] * p[b] / (1 - p[a])
            share = np.mean((first_two == [a, b]).all(axis=1))
            assert abs(share - chance) < 4 * math.sqrt(chance * (1 - chance) / draws)


def test_what_draws_inside_draws_apart_from_the_samples():
    """Orders go by s + Gumbel + logistic noise; of the same numbers, the two would add up to a wider spread."""
    draws, s = 50_000, np.array([4.0, 0.0, 0.0])
    labels, queries = np.tile([1.0, 0.0, 0.0], draws), tr.Queries.from_sizes([3] * draws)
    loss = Gumbel(losses.YetiRank(permutations=1), samples=1)
    grad = loss.on(labels, queries).at(np.tile(s, draws)).grad.reshape(draws, 3)
    middle = float(np.mean((grad != 0).all(axis=1)))  # in between, a document is the neighbor of both others
    rng, size = np.random.default_rng(0), (1_000_000, 3)
    first, second, third = (s + rng.gumbel(size=size) + rng.logistic(size=size)).T
    chance = float(np.mean((np.minimum(second, third) < first) & (first < np.maximum(second, third))))
    assert abs(middle - chance) < 4.5 * math.sqrt(chance * (1 - chance) / draws)


def test_each_round_has_noise_of_its_own():
    labels, s, _, _ = drawn(11)
    bound = Gumbel("ListNet").on(labels, QUERIES)
    assert bound.at(s, draw=0).value == bound.at(s).value == bound.resampled(0).at(s).value
    assert len({bound.at(s, draw=draw).value for draw in range(5)}) == 5
    inner = Gumbel(losses.YetiRank(), samples=1).on(labels, QUERIES)  # what is inside draws anew, too
    assert inner.resampled(3).inner.chance.draw == 3
    with pytest.raises(DataError, match="draw must be a whole number of at least 0"):
        bound.at(s, draw=-1)
    with pytest.raises(DataError, match="draw"):
        losses.ListNet().on(labels, QUERIES).at(s, draw="first")


def test_epochs_reseed_whatever_is_inside():
    plain = Mix(losses.SoftmaxKL(), losses.ListNet())
    assert reseeded(plain, (1, 2)) == plain
    loss = Mix(Gumbel(losses.YetiRank(seed=4), seed=3), losses.ListMLE(ties="random", seed=9))
    once, again, other = (reseeded(loss, seeds) for seeds in ((1, 2), (1, 2), (1, 3)))
    assert once == again != other
    assert len({once.first.seed, once.first.loss.seed, once.second.seed, 3, 4, 9}) == 6


def test_losses_in_losses_go_through_a_model_file(taught, tmp_path):
    loss = Mix(Gumbel("ListMLE", samples=2), losses.SoftmaxKL(2.0), weight=0.25)
    tr.LinearRanker(loss).fit(taught).save(tmp_path / "m.toprank")
    assert tr.load(tmp_path / "m.toprank").loss == loss
    spec = losses.to_spec(loss)
    assert spec["share"] == 0.25  # files keep the first spelling of the parameter
    assert "weight" not in spec
    assert losses.from_spec(spec) == loss
    with pytest.raises(DataError):
        losses.from_spec({"name": "Mix", "first": {"alpha": 1.0}})
    with pytest.raises(DataError):
        losses.from_spec({"name": "ListNet", "alpha": {"name": "ListNet"}})
    with pytest.raises(DataError, match="A loss has no name"):
        losses.from_spec({"name": "Mix", "first": {"gain": ["a"]}})


def test_partitions_refuse_a_part_that_draws_by_rows():
    from toprank.cluster import work
    from toprank.cluster.dataset import check_loss

    data = tr.synthetic(n_queries=3, seed=0)
    facts = [work.summarize(work.WorkerRows(data, "part 0", None))]
    check_loss(Gumbel("ListNet"), facts)
    with pytest.raises(DataError, match="XENDCG with gamma='uniform' uses random numbers by global document index"):
        check_loss(Mix(Gumbel("XENDCG"), "ListNet"), facts)


# --- what peers have --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 1.0, 30.0, 2000.0]),
    kind=st.sampled_from(["graded", "real"]),
)
def test_unique_softmax_is_a_softmax_against_those_below(seed, scale, kind):
    labels, s, _, w = drawn(seed, scale)
    if kind == "real":
        labels = np.random.default_rng(seed).permutation(np.arange(len(labels)) % 7 / 3)
    value, grad = 0.0, np.zeros(len(s))
    for rows in QUERIES:
        for i in range(rows.start, rows.stop):
            below = [j for j in range(rows.start, rows.stop) if labels[j] < labels[i]]
            term, members = w[i] * (2 ** labels[i] - 1) / 4, [i, *below]
            value -= term * log_softmax(s[members])[0]
            np.add.at(grad, members, term * softmax(s[members]))
            grad[i] -= term
    found = UniqueSoftmax().on(labels, QUERIES, document_weights=w).at(s)
    assert found.value == pytest.approx(value, rel=1e-11, abs=1e-13)
    np.testing.assert_allclose(found.grad, grad, rtol=1e-9, atol=1e-13)


def test_unique_softmax_and_the_others_agree_where_they_must():
    s = np.array([0.3, -0.2, 0.9])
    one_relevant = UniqueSoftmax(gain="linear").on([1, 0, 0], tr.Queries([0, 3])).at(s, curvature=True)
    all_compete = Multicategory(gain="linear").on([1, 0, 0], tr.Queries([0, 3])).at(s, curvature=True)
    assert one_relevant.value == pytest.approx(all_compete.value, rel=1e-14)
    np.testing.assert_allclose(one_relevant.curvature @ np.eye(3), all_compete.curvature @ np.eye(3), atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), anchor=st.sampled_from([0.01, 1.0, 30.0]))
def test_calibrated_softmax_is_softmax_with_one_more_document(seed, anchor):
    labels, s, _, w = drawn(seed, 3.0)
    found = CalibratedSoftmax(anchor, gain="linear").on(labels, QUERIES, document_weights=w).at(s, curvature=True)
    ends = QUERIES.offsets[1:]
    longer = tr.Queries.from_sizes(np.array(SIZES) + 1)
    anchored = Multicategory(gain=None).on(np.insert(labels * w, ends, anchor), longer)
    expected = anchored.at(np.insert(s, ends, 0.0), curvature=True)
    own = np.delete(np.arange(longer.n_documents), longer.offsets[1:] - 1)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(found.grad, expected.grad[own], atol=1e-13)
    V = np.random.default_rng(seed).normal(size=len(s))
    padded = np.zeros(longer.n_documents)
    padded[own] = V
    np.testing.assert_allclose(found.curvature @ V, (expected.curvature @ padded)[own], atol=1e-12)


def test_calibrated_scores_are_logarithms_of_expected_gains():
    """Two kinds of documents, whose gains are drawn: a linear ranker on their indicator finds both means."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 40_000)
    gains = rng.poisson(np.array([0.5, 2.0])[kind]).astype(float)
    data = tr.RankingData(np.eye(2)[kind], gains, queries=tr.Queries.from_sizes([10] * 4000))
    ranker = tr.LinearRanker(CalibratedSoftmax(anchor=0.7, gain="linear"), l2=1e-9).fit(data)
    found = 0.7 * np.exp(ranker.predict(np.eye(2)))
    for mean, estimate in zip((0.5, 2.0), found, strict=True):
        assert abs(estimate - mean) < 4 * math.sqrt(mean / 20_000)


def test_anchors_are_positive():
    with pytest.raises(DataError, match="CalibratedSoftmax's anchor must be a positive number"):
        CalibratedSoftmax(anchor=0.0)
