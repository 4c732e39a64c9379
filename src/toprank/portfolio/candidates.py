"""The portfolio: which rankers are tried, with which settings, and in which order."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from toprank.data.dataset import RankingData
from toprank.losses import LambdaRank
from toprank.metrics.parsing import parse
from toprank.rankers.expected_gain import ExpectedGainRanker
from toprank.rankers.linear import LinearRanker
from toprank.rankers.trees import TreeRanker

__all__ = ["Entry", "portfolio"]

_PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
_RAW_PENALTIES = (1e3, 1e2, 10.0, 1.0, 0.1)  # cs-RgList leaves the features as they are
_FEW_PENALTIES = (0.1, 0.01, 0.001)
_EXPECTED_GAIN_WORK = 50.0  # times a linear ListNet: 10 to 70 on the sets at hand
_ROUNDS, _PATIENCE = 500, 50
_LAMBDA_METRICS = ("ap", "err", "rr")


class Entry(NamedTuple):
    """A ranker to try."""

    name: str
    ranker: Any
    """Not fitted."""
    kind: Literal["solver", "trees"]
    """Trees tell each round and can be stopped; a solver runs to its end."""
    work: float
    """Expected time, in units that the entries of one kind share."""


def portfolio(data: RankingData, metric: str, convention: str, seed: int, threads: int | None) -> list[Entry]:
    """The entries for these data, in the order in which they are tried.

    Quick linear models come first, so that there is always an answer; then trees, the most promising losses first.
    """
    judged: dict[str, Any] = {"metric": metric, "convention": convention, "threads": threads}

    def linear(name: str, loss: str, work: float = 1.0, **options: Any) -> Entry:
        return Entry(name, LinearRanker(loss, **{"l2": _PENALTIES} | judged | options), "solver", work)

    settings = {"n_trees": _ROUNDS, "early_stopping": _PATIENCE, "seed": seed} | tree_settings(data) | judged
    n_grades = float(max(len(data.grades.values), 2))

    def trees(name: str, loss: Any, sampled: bool = False, **options: Any) -> Entry:
        if sampled:
            options |= {"num_leaves": 2 * settings["num_leaves"] + 1, "feature_fraction": 0.5, "query_fraction": 0.7}
            name += " (sampled)"
        work = n_grades if options.get("outputs") == "grades" else 1.0
        return Entry(name, TreeRanker(loss, **settings | options), "trees", work)

    expected_gain = ExpectedGainRanker("Cosine", start="linear", l2=_FEW_PENALTIES, seed=seed, **judged)
    measure = parse(metric).name
    lambdas = LambdaRank(metric=measure if measure in _LAMBDA_METRICS else "ndcg")
    return [
        linear("ListNet", "ListNet"),
        linear("cs-RgList", "CostSensitiveListMLE", 2.0, scale=False, l2=_RAW_PENALTIES),
        linear("RankNet-linear", "Logistic", 3.0),
        trees("LambdaMART-all-pairs", lambdas),  # the system LambdaMART has only those of the first 30 ranks
        trees("McRank", "Multinomial", outputs="grades"),
        trees("LambdaMART-lightgbm", "lightgbm:lambdarank"),
        trees("MART", "Squared"),
        trees("RankNet-trees", "Logistic"),
        trees("XE-NDCG-lightgbm", "lightgbm:rank_xendcg"),
        Entry("ExpectedGain-cosine", expected_gain, "solver", _EXPECTED_GAIN_WORK),
        trees("McRank", "Multinomial", sampled=True, outputs="grades"),
        trees("LambdaMART-all-pairs", lambdas, sampled=True),
        trees("MART", "Squared", sampled=True),
        trees("QueryMART", "QuerySquared"),
    ]


def tree_settings(data: RankingData) -> dict[str, Any]:
    """Small trees and small steps on few documents, where 31 leaves were worse than 7 under every loss.

    The small end was chosen on the validation parts of MQ2008, OHSUMED and slices of MSLR; larger data get what is
    usual for them.
    """
    if data.n_documents < 20_000:
        return {"num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": 20}
    if data.n_documents < 200_000:
        return {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 50}
    return {"num_leaves": 63, "learning_rate": 0.1, "min_data_in_leaf": 100}
