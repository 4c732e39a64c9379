"""`auto`: what it tries, how it chooses, that it keeps to its time, and what it says."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import toprank as tr
from toprank import compute
from toprank.cli.commands import app
from toprank.display import progress
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation.scores import BoundMetric
from toprank.model_selection import automatic, search
from toprank.model_selection.automatic import _refit_trial
from toprank.model_selection.decision import MAX_MEMBERS, decide
from toprank.model_selection.default import BLENDED_SYSTEMS
from toprank.model_selection.portfolio import PortfolioEntry, PortfolioSearch, portfolio
from toprank.model_selection.search import Trial
from toprank.model_selection.weights import plausibility
from toprank.significance import Interval, t_interval


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=48, n_documents=(4, 12), n_features=4, n_grades=3, noise=0.5, seed=0)


@pytest.fixture(scope="module")
def parts(data):
    return tr.split(data, (0.6, 0.4))


def entries():
    trees = {"n_trees": 30, "num_leaves": 4, "min_data_in_leaf": 5, "threads": 1}
    return [
        PortfolioEntry("ListNet", tr.LinearRanker("ListNet", l2=(1.0, 0.01)), 1.0),
        PortfolioEntry("LambdaMART", tr.TreeRanker(**trees), 1.0),
        PortfolioEntry("MART", tr.TreeRanker("Squared", query_fraction=0.5, **trees), 1.0),
    ]


@pytest.fixture
def short(monkeypatch):
    """A portfolio of three quick entries, which tests may change."""
    made = entries()
    monkeypatch.setattr(automatic, "portfolio", lambda *_: made)
    return made


def judged(choice):
    """The rows of the trials that there was a choice among."""
    return [row for row in choice.trials if row["value"] is not None]


def names(choice, state):
    return tuple(row["name"] for row in choice.trials if row["state"] == state)


class Stopped(tr.LinearRanker):
    def fit(self, X, y=None, qid=None, *, valid=None):
        raise KeyboardInterrupt


class HalfDone(tr.LinearRanker):
    def fit(self, X, y=None, qid=None, *, valid=None):
        super().fit(X, y, qid, valid=valid)
        self.interrupted_ = True
        return self


class Fixed(tr.LinearRanker):
    """A fitted ranker whose scores are given, for every query alike."""

    def __init__(self, scores=(0.0,)):
        self.scores = scores

    @classmethod
    def on(cls, data, scores):
        ranker = cls(tuple(scores))
        ranker.n_features_in_, ranker.training_ = data.n_features, {}
        return ranker

    def predict(self, X, qid=None):
        return np.tile(self.scores, X.n_documents // len(self.scores)).astype(float)


# ---- the choice ----


def test_the_whole_portfolio(parts):
    train, valid = parts
    choice = tr.auto(train, valid, time_budget=600, threads=1)
    tried = {entry.name for entry in portfolio(train, "ndcg@10", "standard", 0, 1)}
    singles = [row for row in judged(choice) if row["name"] != "blend"]
    assert {row["name"] for row in singles} == tried
    assert (len(choice.trials), choice.timed_out, choice.n_held_out) == (len(tried) + 1, False, None)
    assert choice.value == tr.evaluate(choice.ranker.predict(valid), valid).mean["ndcg@10"]
    assert [row["value"] for row in singles] == sorted((row["value"] for row in singles), reverse=True)
    assert choice.name == f"blend of {len(choice.ranker.rankers_)}"
    # the weights, from nothing but the intervals that the table shows
    half = np.array([(row["difference_high"] - row["difference_low"]) / 2 for row in singles])
    gap = np.array([-row["difference"] for row in singles])
    worth = np.where(half > 0, np.clip(1 - gap / np.where(half > 0, half, 1), 0, 1), 1.0)
    worth[MAX_MEMBERS:] = 0
    weights = np.array([row["weight"] for row in singles])
    is_default = np.isin([row["name"] for row in singles], BLENDED_SYSTEMS)
    own = weights - 0.5 * worth / worth.sum()  # the half of the default system
    np.testing.assert_allclose(own[~is_default], 0.0, atol=1e-5)
    assert own.sum() == pytest.approx(0.5)
    np.testing.assert_allclose(np.sort(choice.ranker.weights_), np.sort(weights[weights > 0]))
    shown = str(choice)
    assert all(name in shown for name in tried)
    assert "same data, seed and threads give the same model" in " ".join(shown.split())


def test_names_are_different_and_the_loss_follows_the_metric(data):
    names = [entry.name for entry in portfolio(data, "ndcg@10", "standard", 0, 1)]
    assert len(set(names)) == len(names)

    def metric_of_lambdamart(metric):
        entry = next(one for one in portfolio(data, metric, "standard", 0, 1) if one.name == "LambdaMART-all-pairs")
        assert entry.ranker.metric == metric
        return entry.ranker.loss.metric

    found = {name: metric_of_lambdamart(name) for name in ("map", "err@10", "mrr", "ndcg@5", "owa")}
    assert found == {"map": "ap", "err@10": "err", "mrr": "rr", "ndcg@5": "ndcg", "owa": "ndcg"}


def test_trees_grow_with_the_data():
    def leaves(n):
        rows = tr.RankingData(np.zeros((n, 1), dtype=np.float32), np.arange(n) % 2, queries=tr.Queries([0, n]))
        return next(e for e in portfolio(rows, "ndcg@10", "standard", 0, 1) if e.name == "MART").ranker.num_leaves

    assert leaves(1_000) < leaves(50_000) < leaves(300_000)


def test_the_same_seed_gives_the_same_model(data, monkeypatch):
    runs = []
    for seed in (0, 0, 1):
        monkeypatch.setattr(automatic, "portfolio", lambda *_: entries())
        runs.append(tr.auto(data, seed=seed, time_budget=600))
    assert runs[0].ranker.predict(data).tobytes() == runs[1].ranker.predict(data).tobytes()
    assert runs[0].summary == runs[1].summary
    # other queries were held out
    assert [row["value"] for row in judged(runs[2])] != [row["value"] for row in judged(runs[0])]


def test_held_out_queries_and_training_again(data, short):
    choice = tr.auto(data, blend=False, time_budget=600, seed=3)
    learned, held_out = tr.split(data, (0.75, 0.25), seed=3)
    assert choice.n_held_out == held_out.n_queries == 12
    assert choice.refitted
    assert choice.ranker.training_["queries"] == data.n_queries
    best = next(entry for entry in entries() if entry.name == choice.name).ranker.fit(learned, valid=held_out)
    assert choice.value == pytest.approx(tr.evaluate(best.predict(held_out), held_out).mean["ndcg@10"])
    rounds = () if best.rounds is None else (best.best_iteration_,)
    again = _refit_trial(Trial("", fitted=best, rounds=rounds), data)
    np.testing.assert_array_equal(choice.ranker.predict(data), again.predict(data))
    assert "12 queries of 48, sampled with seed 3, were held out" in choice.summary
    assert "refitted on all 48 queries" in choice.summary


def test_a_blend_is_trained_again_too(data, short):
    choice = tr.auto(data, time_budget=600)
    if not isinstance(choice.ranker, tr.BlendRanker):
        pytest.fail("these data should leave the choice open")
    assert all(member.training_["queries"] == data.n_queries for member in choice.ranker.rankers_)
    trees = [member for member in choice.ranker.rankers_ if isinstance(member, tr.TreeRanker)]
    assert trees
    assert all(member.best_iteration_ == member.n_trees for member in trees)


def test_given_validation_data_are_never_trained_on(parts, short):
    train, valid = parts
    choice = tr.auto(train, valid, time_budget=600)
    assert not choice.refitted
    assert choice.ranker.training_["fingerprint"] == train.fingerprint
    assert choice.ranker.training_["valid"] == {"ndcg@10": choice.value, "convention": "standard"}


def test_the_answer_can_be_saved(parts, short, tmp_path):
    train, valid = parts
    choice = tr.auto(train, valid, time_budget=600)
    choice.ranker.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.predict(valid).tobytes() == choice.ranker.predict(valid).tobytes()
    assert back.training_["auto"]["summary"] == choice.summary


def test_less_is_better_for_error_measures(parts, short):
    choice = tr.auto(*parts, metric="owa", time_budget=600, blend=False)
    values = [row["value"] for row in judged(choice)]
    assert values == sorted(values)
    assert choice.value == values[0]
    assert choice.name == judged(choice)[0]["name"]


# ---- statistics ----


def queries_of_three(n):
    """n queries of three documents, the first of which is relevant."""
    return tr.RankingData(np.zeros((3 * n, 1)), np.tile([1, 0, 0], n), queries=tr.Queries.from_sizes([3] * n))


def trial(name, values, ranker=None):
    return Trial(name, value=float(np.mean(values)), values=np.asarray(values, dtype=float), fitted=ranker)


def test_one_that_is_clearly_better_is_taken_alone():
    judge = BoundMetric(queries_of_three(6), "mrr")
    good, bad = trial("good", [1, 0.9, 1, 0.8, 1, 0.9]), trial("bad", [0.5, 0.3, 0.4, 0.2, 0.5, 0.3])
    decision = decide([good, bad], judge, blend=True)
    assert [one.name for one in decision.order] == ["good", "bad"]
    assert [one.name for one in decision.members] == ["good"]
    assert decision.blend is None
    assert tuple(decision.intervals[1]) == tuple(t_interval(bad.values, good.values))


def test_a_blend_that_is_worse_than_its_best_member_is_not_taken():
    data = queries_of_three(5)
    judge = BoundMetric(data, "mrr")
    a, b = Fixed.on(data, [1.0, 3.0, 0.9]), Fixed.on(data, [1.0, 0.9, 3.0])  # both second; their mean is third
    tried = [trial("a", judge.per_query(a.predict(data)), a), trial("b", [0.625, 0.375, 0.5, 0.5, 0.5], b)]
    decision = decide(tried, judge, blend=True)
    assert decision.weights == [0.5, 0.5]
    assert decision.blend_value == pytest.approx(1 / 3)
    assert not decision.blended
    assert decision.ranker is a


def test_a_blend_that_is_better_is_taken():
    data = queries_of_three(5)
    judge = BoundMetric(data, "mrr")
    a, b = Fixed.on(data, [2.0, 3.0, 0.0]), Fixed.on(data, [2.0, 0.0, 3.0])  # both second; their mean is first
    tried = [trial("a", judge.per_query(a.predict(data)), a), trial("b", [0.625, 0.375, 0.5, 0.5, 0.5], b)]
    decision = decide(tried, judge, blend=True)
    assert decision.blended
    assert decision.values.tolist() == [1.0] * 5
    assert not decide(tried, judge, blend=False).blended


def test_the_best_twelve_of_those_that_are_level_are_members():
    judge, rng = BoundMetric(queries_of_three(8), "mrr"), np.random.default_rng(0)
    tried = sorted((trial(f"t{i}", rng.random(8)) for i in range(40)), key=lambda one: -one.value)
    decision = decide(tried, judge, blend=False)
    level = [tried[0].name]
    level += [one.name for one, seen in zip(tried, decision.intervals, strict=True) if seen.low < 0 < seen.high]
    assert len(level) > 12
    assert [one.name for one in decision.members] == level[:12]
    assert sum(decision.weights) == pytest.approx(1.0)


def test_one_query_tells_nothing():
    judge = BoundMetric(queries_of_three(1), "mrr")
    tried = [trial(name, [value], Fixed.on(judge.data, [1, 0, 0])) for name, value in (("a", 1.0), ("b", 0.1))]
    assert decide(tried, judge, blend=True).weights == [0.5, 0.5]


@pytest.mark.parametrize(
    ("low", "high", "sign", "wanted"),
    [(0, 0, 1, 1), (-0.2, 0.2, 1, 1), (-0.3, 0.1, 1, 0.5), (-0.3, -0.1, 1, 0), (-0.1, 0.3, -1, 0.5), (-1, -1, 1, 0)],
)
def test_the_weight_falls_with_the_evidence(low, high, sign, wanted):
    assert plausibility(Interval((low + high) / 2, low, high, 0.95, 9, ""), sign) == pytest.approx(wanted)


# ---- time and interrupts ----


class FakeTime:
    """A clock that only moves when a fit says so."""

    def __init__(self):
        self.now = 0.0

    @classmethod
    def instead_of_the_machines(cls, monkeypatch):
        clock = cls()
        for module in (search, compute):
            monkeypatch.setattr(module, "time", clock)
        return clock

    def perf_counter(self):
        return self.now


def slow(name, seconds, clock, in_rounds=False, work=1.0):
    class Slow(tr.LinearRanker):
        rounds = tr.TreeRanker.rounds if in_rounds else None
        best_iteration_ = 1

        def fit(self, X, y=None, qid=None, *, valid=None):
            clock.now += seconds
            return super().fit(X, y, qid, valid=valid)

        def set_params(self, **options):
            options.pop("callbacks", None)
            return super().set_params(**options)

    return PortfolioEntry(name, Slow(), work)


def test_what_does_not_fit_is_left_out(parts, monkeypatch):
    clock = FakeTime.instead_of_the_machines(monkeypatch)
    made = [
        slow("a", 5, clock),
        slow("b", 4, clock),
        slow("too long", 8, clock, work=2.0),  # two times 4 s are expected, 3 s are left
        slow("quick", 1, clock, work=0.25),
        slow("late", 4, clock),
        slow("trees", 0.9, clock, in_rounds=True),
        slow("more trees", 2, clock, in_rounds=True, work=2.0),  # cut before its first step
    ]
    monkeypatch.setattr(automatic, "portfolio", lambda *_: made)
    choice = tr.auto(*parts, time_budget=12)
    assert names(choice, "not tried") == ("too long", "late", "more trees")
    assert choice.timed_out
    assert {row["name"] for row in judged(choice)} - {"blend"} == {"a", "b", "quick", "trees"}
    assert "Not tried for lack of time: too long, late, more trees." in choice.summary
    assert "The time budget of 12 s was too short" in choice.summary


def test_the_first_is_fitted_whatever_it_takes(parts, monkeypatch):
    clock = FakeTime.instead_of_the_machines(monkeypatch)
    monkeypatch.setattr(automatic, "portfolio", lambda *_: [slow("a", 99, clock), slow("b", 1, clock)])
    choice = tr.auto(*parts, time_budget=1)
    assert choice.name == "a"
    assert names(choice, "not tried") == ("b",)
    assert "One candidate was tried" in choice.summary


def test_there_is_no_training_again_without_time(data, monkeypatch):
    clock = FakeTime.instead_of_the_machines(monkeypatch)
    monkeypatch.setattr(automatic, "portfolio", lambda *_: [slow("a", 6, clock)])
    choice = tr.auto(data, time_budget=10)
    assert not choice.refitted
    assert choice.timed_out
    assert choice.ranker.training_["queries"] == 36
    assert "not refitted on all the data for lack of time" in choice.summary


def test_trees_are_stopped_when_their_time_is_over(parts, monkeypatch):
    long = tr.TreeRanker("Squared", n_trees=10**6, early_stopping=None, learning_rate=1e-4, threads=1)
    made = [entries()[0], PortfolioEntry("endless", long, 1.0), *entries()[1:]]
    monkeypatch.setattr(automatic, "portfolio", lambda *_: made)
    choice = tr.auto(*parts, time_budget=1.0)
    row = next(row for row in judged(choice) if row["name"] == "endless")
    assert row["state"] == "cut short"
    assert choice.timed_out
    assert 1 <= long.best_iteration_ < 10**6
    assert long.callbacks == ()
    assert "Stopped early for lack of time: endless" in choice.summary


def test_the_last_round_is_not_cut_short(parts, monkeypatch):
    clock = FakeTime.instead_of_the_machines(monkeypatch)
    train, valid = parts

    def rounds(seconds):
        clock.now = 0.0
        ranker = tr.TreeRanker(n_trees=5, num_leaves=3, min_data_in_leaf=2, threads=1, early_stopping=None)
        ranker.callbacks = (lambda now: setattr(clock, "now", float(now.number)),)
        with compute.TimeLimit(seconds) as limit:
            ranker.fit(train, valid=valid)
        return ranker.best_iteration_, limit.passed

    assert [rounds(2.5), rounds(4.5), rounds(9.0)] == [(3, True), (5, False), (5, False)]


@pytest.mark.parametrize("stopper", [Stopped, HalfDone])
def test_an_interrupt_keeps_the_best_so_far(data, short, stopper):
    short.insert(1, PortfolioEntry("stopper", stopper(), 1.0))
    choice = tr.auto(data, time_budget=600)
    assert choice.interrupted
    assert not choice.refitted
    kept = {"ListNet"} | ({"stopper"} if stopper is HalfDone else set())
    assert {row["name"] for row in judged(choice)} - {"blend"} == kept
    assert "interrupted" in choice.summary
    assert "same model" not in choice.summary


def test_an_interrupt_before_anything_is_there(data, short):
    short.insert(0, PortfolioEntry("stopper", Stopped(), 1.0))
    with pytest.raises(KeyboardInterrupt):
        tr.auto(data, time_budget=600)


def test_an_interrupt_while_training_again(data, short, monkeypatch):
    monkeypatch.setattr(automatic, "refit_on_all", lambda *_: Stopped().fit(None))
    choice = tr.auto(data, time_budget=600)
    assert choice.interrupted
    assert not choice.refitted
    assert "The refit on all the data was interrupted" in choice.summary
    assert "same model" not in choice.summary
    assert np.isfinite(choice.ranker.predict(data)).all()


# ---- data that cannot be learned from ----


def with_labels(labels, sizes):
    sizes = np.asarray(sizes)
    X = np.random.default_rng(0).normal(size=(sizes.sum(), 3))
    return tr.RankingData(X, labels, queries=tr.Queries.from_sizes(sizes))


@pytest.mark.parametrize(
    ("labels", "sizes", "words"),
    [
        (np.ones(100), [5] * 20, "same label"),
        (np.repeat(np.arange(20) % 2, 5), [5] * 20, "same label"),
        (np.full(100, -1.0), [5] * 20, "unjudged"),
        (np.where(np.arange(100) < 1, np.nan, 1.0), [5] * 20, "unjudged"),
    ],
)
def test_impossible_data_are_refused_in_a_sentence(labels, sizes, words):
    with pytest.raises(DataError, match=words):
        tr.auto(with_labels(labels, sizes))


def test_what_cannot_be_judged_or_compared(parts, short):
    train, valid = parts
    with pytest.raises(DataError, match="documents of each query in the valid data have the same label"):
        tr.auto(train, valid.replace(labels=np.zeros(valid.n_documents)))
    with pytest.raises(DataError, match="validation data have 2 features, but the training data have 4"):
        tr.auto(train, valid.replace(X=valid.X[:, :2], feature_names=["a", "b"]))
    for wrong in ((train.X, None), (train, valid.X)):
        with pytest.raises(DataError, match="must be a RankingData"):
            tr.auto(*wrong)
    for time_budget in (0, -1.0, math.nan, "long", True):
        with pytest.raises(DataError, match="time_budget must be"):
            tr.auto(train, valid, time_budget=time_budget)
    with pytest.raises(UnknownNameError, match="ndcg@10"):
        tr.auto(train, valid, metric="ncdg@10")
    with pytest.raises(UnknownNameError, match="standard"):
        tr.auto(train, valid, convention="standrad")


def test_few_queries_with_validation_data_are_enough(parts, short):
    train, valid = parts
    choice = tr.auto(train.select([0, 1, 2]), valid.select([0]), time_budget=600)
    assert "evaluated on 1 query" in choice.summary
    assert "A single query has no interval" in choice.summary
    assert "Half of the weight is reserved for the default system (ListNet, LambdaMART)" in " ".join(
        choice.summary.split()
    )
    assert "inf" not in choice.summary
    assert "much of the order is luck" in choice.summary
    assert json.dumps(choice.to_dict(), allow_nan=False)


def test_candidates_that_do_not_go_with_the_labels_are_named(parts, short):
    halves = [part.replace(labels=part.labels / 2) for part in parts]
    short.append(PortfolioEntry("McRank", tr.TreeRanker("Multinomial", outputs="grades", n_trees=3), 3.0))
    choice = tr.auto(*halves, time_budget=600)
    assert names(choice, "refused") == ("McRank",)
    assert "McRank does not support these data" in choice.summary
    short[:] = [short[-1]]
    with pytest.raises(DataError, match="No candidate of the portfolio"):
        tr.auto(*halves, time_budget=600)


@pytest.mark.parametrize(
    ("label", "refused"), [(0.5, {"McRank", "LambdaMART-lightgbm"}), (40, {"LambdaMART-lightgbm", "XE-NDCG-lightgbm"})]
)
def test_a_label_that_only_a_held_out_query_has(label, refused):
    data = tr.synthetic(n_queries=30, n_documents=(3, 10), n_features=4, seed=0)
    _, held_out = tr.split(data, (0.75, 0.25), seed=0)
    labels = data.labels.copy()
    labels[np.flatnonzero(np.isin(data.qid, held_out.qids))[0]] = label
    odd = data.replace(labels=labels)
    choice = tr.auto(odd, time_budget=600, threads=1)
    assert refused <= set(names(choice, "refused"))
    assert all(f"{name} does not support these data" in choice.summary for name in names(choice, "refused"))
    assert not refused & {row["name"] for row in judged(choice)}
    assert choice.refitted
    assert choice.ranker.training_["queries"] == 30


def test_a_choice_that_cannot_be_trained_again_is_kept(data, short, monkeypatch):
    class Refusing(tr.LinearRanker):
        def fit(self, X, y=None, qid=None, *, valid=None):
            raise DataError("No.")

    monkeypatch.setattr(automatic, "refit_on_all", lambda *_: Refusing().fit(None))
    choice = tr.auto(data, time_budget=600)
    assert not choice.refitted
    assert not choice.interrupted
    assert "The refit on all the data failed, so the model of the search is kept: No." in choice.summary
    assert np.isfinite(choice.ranker.predict(data)).all()


def test_a_metric_that_cannot_tell_orders_apart_is_refused(parts, short):
    train, valid = (part.replace(labels=np.where(part.labels > 1, 0.3, 0.0)) for part in parts)
    with pytest.raises(DataError, match="map has the same value for the best and the worst order"):
        tr.auto(train, valid, metric="map")


def test_candidates_that_are_all_alike_are_not_blended(parts, short):
    train, valid = (part.replace(X=np.repeat(part.labels[:, None], 4, axis=1)) for part in parts)
    choice = tr.auto(train, valid, time_budget=600)
    assert choice.value == tr.evaluate(valid.labels, valid).mean["ndcg@10"]
    assert choice.name == "ListNet"
    assert "All 3 candidates have the same value on every one of these queries" in choice.summary
    assert "nothing is blended" in choice.summary


@pytest.mark.parametrize("seed", [-1, "a", 1.5, True, None, 2**31])
def test_a_seed_that_is_none_is_refused(data, seed):
    with pytest.raises(DataError, match="seed must be a whole number"):
        tr.auto(data, seed=seed)


def test_numbers_of_numpy_are_numbers(data, short):
    choice = tr.auto(data, seed=np.int64(3), time_budget=np.float32(600))
    assert "sampled with seed 3" in choice.summary


# ---- command line ----


def invoke(*arguments, status=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_the_command_saves_the_best_so_far_when_interrupted(data, short, tmp_path):
    tr.write(data, tmp_path / "d.txt")
    short[:] = [short[0], PortfolioEntry("stopper", Stopped(), 1.0)]
    paths = (tmp_path / "d.txt", "-o", tmp_path / "m.toprank")
    result = invoke("train", *paths, "--system", "AUTO", "--time-budget", 600, status=130)
    assert f"Interrupted: {tmp_path / 'm.toprank'} is the best so far, but the training is incomplete." in result.stderr
    assert np.isfinite(tr.load(tmp_path / "m.toprank").predict(tr.read(tmp_path / "d.txt"))).all()
    assert "ListNet" in result.stdout


def test_the_command_says_that_training_again_was_interrupted(data, short, monkeypatch, tmp_path):
    tr.write(data, tmp_path / "d.txt")
    monkeypatch.setattr(automatic, "refit_on_all", lambda *_: Stopped().fit(None))
    paths = (tmp_path / "d.txt", "-o", tmp_path / "m.toprank")
    result = invoke("train", *paths, "--system", "auto", "--time-budget", 600, status=130)
    assert f"Interrupted: {tmp_path / 'm.toprank'} is the best so far, but the training is incomplete." in result.stderr
    assert np.isfinite(tr.load(tmp_path / "m.toprank").predict(tr.read(tmp_path / "d.txt"))).all()


def test_the_command_tells_the_story(parts, short, tmp_path):
    for name, part in zip(("train", "vali"), parts, strict=True):
        tr.write(part, tmp_path / f"{name}.txt")
    paths = (tmp_path / "train.txt", "--valid", tmp_path / "vali.txt", "-o", tmp_path / "m.toprank")
    options = ("--system", "auto", "--no-blend", "--metric", "map", "--time-budget", 600, "--json")
    answer = json.loads(invoke("train", *paths, *options).stdout)
    direct = tr.auto(*parts, metric="map", time_budget=600, blend=False)
    assert answer["summary"] == direct.summary == answer["training"]["auto"]["summary"]
    assert answer["name"] == direct.name
    assert [row["value"] for row in answer["trials"]] == [row["value"] for row in direct.trials]
    assert answer["training"]["system"] == "auto"
    assert answer["training"]["metrics"].keys() == {"map"}


# What is held out by time, and what is said unasked


def dated(data):
    days = np.datetime64("2024-01-01") + np.random.default_rng(0).permutation(data.n_queries)
    return data.replace(metadata={"day": days})


def test_the_latest_queries_are_held_out_by_time(data, short, monkeypatch):
    seen, run = [], PortfolioSearch.run

    def noted(search):
        seen.extend(search.judge.division.rounds)
        return run(search)

    monkeypatch.setattr(PortfolioSearch, "run", noted)
    choice = tr.auto(dated(data), time_column="day", time_budget=60, seed=7)
    [(learned, judged, _)] = seen
    assert learned.metadata["day"].max() < judged.metadata["day"].min()
    assert (learned.n_queries, judged.n_queries) == (36, 12)
    assert choice.n_held_out == 12
    assert "12 queries of 48, the latest by 'day', were held out for the selection" in choice.summary
    assert choice.refitted  # the latest queries are learned from in the end


def test_time_is_asked_for_where_something_is_held_out(data, parts, short, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"omit one of the two: valid= or time_column=\.$"):
        tr.auto(*parts, time_column="day")
    with pytest.raises(DataError, match="have no metadata column 'day' to split by"):
        tr.auto(data, time_column="day")
    monkeypatch.chdir(tmp_path)
    tr.write(dated(data), "log.csv")
    command = ["train", "log.csv", "-o", "m.toprank", "--time-column", "day"]
    done = CliRunner().invoke(app, [*command, "--system", "auto", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "the latest by 'day'" in " ".join(done.output.split())
    assert "day" not in tr.load("m.toprank").feature_names_in_.tolist()
    assert CliRunner().invoke(app, [*command, "--system", "ListNet"]).exit_code == 2
    assert CliRunner().invoke(app, [*command, "--system", "auto", "--valid", "log.csv"]).exit_code == 2


def test_a_search_that_takes_long_speaks_unasked(parts, short, monkeypatch, capsys):
    monkeypatch.setattr(automatic, "SILENCE", 0.0)  # every search takes long
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    tr.auto(*parts, time_budget=60)
    said = capsys.readouterr().err
    assert said.count("Trying systems for about 60 s …\n") <= 1
    assert [line.split()[0] for line in said.splitlines() if "ndcg@10" in line] == ["ListNet", "LambdaMART", "MART"]
    tr.auto(*parts, time_budget=60, verbose=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(automatic, "SILENCE", 1e9)  # none does
    monkeypatch.setattr(progress, "SILENCE", 1e9)
    tr.auto(*parts, time_budget=60)
    assert capsys.readouterr().err == ""


def test_the_first_candidate_need_not_be_done_for_the_search_to_speak(data, short, monkeypatch, capsys):
    class Now:
        def __init__(self, seconds, say):
            self.start = say

        def cancel(self):
            pass

        def join(self):
            pass

    monkeypatch.setattr(progress, "Timer", Now)
    monkeypatch.setattr(automatic, "SILENCE", 0.0)
    tr.auto(data, time_budget=60)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "Trying systems for about 60 s …"
    assert said[-1] == "Refitting the selected model on all 48 queries …"
