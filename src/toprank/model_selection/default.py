"""The default system of `toprank train` and `AutoRanker`, chosen by `benchmarks/default_system.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toprank.compute import TimeLimit
from toprank.data.dataset import RankingData
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.model_selection.result import SelectionResult
from toprank.rankers.base import Ranker
from toprank.significance.results import queries
from toprank.systems import DEFAULT, make

BLENDED_SYSTEMS: tuple[str, ...] = ("ListNet", "YetiRank")
"""Systems of the default blend, a linear ranker and trees, in the order of the portfolio."""
MIN_QUERIES = 10
"""Minimum number of queries for a selection without validation data."""
DEFAULT_SEARCH: Mapping[str, Any] = {"time_budget": None, "max_trials": len(BLENDED_SYSTEMS)}
"""Options with which `AutoRanker` fits and blends only `BLENDED_SYSTEMS`."""
_MIN_QUERIES_TO_HOLD_OUT = 30  # the smallest training set on which the blend was measured


def default_systems(train: RankingData, valid: RankingData | None) -> tuple[str, ...]:
    """Return the names of the systems to train by default; several systems are blended by `DEFAULT_SEARCH`.

    The blend needs validation queries: `valid`, or a quarter of at least 30 training queries whose documents differ in
    their labels. With fewer queries, one system is trained with its defaults.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, seed=0)
    >>> default_systems(data, None), default_systems(data.select(range(20)), None)
    (('ListNet', 'YetiRank'), ('OWPC-constant',))
    """
    if valid is not None:
        return BLENDED_SYSTEMS
    n_informative = int((train.queries.max(train.labels) > train.queries.min(train.labels)).sum())
    return BLENDED_SYSTEMS if n_informative >= _MIN_QUERIES_TO_HOLD_OUT else (DEFAULT,)


class TooFewQueriesWarning(UserWarning):
    """Warning that `AutoRanker` trained the default system because there were too few queries for a selection."""


def default_choice(
    data: RankingData, metric: str, convention: str | Convention, *, time_budget: float, seed: int, threads: int | None
) -> SelectionResult:
    """Train the default system with its defaults on all queries, and return it as a result without evaluation."""
    measure, rules = parse(metric), Convention.from_name(convention)
    name = default_systems(data, None)[-1]
    ranker: Ranker = make(name)
    more = {"seed": seed, "threads": threads}
    ranker.set_params(**{option: more[option] for option in more.keys() & ranker.get_params(deep=False).keys()})
    with TimeLimit(time_budget) as limit:
        ranker.fit(data)
    sentence = (
        f"AutoRanker needs at least {MIN_QUERIES} queries to hold some out, but the data have "
        f"{queries(data.n_queries)}, so it trained {name} with its defaults. Pass validation data or more "
        "queries for a selection."
    )
    ranker.training_ |= {"auto": {"chosen": name, "refitted": False, "summary": sentence}}
    return SelectionResult(
        ranker=ranker,
        name=name,
        options={},
        metric=str(measure),
        convention=rules.name,
        value=math.nan,
        evaluated_on="no queries",
        trials=[],
        sentences=(sentence,),
        stopped="too few queries for a selection",
        timed_out=limit.passed,
        interrupted=bool(getattr(ranker, "interrupted_", False)),
    )
