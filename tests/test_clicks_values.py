"""Values: the log of a service as it is read, what events count, and estimates where their assumptions hold."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toprank as tr
from clicks_evidence import correct
from toprank.clicks.corrections import resolve_curves
from toprank.clicks.events import first_shown, shown_at
from toprank.clicks.values import (
    AGAIN,
    EARLY,
    NO_NUMBER,
    OVERRETURNED,
    UNBOUGHT,
    UNCLICKED,
    UNVALUED,
    ValueEvents,
    tally,
    weights_of,
)
from toprank.errors import DataError, UnknownNameError

NOW = 1_800_000_000_000


def shown(name, documents, query="q", when=NOW, **attributes):
    return {
        "application": "toprank", "query_id": name, "timestamp": when, "user_query": query,
        "query_response_hit_ids": documents, "query_attributes": {"model": "m", "version": "v1", **attributes},
    }  # fmt: skip


def done(kind, name, document, when=NOW + 1000, **attributes):
    return {
        "application": "toprank", "action_name": kind, "query_id": name, "timestamp": when,
        "event_attributes": {"object": {"object_id": document}, **attributes},
    }  # fmt: skip


def lines(records):
    return "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records)


def served(folder, queries, events, replica=""):
    folder.mkdir(exist_ok=True)
    (folder / f"queries-1{replica}.jsonl").write_text(lines(queries))
    if events:
        (folder / f"events-1{replica}.jsonl").write_text(lines(events))
    return folder


# ---- the log of a service ----


def test_what_events_count_and_what_they_do_not(tmp_path):
    events = [
        done("click", "one", "a"), done("click", "one", "a"), done("purchase", "one", "a", value=30.0),
        done("purchase", "one", "a", value=30.0), done("purchase", "one", "a", value=5.0, event_id="another"),
        done("return", "one", "a", value=10.0), done("return", "one", "b", value=7.0),
        done("add_to_cart", "one", "b"), done("click", "two", "x"), done("click", "nobody", "a"),
        done("dwell", "one", "a", value=12.0), done("click", "two", "b", when=NOW - 60_000),
    ]  # fmt: skip
    folder = served(tmp_path / "log", [shown("one", ["a", "b"]), shown("two", ["b", "a"])], events)
    log = tr.clicks.read(folder, values="click=1,cart=5,purchase=value")
    assert log.session_ids.tolist() == ["one", "two"]
    assert log.clicks.tolist() == [True, False, True, False]
    assert log.columns["value"].tolist() == [1 + 30 + 5 - 10, 5, 1, 0]
    assert log.columns["dwell"].tolist()[0] == 12
    assert np.isnan(log.columns["dwell"][1:]).all()
    assert log.columns["ranker"].tolist() == ["m"] * 4
    assert log.columns["time"].tolist() == [NOW / 1000] * 4
    assert log.dropped == {
        AGAIN: 2, UNBOUGHT: 1, UNCLICKED: 1, EARLY: 1, "clicks on documents that no earlier list showed": 1,
        "events of searches that have no list": 1,
    }  # fmt: skip
    assert tr.clicks.read(folder).columns["value"].tolist() == [25, 0, 0, 0]  # what was bought, unless told otherwise
    codes = {one.code for one in tr.clicks.check(log).findings}
    assert {"repeated-events", "unclicked-values", "clocks", "impossible-clicks"} <= codes


def test_a_torn_last_line_is_left_out_and_counted_wherever_it_is_torn(tmp_path):
    """The folder is read for every length that the last file may have when the process is killed."""
    events = [done("click", "one", "a"), done("click", "two", "b")]
    folder = served(tmp_path / "log", [shown("one", ["a", "b"]), shown("two", ["a", "b"])], [events[0]])
    whole = lines([events[1]]).encode()
    for length in range(len(whole) + 1):
        (folder / "events-2.jsonl").write_bytes(whole[:length])
        log = tr.clicks.read(folder)
        assert log.clicks.sum() == 1 + (length == len(whole))
        begun = len('{"application":"toprank",') <= length < len(whole)
        assert log.dropped == ({"lines that were cut off when the service was killed": 1} if begun else {})
    both = lines(events).encode()
    for length in range(len(lines(events[:1])), len(both)):
        (folder / "events-2.jsonl").write_bytes(both[:length])
        assert tr.clicks.read(folder).clicks.sum() == 1


def test_logs_of_replicas_join_and_events_may_be_of_the_others_lists(tmp_path):
    folder = served(tmp_path / "log", [shown("one", ["a", "b"])], [done("click", "two", "b")])
    served(folder, [shown("two", ["a", "b"])], [done("click", "one", "a"), done("click", "two", "b")], "b")
    log = tr.clicks.read(folder)
    assert log.clicks.tolist() == [True, False, False, True]
    assert log.dropped == {AGAIN: 1}


@pytest.mark.parametrize("place", [0, 2, 3])
def test_attributes_that_the_first_lines_do_not_have_are_read(tmp_path, place):
    plain = [shown(f"s{number}", ["a", "b"]) for number in range(3)]
    more = shown(
        "x", ["b", "a"], teams=["new", "old"], explored=True, propensity=0.05, arm="new", share=0.2,
        features={"price": [2.0, None]}, scores=[1.5, 0.5], device="phone",
    )  # fmt: skip
    folder = served(tmp_path / "log", [*plain[:place], more, *plain[place:]], [])
    served(folder, [shown("y", ["a", "b"])], [], "b")  # of a replica that was not told to write features
    log = tr.clicks.read(folder, metadata=["price", "score", "device"])
    at = log.session_ids[log.session] == "x"
    columns = {name: values[at].tolist() for name, values in log.columns.items()}
    assert columns["team"] == ["new", "old"]
    assert columns["device"] == ["phone", "phone"]
    assert log.columns["device"][~at].tolist() == [""] * 8
    assert "surface" not in log.columns
    assert columns["explored"] == [True, True]
    assert columns["propensity"] == [0.05, 0.05]
    assert (columns["arm"], columns["share"], columns["score"]) == (["new"] * 2, [0.2] * 2, [1.5, 0.5])
    assert columns["price"][0] == 2
    assert np.isnan(columns["price"][1])
    assert log.columns["propensity"][~at].tolist() == [1.0] * 8
    assert not log.clicks.any()  # a log without events yet
    with pytest.raises(UnknownNameError, match="age"):
        tr.clicks.read(folder, metadata="age")


def test_score_is_what_was_ranked_by_also_where_a_feature_is_called_so(tmp_path):
    ours = shown("x", ["b", "a"], features={"score": [7.0, 8.0]}, scores=[1.5, 0.5])
    log = tr.clicks.read(served(tmp_path / "log", [ours], []), metadata="score")
    assert log.columns["score"].tolist() == [1.5, 0.5]


def test_lists_without_a_query_are_left_out_and_counted(tmp_path):
    folder = served(tmp_path / "log", [shown("one", ["a"]), shown("two", ["a"], query=None)], [])
    log = tr.clicks.read(folder)
    assert log.n_sessions == 1
    assert log.dropped == {"searches without a query_id or user_query": 1}


def test_other_ubi_logs_have_values_too_and_words_are_no_numbers():
    pa = pytest.importorskip("pyarrow")
    queries = pa.table({"query_id": ["1"], "user_query": ["q"], "query_response_hit_ids": [["a", "b"]]})
    attributes = [{"object": {"object_id": one}, "value": value} for one, value in (("a", "3"), ("b", "lots"))]
    events = pa.table({"query_id": ["1", "1"], "action_name": ["purchase"] * 2, "event_attributes": attributes})
    log = tr.clicks.read((queries, events), values={"purchase": "value"})
    assert log.columns["value"].tolist() == [3, 0]
    assert log.dropped[NO_NUMBER] == 1
    assert "value" not in tr.clicks.read((queries, events)).columns
    with pytest.raises(UnknownNameError, match="kiss"):
        tr.clicks.read((queries, events), values="kiss=1")


def test_a_table_has_a_column_of_values():
    table = {"qid": ["q", "q"], "doc": ["a", "b"], "rank": [1, 2], "click": [1, 0], "value": [2.5, None]}
    assert tr.clicks.read({**table, "docid": table.pop("doc")}).columns["value"].tolist() == [2.5, 0.0]
    words = {"qid": ["q"], "docid": ["a"], "rank": [1], "click": [1], "value": ["much"]}
    with pytest.raises(DataError, match="'much', not a number"):
        tr.clicks.read(words)
    with pytest.raises(DataError, match="infinite"):
        tr.clicks.read({**words, "value": [np.inf]})
    with pytest.raises(DataError, match="table of impressions"):
        tr.clicks.read({**words, "value": [1.0]}, values="click=1")


@pytest.mark.parametrize(
    "told", ["", "click", "click=much", "click=1,click=2", "return=1", 7, {"click": float("nan")}, {"click": True}]
)
def test_values_that_say_nothing_are_refused(told):
    with pytest.raises(DataError, match="value"):
        weights_of(told)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=30),
       st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=30))  # fmt: skip
def test_first_shown_is_shown_at_without_times(lists, events):
    lists, events = (np.array(one, dtype=np.int64).reshape(-1, 2).T for one in (lists, events))
    zeros, ones = np.zeros(lists.shape[1], np.int64), np.ones(events.shape[1], np.int64)
    wanted = shown_at((*lists, zeros), (*events, ones), 4)
    assert first_shown(tuple(lists), tuple(events), 4).tolist() == wanted.tolist()


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 9)), max_size=40))
def test_tallies_are_what_a_loop_makes_of_the_events(events):
    kinds, weights = (
        ["click", "add_to_cart", "purchase", "return"],
        {"click": 1.0, "add_to_cart": 5.0, "purchase": None},
    )
    at, kind, event, amount = (np.array(one, dtype=np.int64) for one in zip(*events, strict=True)) if events else (
        np.empty(0, np.int64),
    ) * 4  # fmt: skip
    clicks, columns, counts = tally(ValueEvents(at, at + 1, kind, amount * 1.0, event), 4, kinds, weights, None, True)
    seen, value, clicked, bought, again, unbought = set(), [0.0] * 4, [False] * 4, [False] * 4, 0, 0
    back, paid, returned = [], [0.0] * 4, [0.0] * 4
    for one in events:
        if one[:3] in seen:
            again += one[0] >= 0
            continue
        seen.add(one[:3])
        if one[0] < 0:
            continue
        name = kinds[one[1]]
        if name == "return":
            back.append(one)
            continue
        value[one[0]] += {"click": 1, "add_to_cart": 5, "purchase": one[3]}[name]
        clicked[one[0]] |= name == "click"
        bought[one[0]] |= name == "purchase"
        paid[one[0]] += one[3] if name == "purchase" else 0
    for one in back:
        unbought += not bought[one[0]]
        returned[one[0]] += one[3] if bought[one[0]] else 0
    value = [worth - min(*both) for worth, *both in zip(value, paid, returned, strict=True)]
    assert clicks.tolist() == clicked
    assert columns["value"].tolist() == value
    assert (counts[AGAIN], counts[UNBOUGHT]) == (again, unbought)
    assert counts[OVERRETURNED] == sum(more > all_of_it for more, all_of_it in zip(returned, paid, strict=True))


@pytest.mark.parametrize(
    ("events", "values", "worth", "left"),
    [
        ([("purchase", 9.0), ("return", 12.0)], "purchase=value", 0.0, OVERRETURNED),
        ([("purchase", 9.0), ("return", -9.0)], "purchase=value", 9.0, OVERRETURNED),
        ([("purchase", -2.0), ("return", -2.0)], "purchase=value", 0.0, None),  # a margin may be a loss
        ([("purchase", 9.0), ("return", None)], "purchase=value", 9.0, UNVALUED),
        ([("purchase", None), ("return", None), ("return", None)], "purchase=30", 0.0, OVERRETURNED),
        ([("add_to_cart", None), ("purchase", 9.0), ("return", 9.0)], "cart=5", 5.0, None),  # purchases do not count
    ],
)
def test_returns_take_away_what_was_bought_and_no_more(events, values, worth, left):
    """Otherwise what was bought and sent back twice would be worth less than what nobody wanted."""
    pa = pytest.importorskip("pyarrow")
    queries = pa.table({"query_id": ["1"], "user_query": ["q"], "query_response_hit_ids": [["a", "b"]]})
    attributes = [
        {"object": {"object_id": "a"}, "value": value, "event_id": str(number)}
        for number, (_, value) in enumerate(events)
    ]
    done = {"query_id": ["1"] * len(events), "action_name": [name for name, _ in events]}
    log = tr.clicks.read((queries, pa.table({**done, "event_attributes": attributes})), values=values)
    assert log.columns["value"].tolist() == [worth, 0.0]
    assert {words for words in log.dropped if words != UNCLICKED} == ({left} if left else set())


# ---- estimates ----


@pytest.fixture(scope="module")
def shop():
    """Data, what documents bring, users, and logs with values."""
    data = tr.synthetic(n_queries=60, n_documents=(6, 6), n_features=4, seed=0)
    looks = np.array([1, 0.5, 0.3, 0.2, 0.15, 0.1])
    rng = np.random.default_rng(0)
    price = rng.lognormal(1.0, 0.7, data.n_documents)  # what a purchase brings; the likely ones are not the dear ones
    liked = rng.uniform(0.1, 0.6, data.n_documents)

    def log(sessions, seed, **options):
        made = tr.clicks.simulate(
            data, data.X[:, 0], tr.clicks.PBM.from_parameters(looks), sessions,
            k=6, noise=0, relevance=liked, seed=seed,
            **options,
        )  # fmt: skip
        draw = np.random.default_rng(seed + 10_000)
        row = made.rows(data)[made.pair]
        bought = made.clicks & (draw.random(made.n_impressions) < 0.4)
        return replace(made, columns={**made.columns, "value": np.where(bought, price[row], 0.0)})

    return data, looks, 0.4 * price * liked, log


@pytest.mark.parametrize("correction", ["ips", "affine", "snips", "dr"])
def test_corrected_values_are_what_documents_bring_to_who_looks(shop, correction):
    data, looks, worth, log = shop
    made = log(150_000, 1, exploration=0.5)
    curves = resolve_curves(looks, made)
    guess = np.full(data.n_documents, 0.5) if correction == "dr" else None
    found = correct(made, data, correction, curves, 0.0, guess, "value").relevance
    error = found - worth
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))
    assert np.corrcoef(found, worth)[0, 1] > 0.9
    naive = correct(made, data, "none", None, reward="value").relevance
    assert np.mean((naive - worth) ** 2) > 4 * np.mean(error**2)


def test_values_under_trust_are_refused_but_for_ips(shop):
    data, looks, _, log = shop
    made = log(500, 1)
    trusted = np.stack([looks, 0.1 * looks])
    for correction in ("affine", "snips", "dr"):
        with pytest.raises(DataError, match="trust in positions"):
            correct(made, data, correction, resolve_curves(trusted, made), 0.0, None, "value")
    assert correct(made, data, "ips", resolve_curves(trusted, made), 0.0, None, "value").shown.any()
    below = np.stack([looks, [0, -0.6, 0, 0, 0, 0]])  # β below -α at the second
    estimate = tr.clicks.evaluate(data.X[:, 1], made, data, "value@3", estimator="ips", propensities=below)
    assert 0 < estimate.effective_sample_size["value@3"] < made.n_impressions
    bare = replace(made, columns={})
    with pytest.raises(DataError, match="The log has no values"):
        tr.clicks.evaluate(data.X[:, 1], bare, data, "value@3", propensities=looks)


def test_a_ranker_trained_on_values_brings_more_than_one_trained_on_clicks():
    data = tr.synthetic(n_queries=150, n_documents=(8, 8), n_features=4, seed=1)
    looks, rng = 1 / np.arange(1, 9), np.random.default_rng(1)
    liked = 1 / (1 + np.exp(-data.X[:, 1]))
    price = np.exp(1.2 * data.X[:, 2])
    made = tr.clicks.simulate(
        data, data.X[:, 0], tr.clicks.PBM.from_parameters(looks), 20_000, k=8, noise=0, relevance=liked, exploration=0.2
    )
    row = made.rows(data)[made.pair]
    bought = made.clicks & (rng.random(made.n_impressions) < 0.5)
    made = replace(made, columns={**made.columns, "value": np.where(bought, price[row], 0.0)})

    def brings(ranker):
        return tr.clicks.evaluate(ranker.predict(data), made, data, "value@8", propensities=looks).value

    trained = {
        reward: tr.clicks.train(tr.LinearRanker("Squared"), made, data, propensities=looks, reward=reward, folds=3)
        for reward in ("click", "value")
    }
    assert brings(trained["value"].ranker) > 1.1 * brings(trained["click"].ranker)
    assert trained["value"].to_dict()["reward"] == "value"
    assert trained["value"].estimates
    for options, words in (
        ({"correction": "position"}, "learns from clicks, not values"),
        ({"full_information": True}, "contain no values"),
    ):
        ranker = tr.TreeRanker("Multicategory") if "correction" in options else tr.LinearRanker("Squared")
        with pytest.raises(DataError, match=words):
            tr.clicks.train(ranker, made, data, reward="value", **options)
    with pytest.raises(UnknownNameError, match="reward"):
        tr.clicks.train(tr.LinearRanker("Squared"), made, data, reward="money")


def true_value(data, looks, worth, scores, depth):
    """What a session brings in expectation: a slow obvious loop."""
    total = 0.0
    for first, last in zip(data.queries.offsets[:-1], data.queries.offsets[1:], strict=True):
        order = np.argsort(-scores[first:last], kind="stable")[:depth]
        total += sum(looks[place] * worth[first + row] for place, row in enumerate(order))
    return total / data.n_queries


def test_estimates_of_values_and_clicks_are_those_of_a_session(shop):
    data, looks, worth, log = shop
    made = log(200_000, 3, exploration=0.5)
    found = tr.clicks.evaluate(data.X[:, 1], made, data, ["value@3", "clicks@3", "ctr@3"], propensities=looks)
    assert found.mean["value@3"] == pytest.approx(true_value(data, looks, worth, data.X[:, 1], 3), rel=0.05)
    assert found.mean["clicks@3"] == pytest.approx(3 * found.mean["ctr@3"])
    with pytest.raises(UnknownNameError, match="click metric"):
        tr.clicks.evaluate(data.X[:, 1], made, data, "value", propensities=looks)


@pytest.mark.nightly
@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_intervals_of_heavy_tailed_values_are_not_far_too_short(estimator):
    """Queries are drawn anew for each log, since intervals are over queries.

    Values are lognormal, and of 60 queries t intervals of such means are too short: .92 of 300 logs at 95 %.
    """
    looks, held, runs = np.array([1, 0.5, 0.3, 0.2, 0.15, 0.1]), 0, 300
    for run in range(runs):
        data = tr.synthetic(n_queries=60, n_documents=(6, 6), n_features=3, seed=run)
        rng = np.random.default_rng(run)
        price, liked = rng.lognormal(0.0, 1.0, data.n_documents), np.full(data.n_documents, 0.4)
        made = tr.clicks.simulate(
            data, data.X[:, 0], tr.clicks.PBM.from_parameters(looks), 3_000,
            k=6, noise=0, relevance=liked, exploration=0.5,
            seed=run,
        )  # fmt: skip
        value = np.where(made.clicks, price[made.rows(data)[made.pair]], 0.0)
        made = replace(made, columns={**made.columns, "value": value})
        truth = 0.4 * np.exp(0.5) * looks[:3].sum()  # of all queries that might be drawn
        found = tr.clicks.evaluate(
            data.X[:, 1], made, data, "value@3", propensities=looks, estimator=estimator, clip=0.0
        )
        held += found.interval.low < truth < found.interval.high
    assert 0.83 <= held / runs <= 0.98
