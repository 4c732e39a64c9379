"""`AutoRanker`, a ranker that selects its own model, and the function `auto`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, TimeLimit
from toprank.data.arguments import check_flag, check_number, check_whole
from toprank.data.dataset import RankingData, same_content
from toprank.data.unjudged import choose_a_rule
from toprank.display.progress import SILENCE, ProgressLine, step
from toprank.errors import DataError, Remedy
from toprank.model_selection.decision import Decision, SummaryFacts, decide, rows_of, summary_of
from toprank.model_selection.default import MIN_QUERIES, TooFewQueriesWarning, default_choice
from toprank.model_selection.hold_out import as_data, divide
from toprank.model_selection.portfolio import PortfolioSearch, RefitPlan, RefittedTrial, portfolio
from toprank.model_selection.result import SelectionResult
from toprank.model_selection.search import (
    Clock,
    Interrupts,
    Refit,
    Trial,
    TrialEvaluator,
    collect_warnings,
    refit_on_all,
)
from toprank.rankers.base import Ranker
from toprank.rankers.blend import BlendRanker
from toprank.rankers.contributions import EXACTLY, Contributions, Sampling, ScoreProfile
from toprank.rankers.estimator import check_is_fitted, is_fitted, unfitted
from toprank.rankers.formula import Part
from toprank.rankers.trees.cores import leaving_busy_cores

_HELD_OUT = 0.25
_MAX_IDLE_SHARE = 0.05  # of the time budget


class AutoRanker(Ranker):
    """Ranker that evaluates a portfolio of models within a time budget and keeps or blends the best.

    The portfolio holds linear models, expected-gain models and trees with several losses; trees are smaller on small
    data. Up to twelve candidates are blended: those that a paired 95 % interval over the validation queries does not
    separate from the best. The weight of a candidate decreases with the evidence against it.

    Without `valid` data, a quarter of the queries is held out for the selection. The selected models are then refitted
    on all queries with the hyper-parameters and numbers of rounds found, if time allows. With fewer than 10 queries and
    no `valid` data, the default system is trained instead and a `TooFewQueriesWarning` is issued.

    Args:
        time_budget: seconds for each `fit`, including the final training. Candidates that are expected to exceed it are
            skipped, and running ones are stopped at the next tree, step or line search. The first candidate, a fast
            linear model, is always fitted completely. None: no limit. Default 120.
        max_trials: maximum number of candidates, in the order of the portfolio. None (default): all of them. Without a
            time budget, the same data and seed give the same result bit for bit on any machine.
        metric: metric to select by. Default ``ndcg@10``.
        seed: seed of the held-out queries and of all sampling in the candidates.
        convention: evaluation convention of the metric.
        blend: whether the best candidates may be blended. False selects the single best.
        time_column: metadata column of dates or numbers; the latest quarter of the queries is held out instead of a
            random one, see `toprank.split`.
        threads: number of threads of each candidate.
        verbose: whether to report each candidate on standard error. None (default) reports from the third second on.

    Fitted attributes: `selection_`, a `SelectionResult` with all candidates and the reasons for the choice, and
    `ranker_`, the chosen ranker. Scores, explanations, exports and model files are those of `ranker_`, so a saved model
    loads as the chosen ranker; its `training_["auto"]` keeps the summary. Ctrl-C ends the search and keeps the best
    candidate fitted so far.

    >>> import toprank as tr
    >>> train, test = tr.split(tr.synthetic(n_queries=60, n_features=4, n_grades=3, seed=0), (0.7, 0.3))
    >>> ranker = tr.AutoRanker(time_budget=None, max_trials=2, threads=1).fit(train)
    >>> ranker.predict(test).shape == (test.n_documents,), ranker.selection_.refitted
    (True, True)
    """

    supports_categories: ClassVar[bool] = True  # each candidate handles categories itself

    ranker_: Ranker
    selection_: SelectionResult

    def __init__(
        self,
        time_budget: float | None = 120.0,
        max_trials: int | None = None,
        metric: str = "ndcg@10",
        seed: int = 0,
        *,
        convention: Any = "standard",
        blend: bool = True,
        time_column: str | None = None,
        threads: int | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.time_budget = time_budget
        self.max_trials = max_trials
        self.metric = metric
        self.seed = seed
        self.convention = convention
        self.blend = blend
        self.time_column = time_column
        self.threads = threads
        self.verbose = verbose

    # ---- fitting ----

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        if not isinstance(data, RankingData):
            raise DataError("AutoRanker learns from data in memory, not on a cluster.")
        clock = Clock(self.time_budget)
        if valid is None and data.n_queries < MIN_QUERIES:
            self._fall_back(data, clock)
            return
        division = divide(data, valid, seed=int(self.seed), time_column=self.time_column, holdout=_HELD_OUT)
        [(learned, judged, _)] = division.rounds
        _check_labels(learned, "train")
        _check_labels(judged, "held-out part of train" if valid is None else "valid")
        judge = TrialEvaluator(division, self.metric, self.convention, self.threads)
        judge.check()
        quiet, line = self.verbose is False, ProgressLine(after=SILENCE if self.verbose is None else 0.0)
        entries = portfolio(learned, judge.metric, judge.convention, int(self.seed), self.threads)
        refitting = RefitPlan(
            0.0 if valid is not None else 1 / (1 - _HELD_OUT), _queries_with_new_labels(learned, data)
        )
        tell = None if quiet else line
        search = PortfolioSearch(judge, clock, entries, refit=refitting, max_trials=self.max_trials, tell=tell)
        limit = "" if self.time_budget is None else f" for about {self.time_budget:g} s"
        refit, n_fits = None, -1
        # Spend the time left after the refit on further candidates. Members refitted before are not refitted again.
        while refit is None or (_can_continue(search, clock, refit) and search.n_fits > n_fits):
            n_fits = search.n_fits
            what = "systems" if refit is None else "further systems"
            with step(f"Trying {what}{limit} …", quiet, line), leaving_busy_cores():
                search.run()
            decision = decide(search.ranked, judge.on(judged), self.blend, search.default)
            search.chosen = frozenset(trial.name for trial in decision.chosen)
            again_on = f"Refitting the selected model on all {data.n_queries:,} queries …"
            with step(again_on, quiet, line), leaving_busy_cores():
                refit = Refit(decision.ranker) if valid is not None else _refit_decision(decision, data, clock, search)
        search.close()
        self._adopt(self._result(decision, search, refit))

    def _fall_back(self, data: RankingData, clock: Clock) -> None:
        """Train the default system and warn that there are too few queries for a selection."""
        options: dict[str, Any] = {"time_budget": clock.left, "seed": int(self.seed), "threads": self.threads}
        choice = default_choice(data, self.metric, self.convention, **options)
        self.warn_once(choice.summary, TooFewQueriesWarning)
        self._adopt(choice)

    def _adopt(self, choice: SelectionResult) -> None:
        """Take over the ranker and the result of a selection."""
        ranker = choice.ranker
        self.ranker_, self.selection_, self.interrupted_ = ranker, choice, choice.interrupted
        if ranker.text_ is not None:  # text statistics were learned by the selected ranker
            for name in ("text_", "n_features_in_", "feature_names_in_", "encoding_"):
                setattr(self, name, getattr(ranker, name))
        self.training_ |= {name: ranker.training_[name] for name in ("valid", "auto") if name in ranker.training_}

    @override
    def _with_matches(self, data: Any) -> Any:
        """Return the data unchanged: each candidate learns text statistics from its own training part."""
        self.text_ = None
        return data

    @override
    def check_parameters(self) -> None:
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, above=0)
        if self.max_trials is not None:
            check_whole("max_trials", self.max_trials, 1)
        check_whole("seed", self.seed, 0, below=2**31)
        check_flag("blend", self.blend)

    def _result(self, decision: Decision, search: PortfolioSearch, refit: Refit) -> SelectionResult:
        """Return the selection result, and store its summary in the ranker so that it is saved with the model."""
        division, seed = search.judge.division, int(self.seed)
        [(learned, judged, _)] = division.rounds
        judge = search.judge.on(judged)
        drawn = f"sampled with seed {seed}" if self.time_column is None else f"the latest by '{self.time_column}'"
        held_out = division.n_held_out is not None
        facts = SummaryFacts(judge, learned.n_queries, drawn if held_out else None, self.time_budget, refit)
        name = f"blend of {len(decision.members)}" if decision.blended else decision.chosen[0].name
        choice = SelectionResult(
            ranker=refit.ranker,
            name=name,
            options={},
            metric=judge.name,
            convention=judge.convention.name,
            value=float(np.nanmean(decision.values)),
            evaluated_on=division.description,
            trials=rows_of(decision) + [trial.row() for trial in search.in_state("refused", "not tried")],
            sentences=summary_of(decision, search, facts),
            stopped=search.stopped,
            n_held_out=division.n_held_out,
            refitted=refit.ranker is not decision.ranker,
            timed_out=search.timed_out or refit.out_of_time,
            interrupted=search.interrupts.happened or refit.interrupted,
        )
        refit.ranker.training_ |= {
            "valid": {judge.name: choice.value, "convention": judge.convention.name},
            "auto": {"chosen": name, "refitted": choice.refitted, "summary": choice.summary},
        }
        return choice

    # ---- everything else is delegated to the selected ranker ----

    @override
    def predict(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Return the scores of the selected ranker; see `Ranker.predict`."""
        check_is_fitted(self)
        return self.ranker_.predict(X, qid)

    @override
    def query_scores(self, X: FloatArray) -> FloatArray:
        return self.ranker_.query_scores(X)

    def _scores(self, X: Any) -> FloatArray:
        return self.ranker_._scores(X)

    @override
    def formula(self) -> Part:
        check_is_fitted(self)
        return self.ranker_.formula()

    @override
    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        return self.ranker_.contributions(query, of, against, sampling)

    @override
    def score_profile(self, feature: int) -> ScoreProfile | None:
        return self.ranker_.score_profile(feature)

    @property
    def category_columns(self) -> frozenset[int]:
        """Category columns of the selected ranker."""
        return self.ranker_.category_columns

    @property
    def supports_missing(self) -> bool:  # type: ignore[override]
        """True if the selected ranker accepts missing values; before fitting, some candidates do."""
        return not is_fitted(self) or self.ranker_.supports_missing

    @property
    def uses_query_context(self) -> bool:
        """True if the selected ranker scores whole queries."""
        return self.ranker_.uses_query_context

    @property
    def explains_exactly(self) -> bool:
        """True if the selected ranker computes exact contributions."""
        return self.ranker_.explains_exactly

    @property
    def feature_importances_(self) -> FloatArray:
        """Feature importances of the selected ranker."""
        check_is_fitted(self)
        shares: FloatArray = self.ranker_.feature_importances_
        return shares

    @override
    def saved_ranker(self) -> Ranker:
        """Return the selected ranker; a model file stores only this ranker."""
        check_is_fitted(self)
        return self.ranker_.saved_ranker()


