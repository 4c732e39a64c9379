"""Simulated users do what they are told: frequencies against the chances of their models."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare, norm

import toprank as tr
from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, UBM, Cascade, ClickLog, DocumentCTR, GlobalCTR, RankCTR, simulate
from toprank.clicks.simulation import relevance_of
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError

LIKED = np.array([0.7, 0.2, 0.9, 0.4])
ENOUGH = np.array([0.5, 0.3, 0.8, 0.6])
THETA = np.array([1.0, 0.6, 0.4, 0.3])
BROWSING = np.tril(np.linspace(0.9, 0.2, 20).reshape(4, 5))
SESSIONS = 20_000


def one_query():
    """A query of four documents that stand in the order of their rows."""
    return RankingData(np.zeros((4, 1)), qid=["q"] * 4), np.arange(4.0)[::-1]


def of_patterns(chance_of):
    """P(click) of each rank, summed over all patterns of clicks; `chance_of(k, clicks above)` gives P(click at k)."""
    rates = np.zeros(4)
    for pattern in itertools.product((0, 1), repeat=4):
        chance = 1.0
        for k, click in enumerate(pattern):
            p = chance_of(k, pattern[:k])
            chance *= p if click else 1 - p
        rates += chance * np.array(pattern)
    return rates


def of_reader(after_click, after_skip):
    """P(click) of each rank of a user who reads from the top: P(still reading) is multiplied by what follows."""
    reading, rates = 1.0, []
    for k, liked in enumerate(LIKED):
        rates.append(reading * liked)
        reading *= liked * after_click(k) + (1 - liked) * after_skip
    return np.array(rates)


RATES = ClickLog.from_columns(["q"] * 8, list("0123") * 2, [1, 2, 3, 4] * 2, [1, 1, 0, 0, 1, 0, 0, 0])
MODELS = {
    "PBM": (PBM.from_parameters(THETA), THETA * LIKED),
    "UBM": (
        UBM.from_parameters(BROWSING),
        of_patterns(lambda k, above: LIKED[k] * BROWSING[k, max((j + 1 for j in range(k) if above[j]), default=0)]),
    ),
    "Cascade": (Cascade(), of_reader(lambda _: 0.0, 1.0)),
    "DCM": (DCM.from_parameters([0.8, 0.6, 0.4, 0.2]), of_reader(lambda k: [0.8, 0.6, 0.4, 0.2][k], 1.0)),
    "SDBN": (SDBN.from_parameters(), of_reader(lambda k: 1 - ENOUGH[k], 1.0)),
    "DBN": (DBN.from_parameters(0.7), of_reader(lambda k: 0.7 * (1 - ENOUGH[k]), 0.7)),
    "CCM": (CCM.from_parameters([0.9, 0.7, 0.3]), of_reader(lambda k: 0.7 * (1 - LIKED[k]) + 0.3 * LIKED[k], 0.9)),
    "GlobalCTR": (GlobalCTR(prior=(1, 1)).fit(RATES), np.full(4, 4 / 10)),
    "RankCTR": (RankCTR(prior=(1, 1)).fit(RATES), np.array([3, 2, 1, 1]) / 4),
    "DocumentCTR": (DocumentCTR(), LIKED),
}


def unlikely(counts, n, chances):
    """The least p of two-sided z-tests of counts among n against their chances; certain ones must hold exactly."""
    counts, chances = np.asarray(counts, dtype=float), np.asarray(chances, dtype=float)
    spread = np.sqrt(n * chances * (1 - chances))
    assert (counts[spread == 0] == (n * chances)[spread == 0]).all()
    z = (counts - n * chances)[spread > 0] / spread[spread > 0]
    return float(2 * norm.sf(np.abs(z).max(initial=0.0)))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_clicks_as_often_as_it_says(name):
    data, scores = one_query()
    model, chances = MODELS[name]
    log = simulate(data, scores, model, SESSIONS, k=4, relevance=LIKED, satisfaction=ENOUGH, noise=0.0, seed=1)
    assert unlikely(np.bincount(log.position[log.clicks] - 1, minlength=4), SESSIONS, chances) > 1e-4
    if chances.std() > 0.01:  # and the test can tell
        assert unlikely(np.bincount(log.position[log.clicks] - 1, minlength=4), SESSIONS, chances[::-1] / 1.01) < 1e-4


def test_noise_and_trust_change_what_a_look_leads_to():
    data, scores = one_query()
    noisy = simulate(data, scores, PBM.from_parameters(THETA), SESSIONS, k=4, relevance=LIKED, noise=0.2)
    clicks = np.bincount(noisy.position[noisy.clicks] - 1, minlength=4)
    assert unlikely(clicks, SESSIONS, THETA * (0.2 + 0.8 * LIKED)) > 1e-4
    right, wrong = np.array([0.95, 0.9, 0.8, 0.7]), np.array([0.6, 0.4, 0.2, 0.1])
    trusting = simulate(data, scores, PBM.from_parameters(THETA), SESSIONS, k=4, relevance=LIKED, trust=(right, wrong))
    clicks = np.bincount(trusting.position[trusting.clicks] - 1, minlength=4)
    assert unlikely(clicks, SESSIONS, THETA * (right * LIKED + wrong * (1 - LIKED))) > 1e-4


@pytest.mark.parametrize("way", ["shuffle", "swap", "neighbors"])
def test_explored_lists_are_exchanged_as_they_say(way):
    data, scores = one_query()
    log = simulate(
        data,
        scores,
        PBM.from_parameters(THETA),
        12_000,
        k=4,
        relevance=LIKED,
        exploration=0.5,
        exploration_method=way,
        seed=2,
    )
    explored = log.columns["explored"][log.offsets[:-1]]
    assert unlikely([explored.sum()], 12_000, [0.5]) > 1e-4
    lists = log.pair.reshape(-1, 4)
    assert (lists[~explored] == np.arange(4)).all()
    orders = {
        "shuffle": list(itertools.permutations(range(4))),
        "swap": [(1, 0, 2, 3), (2, 1, 0, 3), (3, 1, 2, 0)],
        "neighbors": [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)],
    }[way]
    found = [tuple(one) for one in lists[explored].tolist()]
    assert set(found) == set(orders)
    assert chisquare([found.count(order) for order in orders]).pvalue > 1e-4


def test_rankers_take_turns_and_queries_are_asked_for_by_their_popularity():
    data = tr.synthetic(n_queries=5, n_documents=(3, 6), seed=0)
    rankers = {"one": data.X[:, 0], "two": -data.X[:, 0], "three": data.X[:, 1]}
    log = simulate(data, rankers, PBM.from_parameters([1, 0.5]), 9_000, k=2, zipf_exponent=1.0, seed=3)
    ranker = log.columns["ranker"][log.offsets[:-1]]
    assert chisquare([int((ranker == name).sum()) for name in rankers]).pvalue > 1e-4
    for name, scores in rankers.items():
        first = log.pair[log.offsets[:-1]][ranker == name]
        assert (scores[first] == np.maximum.reduceat(scores, data.queries.offsets[:-1])[log.query[log.offsets[:-1]]][
            ranker == name]).all()  # fmt: skip
    share = 1 / np.arange(1, 6)
    asked = np.sort(np.bincount(log.session_query, minlength=5))[::-1]
    assert unlikely(asked, 9_000, share / share.sum()) > 1e-4


def test_users_who_disagree_with_the_judges_like_other_documents_as_much():
    data = tr.synthetic(n_queries=4, n_documents=(6, 6), seed=1)
    liked, sure = relevance_of(data), PBM.from_parameters(np.ones(6))
    rates = {}
    for share in (0.0, 0.5, 1.0):
        log = simulate(data, data.X[:, 0], sure, 8_000, k=6, noise=0.0, relevance_shuffle=share, seed=5)
        shown = np.bincount(log.pair, minlength=data.n_documents)
        rates[share] = np.bincount(log.pair, log.clicks, minlength=data.n_documents) / shown
        np.testing.assert_allclose(data.queries.sum(rates[share]), data.queries.sum(liked), atol=0.1)
    assert np.abs(rates[0.0] - liked).max() < 0.05
    for query in range(4):  # dealt out among the documents of the query
        rows = slice(*data.queries.offsets[query : query + 2])
        np.testing.assert_allclose(np.sort(rates[1.0][rows]), np.sort(liked[rows]), atol=0.05)
    assert np.abs(rates[1.0] - liked).max() > 0.3
    np.testing.assert_allclose(rates[0.5], (rates[0.0] + rates[1.0]) / 2, atol=0.06)


def test_rows_that_were_brought_together_are_ranked_and_liked_in_the_order_of_their_source():
    data = RankingData(np.zeros((4, 1)), qid=["b", "a", "b", "a"], document_ids=list("wxyz"), regroup=True)
    scores, liked = np.array([1.0, 5.0, 0.0, 9.0]), np.array([1.0, 0.0, 0.0, 1.0])
    log = simulate(data, scores, PBM.from_parameters([1, 1]), 50, k=2, relevance=liked, noise=0.0, order="source")
    for log_of in (log, tr.clicks.interleave(scores, scores, data, 50, k=2, order="source")):
        shown = log_of.document_ids[log_of.pair].reshape(-1, 2)
        expected = {"a": ["z", "x"], "b": ["w", "y"]}
        assert all(expected[query] == documents for query, documents in
                   zip(log_of.qids[log_of.session_query].tolist(), shown.tolist(), strict=True))  # fmt: skip
    assert set(log.document_ids[log.pair[log.clicks]]) == {"w", "z"}
    assert log.clicks.sum() == 50


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"relevance": [0.1, 0.2, 0.3, 1.4]}, "probability"),
        ({"satisfaction": [0.1, 0.2]}, "4"),
        ({"noise": 1.5}, "noise"),
        ({"exploration": -1}, "exploration"),
        ({"trust": ([1, 1], [0, 0])}, "trust must be two rows"),
        ({"k": 0}, "k"),
        ({"model": PBM.from_parameters([1, 0.5])}, "of this PBM has 2 numbers; 4 are needed"),
        ({"model": UBM.from_parameters(np.ones((2, 3)))}, "of this UBM has 2 numbers; 4 are needed"),
        ({"model": DCM.from_parameters([0.5])}, "of this DCM has 1 numbers; 4 are needed"),
        ({"model": CCM.from_parameters([0.5])}, "of this CCM has 1 numbers; 3 are needed"),
        ({"model": "PBM"}, r"model must be a click model, .* not 'PBM'"),
        ({"model": PBM()}, r"pass them to PBM.from_parameters\(…\), or fit"),
        ({"model": PBM.from_parameters([1, 2, 0.3, 0.4])}, "must be probabilities"),
    ],
)
def test_users_that_cannot_be_are_refused(options, words):
    data, scores = one_query()
    given = {"model": PBM.from_parameters(THETA), "k": 4, "relevance": LIKED, **options}
    with pytest.raises(DataError, match=words):
        simulate(data, scores, sessions=5, **given)


def test_other_ways_and_unjudged_data_are_refused():
    data, scores = one_query()
    with pytest.raises(UnknownNameError, match="exploration method"):
        simulate(data, scores, PBM.from_parameters(THETA), 5, k=4, relevance=LIKED, exploration_method="turn")
    for none in ([], {}):
        with pytest.raises(DataError, match="scores is empty"):
            simulate(data, none, PBM.from_parameters(THETA), 5, k=4, relevance=LIKED)
    with pytest.raises(DataError, match="pass relevance="):
        simulate(data, scores, PBM.from_parameters(THETA), 5, k=4)
