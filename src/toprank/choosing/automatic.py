"""`auto`: from data to a ranker without a choice to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.choosing.decision import Choice, Decision, Told, decide, table_of, tell
from toprank.choosing.portfolio import Clock, Trial, Trials, portfolio, quietly, run_trials
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.data.unjudged import choose_a_rule
from toprank.data.warnings import same_content
from toprank.errors import DataError, Remedy
from toprank.metrics.evaluation import Judge
from toprank.rankers.blend import BlendRanker
from toprank.rankers.estimator import unfitted
from toprank.showing.progress import SILENCE, step
from toprank.showing.progress import Told as Line
from toprank.systems import DEFAULT

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["auto"]

_HELD_OUT = 0.25
_FEWEST = 10
_SEARCH_SHARE = 0.7  # of the budget, where the rest is needed to train once more on all the data


def auto(
    train: RankingData,
    valid: RankingData | None = None,
    *,
    metric: str = "ndcg@10",
    convention: str = "standard",
    budget: float = 120.0,
    blend: bool = True,
    seed: int = 0,
    threads: int | None = None,
    by: str | None = None,
    verbose: bool | None = None,
) -> Choice:
    """Try a short portfolio of rankers within a budget of time, and choose on validation data with statistics.

    Linear models, expected-gain models and trees under several losses are fitted on `train`; the trees are small where
    the data are. Those whose paired 95 % interval (over the validation queries) does not rule out that they are as
    good as the best are blended, at most twelve, with weights that fall with the evidence against them. Where the
    budget does not bind, the result is decided by data, seed and number of threads; `Choice.budget_bound` and the story
    say whether it did.

    Args:
        train: data to fit on.
        valid: data to choose on, never trained on. None: a quarter of the queries of `train`, drawn by seed, is held
            out; after the choice the model is trained again on all of `train`, with the hyper-parameters and rounds
            that were found, if the time allows it.
        by: a carried column of dates or numbers: the latest quarter is held out instead, see `toprank.split`.
        metric: what to choose by.
        convention: the rules of that metric.
        budget: seconds. A candidate that is not expected to fit is left out, and trees are stopped when their time is
            over; the first candidate, a quick one, is always fitted.
        blend: whether the best few may be blended; False: the best one is taken.
        seed: decides what is held out, and all sampling of the candidates.
        threads: number of threads of each candidate.
        verbose: tell each candidate on standard error; in a notebook, in one line that is written over. None: from the
            third second on; False: never.

    An interrupt from the keyboard ends the search; the best of what was fitted until then is the answer.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, n_features=4, n_grades=3, seed=0)
    >>> choice = auto(data, budget=2.0, threads=1)
    >>> choice.held_out, choice.ranker.predict(data).shape == (data.n_documents,)
    (15, True)
    """
    _check(train, valid, budget, seed, by)
    seed, clock = int(seed), Clock(budget)
    learned, judged = (train, valid) if valid is not None else _held_out(train, seed, by)
    _check_labels(learned, "train")
    _check_labels(judged, "valid" if valid is not None else "held-out part of train")
    judge = Judge(judged, metric, convention=convention, threads=threads).for_choosing()
    search = clock if valid is not None else Clock(_SEARCH_SHARE * budget)
    entries = portfolio(learned, metric, convention, seed, threads)
    quiet, line = verbose is False, Line(after=SILENCE if verbose is None else 0.0)
    with step(f"Trying systems for about {budget:g} s …", quiet, line):
        trials = run_trials(entries, learned, judge, search, None if quiet else line, _new_to(learned, train))
    decision = decide(trials.done, judge, blend)
    with step(f"Training the choice again on all {train.n_queries:,} queries …", quiet, line):
        outcome = Outcome(decision.ranker) if valid is not None else _on_all(decision, train, clock, trials.interrupted)
    told = Told(
        judge,
        learned.n_queries,
        valid is None,
        seed,
        budget,
        outcome.sentence,
        outcome.out_of_time,
        outcome.interrupted,
        by,
    )
    return _choice(outcome, decision, trials, told)


def _held_out(train: RankingData, seed: int, by: str | None) -> tuple[RankingData, ...]:
    """What is learned from, and a quarter of the queries to choose on: drawn, or the latest."""
    shares = (1 - _HELD_OUT, _HELD_OUT)
    return split(train, shares, seed=seed) if by is None else split(train, shares, by=by)


def _check(train: Any, valid: Any, budget: Any, seed: Any, by: str | None) -> None:
    for name, data in (("train", train), ("valid", valid)):
        if not isinstance(data, RankingData) and not (name == "valid" and data is None):
            raise DataError(f"{name} must be a RankingData: tr.RankingData(X, y, qid=qid), or tr.read(path).")
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.integer | np.floating) or not budget > 0:
        raise DataError(f"budget must be a number of seconds above 0, not {budget!r}.")
    check_whole("seed", seed, 0, below=2**31)
    if valid is None and train.n_queries < _FEWEST:
        raise DataError(
            f"auto chooses on queries that it does not learn from, but there are only {train.n_queries} in all: too "
            f"few to hold some out (at least {_FEWEST}).",
            remedy=Remedy(f"Give {{valid}} data, or train one system, such as {DEFAULT}.", valid=...),
        )
    if valid is not None and by is not None:
        raise DataError(
            "Validation data are given, so nothing is held out by time; leave one of the two out:",
            remedy=Remedy("{valid} or {by}.", valid=..., by=...),
        )
    if valid is not None and same_content(train, valid):
        raise DataError(
            "The validation data are the training data, on which learning by heart would win. Leave",
            remedy=Remedy("{valid} out: a quarter of the queries is held out then.", valid=...),
        )
    if valid is not None and valid.n_features != train.n_features:
        raise DataError(
            f"train has {train.n_features} features and valid {valid.n_features};",
            remedy=Remedy("read both with the same n_features=.", "they must be the same."),
        )


def _check_labels(data: RankingData, name: str) -> None:
    if not data.judged.all():
        raise DataError(
            f"{int((~data.judged).sum()):,} documents of the {name} data are not judged (label NaN or -1);",
            remedy=choose_a_rule("leave them out: data.keep(data.judged)."),
        )
    if not (data.queries.max(data.labels) > data.queries.min(data.labels)).any():
        raise DataError(
            f"In every query of the {name} data all documents have the same label, so there is no order to learn or to "
            "judge by. auto needs queries with documents of different grades."
        )


def _new_to(learned: RankingData, train: RankingData) -> RankingData | None:
    """A few queries of `train` with the labels that `learned` lacks; None where it has them all.

    A candidate that refuses them could not be trained again on all the data. What a label is refused for is that it is
    too large, too small or no whole number, so that a query for each is enough.
    """
    labels = train.labels
    new = ~np.isin(labels, learned.labels)
    if not new.any():
        return None
    rows = np.flatnonzero(new)
    odd = rows[labels[rows] != np.floor(labels[rows])]
    several = np.flatnonzero(train.queries.max(labels) > train.queries.min(labels))  # something to learn, besides
    documents = [rows[np.argmin(labels[rows])], rows[np.argmax(labels[rows])], *odd[:1]]
    holding = train.queries.document_query[documents]
    return train.select(np.unique([*holding, *several[:1]]))


class Outcome(NamedTuple):
    """The final ranker."""

    ranker: Ranker
    sentence: str = ""
    """What became of training it again on all the data."""
    out_of_time: bool = False
    interrupted: bool = False


def _on_all(decision: Decision, train: RankingData, clock: Clock, interrupted: bool) -> Outcome:
    """The chosen ranker trained again on all the data."""
    chosen = decision.members if decision.blended else decision.order[:1]
    if interrupted:
        return Outcome(decision.ranker, "It was not trained again on all the data, since the search was interrupted.")
    expected = sum(trial.seconds for trial in chosen) / (1 - _HELD_OUT)  # at most: trees now make the best rounds only
    if expected > clock.left:
        return Outcome(decision.ranker, "It was not trained again on all the data for lack of time.", True)
    members = []
    try:
        with quietly():
            for trial in chosen:
                members.append(settled(trial).fit(train))
                if members[-1].was_interrupted:
                    raise KeyboardInterrupt
            ranker = BlendRanker.of(members, train, decision.weights) if decision.blended else members[0]
    except KeyboardInterrupt:
        sentence = "Training it again on all the data was interrupted, so it is as it was chosen."
        return Outcome(decision.ranker, sentence, interrupted=True)
    except DataError as problem:
        return Outcome(decision.ranker, f"It could not be trained again on all the data, so it is as chosen: {problem}")
    sentence = f"It was then trained again on all {train.n_queries:,} queries, with the settings that were found."
    if isinstance(ranker, BlendRanker) and decision.blended:
        ranker.scales_ = decision.ranker.scales_  # the spread of scores on queries that a member has not seen
    return Outcome(ranker, sentence)


def settled(trial: Trial) -> Ranker:
    """An unfitted copy whose penalty or number of rounds is the one that validation found."""
    ranker: Ranker = unfitted(trial.ranker)
    rounds = ranker.rounds
    if rounds is None:
        ranker.set_params(l2=trial.ranker.l2_)
    else:
        ranker.set_params(**{rounds.option: getattr(trial.ranker, rounds.kept), "early_stopping": None})
    return ranker


def _choice(outcome: Outcome, decision: Decision, trials: Trials, told: Told) -> Choice:
    judge, ranker = told.judge, outcome.ranker
    name = f"blend of {len(decision.members)}" if decision.blended else decision.order[0].name
    value, story = float(np.nanmean(decision.values)), tell(decision, trials, told)
    refitted = ranker is not decision.ranker
    ranker.training_ |= {
        "valid": {judge.name: value, "convention": judge.convention.name},
        "auto": {"chosen": name, "refitted": refitted, "story": story},
    }
    return Choice(
        ranker=ranker,
        name=name,
        story=story,
        table=table_of(decision),
        metric=judge.name,
        convention=judge.convention.name,
        value=value,
        held_out=judge.data.n_queries if told.held_out else None,
        refitted=refitted,
        not_tried=tuple(trials.skipped),
        refused=trials.refused,
        budget_bound=trials.budget_bound or outcome.out_of_time,
        interrupted=trials.interrupted or outcome.interrupted,
    )