def auto(
    train: RankingData,
    valid: RankingData | None = None,
    *,
    metric: str = "ndcg@10",
    convention: str = "standard",
    time_budget: float | None = 120.0,
    max_trials: int | None = None,
    blend: bool = True,
    seed: int = 0,
    threads: int | None = None,
    time_column: str | None = None,
    verbose: bool | None = None,
) -> SelectionResult:
    """Run `AutoRanker` in one call and return its `SelectionResult`, whose `ranker` is the chosen one.

    Args:
        train: training data, a `RankingData` or a tuple (X, y, qid).
        valid: validation data in the same form. None (default) holds out a quarter of the queries of `train`.
        metric: metric to select by. Default ``ndcg@10``.
        convention: evaluation convention of the metric.
        time_budget: seconds for the search and the final training together. None: no limit.
        max_trials: maximum number of candidates. None (default): all.
        blend: whether the best candidates may be blended. False selects the single best.
        seed: seed of the held-out queries and of all sampling in the candidates.
        threads: number of threads of each candidate.
        time_column: metadata column of dates or numbers; the latest quarter of the queries is then held out.
        verbose: whether to report each candidate on standard error. None (default) reports from the third second on.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, n_features=4, n_grades=3, seed=0)
    >>> choice = auto(data, time_budget=2.0, threads=1)
    >>> choice.n_held_out, choice.ranker.predict(data).shape == (data.n_documents,)
    (15, True)
    """
    train, valid = as_data(train, "train"), None if valid is None else as_data(valid, "valid")
    if valid is not None and same_content(train, valid):
        raise DataError(
            "The validation data are identical to the training data, which would reward overfitting. Omit",
            remedy=Remedy("{valid}: a quarter of the queries is then held out.", valid=...),
        )
    if valid is not None:
        divide(train, valid, time_column=time_column)  # refuse wrong data with the search's own messages
    ranker = AutoRanker(
        time_budget,
        max_trials,
        metric,
        seed,
        convention=convention,
        blend=blend,
        time_column=time_column,
        threads=threads,
        verbose=verbose,
    )
    return ranker.fit(train, valid=valid).selection_


