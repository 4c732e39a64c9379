"""The rules of `auto`, each side alone: what is begun and what is left out, who is blended, and the story of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError
from toprank.evaluation.scores import BoundMetric
from toprank.model_selection import decision as decision_module
from toprank.model_selection import portfolio as module
from toprank.model_selection.automatic import _queries_with_new_labels
from toprank.model_selection.decision import (
    Decision,
    SummaryFacts,
    _blend,
    _data,
    _default,
    _interval,
    _left_out,
    _optimism,
    _winner,
    decide,
    rows_of,
)
from toprank.model_selection.portfolio import NO_TIME, PortfolioEntry, PortfolioSearch, RefitPlan, tree_settings
from toprank.model_selection.result import _signed
from toprank.model_selection.search import Clock, Refit, Trial, TrialEvaluator
from toprank.model_selection.weights import paired_gain, plausibility
from toprank.rankers.blend import BlendRanker
from toprank.significance import Interval


def interval(low, high):
    return Interval((low + high) / 2, low, high, 0.95, 40, "")


@pytest.mark.parametrize(("n", "leaves"), [(19_999, 7), (20_000, 31), (199_999, 31), (200_000, 63)])
def test_trees_are_small_where_documents_are_few(n, leaves):
    assert tree_settings(SimpleNamespace(n_documents=n))["num_leaves"] == leaves


class Time:
    """A clock that moves when an entry is fitted."""

    def __init__(self, time_budget):
        self.left = self.time_budget = time_budget


def tried(budget, plan, monkeypatch, **more):
    """Run entries of (name, in rounds, work, seconds, what happens); which were done with which share of the time."""
    clock, shares, judge = Time(budget), {}, TrialEvaluator(None, "ndcg", "standard", 1)
    kinds = {True: SimpleNamespace(rounds=1), False: SimpleNamespace(rounds=None)}
    entries = [PortfolioEntry(name, kinds[rounds], work) for name, rounds, work, *_ in plan]
    happens = {name: (seconds, what) for name, _, _, seconds, what in plan}

    def attempt(search, candidate):
        seconds, what = happens[candidate.name]
        if isinstance(what, KeyboardInterrupt):
            raise what
        if isinstance(what, DataError):
            return Trial(candidate.name, state="refused", remark=str(what))
        shares[candidate.name] = candidate.seconds
        clock.left -= seconds
        search.interrupts.happened |= what == "interrupted"
        return Trial(candidate.name, value=1.0, seconds=seconds)

    monkeypatch.setattr(PortfolioSearch, "attempt", attempt)
    search = PortfolioSearch(judge, clock, entries, **more)
    search.run()
    return search, shares


def names(search, *states):
    return [trial.name for trial in search.in_state(*states)]


def test_the_default_system_may_use_all_of_the_time_and_others_half(monkeypatch):
    plan = [("a", True, 1, 4, ""), ("b", True, 1, 4, ""), ("c", True, 1, 4, ""), ("d", True, 1, 2, "")]
    found, shares = tried(16, plan, monkeypatch)
    assert shares == {"a": np.inf, "b": 12, "c": 4, "d": 4}
    names_done = names(found, "complete")
    assert (names_done, found.interrupts.happened, found.timed_out) == ([*"abcd"], False, False)
    assert found.stopped == "All candidates were evaluated."


def test_a_solver_that_is_expected_not_to_fit_is_left_out(monkeypatch):
    plan = [("a", False, 1, 4, ""), ("b", True, 9, 0, ""), ("c", False, 3, 4, ""), ("d", False, 2, 1, ""),
            ("e", False, 1, 1, "")]  # fmt: skip
    found, _ = tried(10, plan, monkeypatch)
    # c would take 12 and d 8 of the 6 that are left; e takes 4
    assert names(found, "complete") == ["a", "b", "e"]
    assert names(found, "not tried") == ["c", "d"]
    assert found.timed_out
    exactly, _ = tried(8, [("a", False, 1, 4, ""), ("b", True, 1, 0, ""), ("c", False, 1, 4, "")], monkeypatch)
    assert names(exactly, "not tried") == []
    over, shares = tried(4, [("a", False, 1, 4, ""), ("c", True, 1, 1, "")], monkeypatch)
    assert (names(over, "not tried"), list(shares)) == (["c"], ["a"])  # no time is left, whatever its kind


def suspending(monkeypatch, budget, rounds, **more):
    """Search among trees that need so many seconds, and go on where they were cut; return the search and its calls."""
    clock, calls, done = Time(budget), [], dict.fromkeys(rounds, 0.0)
    kind = SimpleNamespace(rounds=1, path_=[{"iterations": 1}], history_={})
    entries = [PortfolioEntry(name, kind, 1.0) for name in rounds]

    def attempt(search, candidate):
        calls.append((candidate.name, candidate.seconds))
        seconds = min(candidate.seconds, rounds[candidate.name] - done[candidate.name])
        done[candidate.name] += seconds
        clock.left -= seconds
        cut = done[candidate.name] < rounds[candidate.name]
        candidate.resumable._trainings.clear()
        if cut:
            candidate.resumable._trainings["training"] = None
        value = ord(candidate.name) / 100
        values = np.array([value, value + 0.01])
        return Trial(candidate.name, value=value, values=values, seconds=seconds, fitted=kind,
                     state="cut short" if cut else "complete")  # fmt: skip

    monkeypatch.setattr(PortfolioSearch, "attempt", attempt)
    search = PortfolioSearch(TrialEvaluator(None, "ndcg", "standard", 1), clock, entries, **more)
    search.run()
    return search, calls, clock


def test_the_best_that_was_cut_goes_on_with_the_time_that_is_left(monkeypatch):
    rounds = {"a": 10, "b": 10, "c": 30, "d": 100, "e": 100}
    found, calls, clock = suspending(monkeypatch, 100.0, rounds)
    assert calls == [("a", np.inf), ("b", 90.0), ("c", 40.0), ("d", 25.0), ("e", 25.0)]
    assert clock.left == 0.0
    assert {trial.name: trial.seconds for trial in found.trials} == {"a": 10, "b": 10, "c": 30, "d": 25, "e": 25}
    more, calls, clock = suspending(monkeypatch, 200.0, {"a": 10, "b": 10, "c": 100, "d": 10, "e": 5})
    assert calls[2:] == [("c", 90.0), ("d", 45.0), ("e", 80.0), ("c", 75.0)]
    assert [(trial.name, trial.state, trial.seconds) for trial in more.trials][2] == ("c", "complete", 100)
    assert [trial.number for trial in more.trials] == [0, 1, 2, 3, 4]
    assert not more.timed_out


@pytest.mark.parametrize("n_others", [0, 1, 3, 8])
@pytest.mark.parametrize("refit_factor", [0.0, 4 / 3])
def test_no_more_than_a_twentieth_of_the_budget_stays_idle(monkeypatch, n_others, refit_factor):
    """Unless every candidate is fitted to its end; what fitting the choice again takes is spent afterwards."""
    names_of = "abcdefghijk"[: 2 + n_others]
    for scale in (0.1, 1.0, 3.0, 10.0, 100.0, 1000.0):
        rounds = {name: scale * (5.0 + ord(name) % 7) for name in names_of}
        found, _, clock = suspending(monkeypatch, 100.0, rounds, refit=RefitPlan(refit_factor))
        again = found.refit_seconds(found._plausible())
        spent = again if again <= clock.left else 0.0
        complete = len(found.in_state("complete")) == len(rounds)
        assert complete or clock.left - spent <= 5.0 or rounds["a"] > 100.0
        assert found.trials[0].state == "complete"


def test_the_quickest_of_a_kind_tells_what_the_next_will_take(monkeypatch):
    plan = [("a", False, 1, 4, ""), ("b", False, 1, 1, ""), ("c", False, 2, 1, ""), ("d", False, 4, 1, "")]
    found, _ = tried(10, plan, monkeypatch)
    assert names(found, "complete") == ["a", "b", "c", "d"]


def test_the_first_that_goes_with_the_data_is_fitted_whatever_it_takes(monkeypatch):
    plan = [("a", False, 1, 4, DataError("labels")), ("b", False, 1, 4, ""), ("c", False, 1, 4, "")]
    found, shares = tried(-1.0, plan, monkeypatch)
    assert (names(found, "refused"), names(found, "not tried"), shares) == (["a"], ["c"], {"b": np.inf})
    with pytest.raises(DataError, match=r"can be trained on these data\. labels"):
        tried(9, plan[:1], monkeypatch)


def test_an_interrupt_keeps_what_is_there(monkeypatch):
    plan = [("a", True, 1, 1, ""), ("b", True, 1, 1, KeyboardInterrupt()), ("c", True, 1, 1, "")]
    found, _ = tried(9, plan, monkeypatch)
    assert (names(found, "complete"), found.interrupts.happened, names(found, "not tried")) == (["a"], True, [])
    with pytest.raises(KeyboardInterrupt):
        tried(9, plan[1:], monkeypatch)
    within, _ = tried(9, [("a", True, 1, 1, "interrupted"), ("b", True, 1, 1, "")], monkeypatch)
    assert (names(within, "complete"), within.interrupts.happened) == (["a"], True)


def test_as_many_are_tried_as_were_asked_for(monkeypatch):
    plan = [
        ("a", False, 1, 4, DataError("labels")),
        ("b", False, 1, 4, ""),
        ("c", False, 1, 4, ""),
        ("d", False, 1, 4, ""),
    ]
    found, _ = tried(99, plan, monkeypatch, max_trials=2)
    assert [names(found, state) for state in ("refused", "complete", "not tried")] == [["a"], ["b", "c"], ["d"]]
    assert found.stopped == "The maximum number of trials was reached."
    assert not found.timed_out  # more time would have given no more
    assert [trial.number for trial in found.trials] == [0, 1, 2, 3]


def a_search(*trials, max_trials=None, interrupted=False):
    search = PortfolioSearch(TrialEvaluator(None, "ndcg", "standard", 1), Clock(), [], max_trials=max_trials)
    search.trials.extend(trials)
    search.interrupts.happened = interrupted
    return search


def test_time_ran_out_where_something_was_skipped_or_cut():
    done, late = Trial("a", value=1.0), Trial("b", state="not tried", remark=NO_TIME)
    assert not a_search(done).timed_out
    assert a_search(done, late).timed_out
    assert a_search(done, Trial("b", value=1.0, state="cut short")).timed_out
    assert not a_search(done, Trial("b", state="refused", remark="no")).timed_out


@pytest.mark.parametrize(
    ("low", "high", "sign", "wanted"),
    [(0, 0, 1, 1), (-0.1, -0.1, 1, 0), (0.1, 0.1, 1, 1), (-2, 0, 1, 0), (-1, 1, 1, 1), (1, 3, 1, 1), (-3, -1, 1, 0),
     (-1, 3, -1, 0.5), (-3, 1, -1, 1), (-np.inf, np.inf, 1, 1)],
)  # fmt: skip
def test_a_weight_is_between_nothing_and_one(low, high, sign, wanted):
    assert plausibility(interval(low, high), sign) == wanted


def trial(name, *values, state="complete", seconds=2.0):
    values = np.array(values, dtype=float)
    ranker = SimpleNamespace(name=name)
    return Trial(name, value=float(np.nanmean(values)), seconds=seconds, values=values, fitted=ranker, state=state)


def a_judge(n=40, higher=True):
    data, convention = SimpleNamespace(n_queries=n), SimpleNamespace(name="standard")
    return SimpleNamespace(data=data, name="ndcg", convention=convention, higher_is_better=higher)


def test_one_alone_or_all_alike_is_taken_without_a_blend():
    alike = decide([trial("a", 0.5, 0.5, np.nan), trial("b", 0.5, 0.5, np.nan)], a_judge(), blend=True)
    assert (alike.all_equal, [one.name for one in alike.members], alike.blend) == (True, ["a"], None)
    assert _blend(alike) == "a, the first candidate, is selected; nothing is blended."
    assert "All 2 candidates have the same value on every one of these queries (0.5000)" in _winner(alike, a_judge())
    one = decide([trial("a", 0.5, 0.4)], a_judge(), blend=True)
    assert (one.all_equal, _winner(one, a_judge())) == (False, "One candidate was tried, a (0.4500).")
    assert _blend(one) == "a is selected."
    unasked = decide([trial("a", 0.5, 0.3), trial("b", 0.3, 0.5)], a_judge(), blend=False)
    assert [member.name for member in unasked.members] == ["a", "b"]
    assert _blend(unasked) == "Blending is off, so a is selected, though others may be as good."


class Scores(tr.LinearRanker):
    """A fitted ranker whose scores are given."""

    def __init__(self, scores=()):
        self.scores = scores

    @classmethod
    def fitted(cls, data, scores):
        ranker = cls(tuple(scores))
        ranker.n_features_in_, ranker.training_ = data.n_features, {}
        return ranker

    def predict(self, X, qid=None):
        return np.array(self.scores, dtype=float)


def on_queries(n, **placed):
    """Return a judge of n queries with one relevant document of three, and a trial for each list of its places."""
    data = tr.RankingData(np.zeros((3 * n, 1)), np.tile([1, 0, 0], n), queries=tr.Queries.from_sizes([3] * n))
    judge, trials = BoundMetric(data, "mrr"), []
    for name, places in placed.items():
        scores = np.concatenate([{1: [2, 1, 0], 2: [1, 2, 0], 3: [0, 1, 2]}[place] for place in places])
        ranker = Scores.fitted(data, scores)
        values = judge.per_query(ranker.predict(data))
        trials.append(Trial(name, value=float(values.mean()), values=values, fitted=ranker))
    return judge, sorted(trials, key=lambda trial: -trial.value)


def test_the_default_system_keeps_half_of_the_weight():
    rng = np.random.default_rng(0)
    placed = {name: rng.integers(1, 4, 40) for name in ("one", "two", "three", "four")}
    judge, trials = on_queries(40, **placed)
    free = decide(trials, judge, blend=True)
    alone = decide([trial for trial in trials if trial.name in ("one", "two")], judge, blend=True)
    kept = decide(trials, judge, blend=True, default=("one", "two"))
    assert (kept.share, kept.default, kept.blended) == (0.5, ("one", "two"), True)
    for trial in trials:
        half = (free.weights_by_name.get(trial.name, 0) + alone.weights_by_name.get(trial.name, 0)) / 2
        assert kept.weights_by_name.get(trial.name, 0) == pytest.approx(half)
    assert kept.order == free.order
    assert kept.intervals == free.intervals
    assert _default(kept) == "Half of the weight is reserved for the default system (one, two)."


def test_without_other_candidates_the_default_system_is_chosen_as_ever():
    judge, trials = on_queries(6, one=[1, 2, 1, 3, 1, 2], two=[2, 1, 1, 1, 2, 3])
    assert decide(trials, judge, blend=True, default=("one", "two")).weights == decide(trials, judge, True).weights
    assert _default(decide(trials, judge, True, ("one", "two"))) == ""


def test_what_is_clearly_better_does_without_the_default_system():
    judge, trials = on_queries(40, bad=[3] * 38 + [2, 1], worse=[3] * 39 + [2], good=[1] * 38 + [2, 2])
    decision = decide(trials, judge, blend=True, default=("bad", "worse"))
    assert ([one.name for one in decision.chosen], decision.share) == (["good"], 0.0)
    assert _default(decision) == (
        "That is better by more than one standard error than any selection with the default system (bad, worse)."
    )


def test_a_blend_that_is_below_the_default_system_is_not_taken(monkeypatch):
    """The blend itself is what falls below: its members are level with the default system."""
    judge, trials = on_queries(20, own=[1] * 10 + [2] * 10, other=[2] * 10 + [1] * 10, also=[1, 2] * 10)
    worse = Scores.fitted(judge.data, np.tile([0, 1, 2], 20))
    monkeypatch.setattr(decision_module, "_blended", lambda *_: (worse, judge.per_query(worse.predict(judge.data))))
    decision = decide(trials, judge, blend=True, default=("own",))
    assert ([one.name for one in decision.chosen], decision.share, decision.blended) == (["own"], 1.0, False)
    assert decision.ranker is decision.chosen[0].ranker
    assert _blend(decision) == "own is selected."
    assert _default(decision).startswith("That is the default system (own): no candidate was better")


def test_without_a_blend_another_is_taken_if_better_by_a_standard_error():
    rows = {"own": [2] * 20, "little": [2] * 17 + [1, 3, 3], "clear": [2] * 10 + [1] * 10}
    judge, trials = on_queries(20, **{name: rows[name] for name in ("own", "little")})
    assert trials[0].name == "little"
    assert paired_gain(trials[0].values, trials[1].values, 1.0).in_errors < 1
    assert decide(trials, judge, blend=False, default=("own",)).chosen[0].name == "own"
    judge, trials = on_queries(20, **{name: rows[name] for name in ("own", "clear")})
    assert decide(trials, judge, blend=False, default=("own",)).chosen[0].name == "clear"


def test_standard_errors_of_paired_differences():
    values, others = np.array([0.5, 0.25, 0.75, np.nan]), np.array([0.25, 0.25, 0.25, 1.0])
    wanted = 0.25 / (np.std([0.25, 0, 0.5], ddof=1) / np.sqrt(3))
    assert paired_gain(values, others, 1.0).in_errors == pytest.approx(wanted)
    assert paired_gain(values, others, -1.0).in_errors == pytest.approx(-wanted)
    assert paired_gain(values[:1], others[:1], 1.0).in_errors == 0.0
    assert paired_gain(others + 1, others, 1.0).in_errors == np.inf
    assert paired_gain(others, others, 1.0).in_errors == 0.0


def test_errors_are_best_where_they_are_least():
    order = TrialEvaluator(None, "owa", "standard", 1).ranked([trial("a", 0.5, 0.6), trial("b", 0.1, 0.1)])
    assert [one.name for one in order] == ["b", "a"]


def a_decision(*intervals, blended=False, weights=None, blend=None, members=None):
    order = [replace(trial(f"t{i}", 0.5 - 0.1 * i), number=i) for i in range(len(intervals))]
    chosen = order[: len(order) if members is None else members]
    ranker = object.__new__(BlendRanker) if blended else order[0].ranker
    weights = weights or [1 / len(chosen)] * len(chosen)
    seen = [interval(*ends) for ends in intervals]
    return Decision(order, seen, chosen, weights, ranker, np.array([0.75]), blend and interval(*blend), 0.625)


def test_the_lead_in_words():
    sure = _winner(a_decision((0, 0), (-0.25, -0.125)), a_judge())
    assert sure == (
        "Of 2 candidates t0 (0.5000) was best, 0.1000 ahead of the runner-up t1 (95 % interval of the lead +0.1250 to "
        "+0.2500). This lead is significant."
    )
    error = _winner(a_decision((0, 0), (0.125, 0.25)), a_judge(higher=False))
    assert "(95 % interval of the lead +0.1250 to +0.2500). This lead is" in error
    assert "not significantly better than another one" in _winner(a_decision((0, 0), (-0.25, 0.0)), a_judge())
    assert "not significantly better than 2 others" in _winner(a_decision((0, 0), (-0.25, 0.1), (0.0, 0.1)), a_judge())
    assert _winner(a_decision((0, 0), (-np.inf, np.inf)), a_judge()).endswith(
        "A single query has no interval, so the others may be as good."
    )


def test_the_blend_in_words():
    level = (-0.1, 0.1)
    refused = _blend(a_decision((0, 0), level, blend=(-0.25, -0.125)))
    assert refused == (
        "A blend of t0, t1 was worse than the best alone (95 % interval of the difference -0.2500 to -0.1250) and is "
        "not selected."
    )
    both = _blend(a_decision((0, 0), level, blended=True, blend=(-0.125, 0.25)))
    assert both.startswith("Both (t0, t1) are blended with equal weights: if")
    assert both.endswith(
        "The blend has 0.7500 on the validation data (against the best alone: 95 % interval of the difference -0.1250 "
        "to +0.2500)."
    )
    three = _blend(a_decision((0, 0), level, level, blended=True, blend=level, weights=[0.5, 0.25, 0.25]))
    assert three.startswith("All 3 (t0, t1, t2) are blended with weights that decrease with the evidence against them")
    two = _blend(a_decision((0, 0), level, level, blended=True, blend=level, members=2))
    assert two.startswith("The best 2 of these (t0, t1)")
    assert _interval(interval(-np.inf, np.inf)) == ""


def facts(refit=None, **changed):
    settings = {"judge": a_judge(), "trained_on": 100, "drawn": "sampled with seed 7", "time_budget": 60.0}
    return SummaryFacts(**(settings | changed), refit=refit or Refit(None))


def test_what_was_learned_from_in_words():
    assert _data(facts()).startswith(
        "40 queries of 140, sampled with seed 7, were held out for the selection by ndcg (conv"
    )
    assert _data(facts(drawn="the latest by 'day'")).startswith("40 queries of 140, the latest by 'day', were held out")
    assert _data(facts(drawn=None)) == (
        "The candidates were trained on 100 queries and evaluated on 40 queries by ndcg (convention standard)."
    )
    assert "much of the order is luck" not in _optimism(a_judge(30))
    assert "With 29 queries, much of the order is luck." in _optimism(a_judge(29))


def test_what_was_left_out_in_words():
    same = "The time sufficed, so the same data, seed and threads give the same model."
    short = "The time budget of 60 s was too short for all, so another run may select differently."
    stopped = "The search was interrupted; this is the best candidate until then."
    done = trial("a", 1.0)
    late = [Trial(name, state="not tried", remark=NO_TIME) for name in "bc"]
    assert _left_out(a_search(done), facts()) == [same]
    assert _left_out(a_search(done), facts(Refit(None, out_of_time=True))) == [short]
    assert _left_out(a_search(done), facts(Refit(None, interrupted=True))) == []
    assert _left_out(a_search(done, interrupted=True), facts()) == [stopped]
    assert _left_out(a_search(done, *late), facts()) == ["Not tried for lack of time: b, c.", short]
    long = "a alone took 61.0 s: the first candidate is always fitted completely, so that there is a result."
    assert _left_out(a_search(trial("a", 1.0, seconds=61.0), late[0]), facts())[:2] == [
        long, "Not tried for lack of time: b."
    ]  # fmt: skip
    assert _left_out(a_search(trial("a", 1.0, seconds=60.0), trial("b", 1.0, seconds=70.0)), facts()) == [same]
    assert _left_out(a_search(trial("a", 1.0, seconds=61.0)), facts(time_budget=None)) == [same]
    unasked = Trial("d", state="not tried", remark="enough")
    assert _left_out(a_search(done, unasked, max_trials=1), facts()) == [
        "Not tried because of max_trials=1: d.",
        same,
    ]
    cut = [trial("a", 1.0, state="cut short"), trial("b", 1.0)]
    assert _left_out(a_search(*cut), facts()) == ["Stopped early for lack of time: a.", short]
    refused = _left_out(a_search(done, Trial("b", state="refused", remark="why.")), facts())
    assert refused == ["b does not support these data: why.", same]


def test_the_rows_of_a_decision():
    rows = rows_of(a_decision((0, 0), (-0.25, 0.125), blended=True, blend=(-0.5, 0.5), weights=[0.75, 0.25]))
    assert [(row["name"], row["value"], row["number"], row["weight"]) for row in rows] == [
        ("blend", 0.625, 2, 0.0), ("t0", 0.5, 0, 0.75), ("t1", 0.4, 1, 0.25)
    ]  # fmt: skip
    assert [(row["difference"], row["difference_low"], row["difference_high"]) for row in rows] == [
        (0.125, -0.5, 0.5), (0.0, 0, 0), (pytest.approx(-0.1), -0.25, 0.125)
    ]  # fmt: skip
    alone = rows_of(a_decision((0, 0), (-0.25, 0.125)))
    assert [row["weight"] for row in alone] == [0.0, 0.0]  # nothing was blended
    assert [_signed(value) for value in (0, 0.5, -0.25, np.inf, -np.inf)] == ["0", "+0.500", "-0.250", "∞", "-∞"]


def test_queries_with_labels_that_were_not_learned_from_are_tried():
    X, qid = np.arange(8.0)[:, None], [0, 0, 1, 1, 2, 2, 3, 3]
    train = tr.RankingData(X, [0, 1, 0, 1, 0, 5, 0.5, 1], qid=qid)
    assert _queries_with_new_labels(train.select([0, 2, 3]), train.select([0, 1, 2, 3])) is None
    assert _queries_with_new_labels(train.select([0, 1]), train).qids.tolist() == [0, 2, 3]
    assert _queries_with_new_labels(train.select([0, 2]), train).qids.tolist() == [0, 3]


def test_sampled_trees_see_some_features_and_queries_and_may_be_larger():
    data = tr.synthetic(n_queries=10, n_features=2, n_grades=3, seed=0)
    entries = {entry.name: entry.ranker for entry in module.portfolio(data, "ndcg@10", "standard", 0, 1)}
    sampled = [name for name in entries if name.endswith(" (sampled)")]
    assert len(sampled) == 3
    for name in sampled:
        whole, part = (entries[one].get_params(deep=False) for one in (name.removesuffix(" (sampled)"), name))
        assert part["num_leaves"] == 2 * whole["num_leaves"] + 1
        for share in ("feature_fraction", "query_fraction"):
            assert 0 < part[share] < whole[share] == 1