def _check_labels(data: RankingData, name: str) -> None:
    if not data.judged.all():
        raise DataError(
            f"{data.n_unjudged:,} documents of the {name} data are not judged (label NaN or -1);",
            remedy=choose_a_rule("leave them out: data.filter(data.judged)."),
        )
    if not (data.queries.max(data.labels) > data.queries.min(data.labels)).any():
        raise DataError(
            f"All documents of each query in the {name} data have the same label, so there is nothing to learn or to "
            "evaluate. auto needs queries with documents of different grades."
        )


def _queries_with_new_labels(learned: RankingData, train: RankingData) -> RankingData | None:
    """Return a few queries of `train` that contain the labels missing from `learned`, or None if none are missing.

    A candidate that cannot train on these labels could not be refitted on all the data. Labels are refused only if they
    are too large, too small or fractional, so one query with each of these is enough.
    """
    labels = train.labels
    new = ~np.isin(labels, learned.labels)
    if not new.any():
        return None
    rows = np.flatnonzero(new)
    odd = rows[labels[rows] != np.floor(labels[rows])]
    several = np.flatnonzero(train.queries.max(labels) > train.queries.min(labels))  # queries with labels to learn from
    documents = [rows[np.argmin(labels[rows])], rows[np.argmax(labels[rows])], *odd[:1]]
    holding = train.queries.document_query[documents]
    return train.select(np.unique([*holding, *several[:1]]))


def _can_continue(search: PortfolioSearch, clock: Clock, refit: Refit) -> bool:
    """Return whether candidates and time are left."""
    stopped = search.interrupts.happened or refit.interrupted
    return not (search.is_over or stopped) and clock.left > _MAX_IDLE_SHARE * clock.time_budget


def _refit_decision(decision: Decision, train: RankingData, clock: Clock, search: PortfolioSearch) -> Refit:
    """Refit the selected ranker on all the data; of a blend, refit as many members as time allows."""
    if search.interrupts.happened:
        return Refit(decision.ranker, "It was not refitted on all the data, because the search was interrupted.")
    names = [trial.name for trial in decision.chosen]
    # Refit the default system first, so that the result is at least as good as the default system alone.
    order = sorted(decision.chosen, key=lambda trial: (trial.name not in search.default, names.index(trial.name)))
    interrupts = Interrupts()
    try:
        with interrupts, collect_warnings():
            for trial in order:
                if search.is_refitted(trial) or search.refit_seconds([trial]) > clock.left:
                    continue
                with TimeLimit(clock.left) as limit:
                    again = interrupts.run_fit(partial(_refit_trial, trial, train))
                if again is None:
                    sentence = "The refit on all the data was interrupted, so the model of the search is kept."
                    return Refit(decision.ranker, sentence, interrupted=True)
                if not limit.passed:
                    search.refitted[trial.name] = RefittedTrial(trial.rounds, again)
            done = [trial.name for trial in decision.chosen if trial.name in search.refitted]
            members = [
                search.refitted[trial.name].ranker if trial.name in done else trial.ranker for trial in decision.chosen
            ]
            if not done:
                sentence = "It was not refitted on all the data for lack of time."
                return Refit(decision.ranker, sentence, out_of_time=True)
            ranker = BlendRanker.from_fitted(members, train, decision.weights) if decision.blended else members[0]
    except DataError as problem:
        return Refit(
            decision.ranker, f"The refit on all the data failed, so the model of the search is kept: {problem}"
        )
    if isinstance(ranker, BlendRanker) and decision.blended:
        ranker.scales_ = decision.ranker.scales_  # score spreads on held-out queries
    sentence = f"It was then refitted on all {train.n_queries:,} queries with the selected settings."
    if late := len(members) - len(done):
        sentence = (
            f"{', '.join(done)} {'was' if len(done) == 1 else 'were'} then refitted on all {train.n_queries:,} "
            f"queries with the selected settings; time did not allow refitting the other {late}."
        )
    return Refit(ranker, sentence, out_of_time=late > 0)


def _refit_trial(trial: Trial, train: RankingData) -> Ranker:
    """Fit the ranker of a trial on all the data, with the penalty and number of rounds selected on validation data."""
    ranker: Ranker = unfitted(trial.ranker)
    if ranker.rounds is None:
        ranker.set_params(l2=trial.ranker.l2_)
    again: Ranker = refit_on_all(ranker, trial.rounds, train)
    return again
