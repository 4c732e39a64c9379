"""Rankers trained on clicks, corrected for where documents stood, with the naive one beside.

Corrected clicks are right in expectation only. A loss whose gradient is an affine function of the gains
(`traits.linear_in_gain`) has then a gradient that is right in expectation, and training goes where labels would lead;
under any other loss the noise of the estimates becomes a bias. So other losses are trained in the form that is linear
where they have one, and refused otherwise, unless an approximation is asked for by name.

The clicks that trained a ranker flatter it. So each part of the queries is ranked by rankers that were trained on the
sessions of the others, and the clicks on these rankings compare the rankers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.contexts import Context
from toprank.clicks.corrections import (
    CORRECTIONS,
    Corrected,
    correct,
    curves_of,
    judged,
    session_queries,
)
from toprank.clicks.curves import Curves, contradiction
from toprank.clicks.evaluation import clipped, judge_by, left_out, ranks_of
from toprank.clicks.harvests import HARVESTED
from toprank.clicks.known_sessions import KnownSessions
from toprank.clicks.log import REWARDS, ClickLog, UnidentifiedWarning, check_log, named
from toprank.clicks.position_term import PositionCells, PositionSoftmax
from toprank.clicks.recency import Recency, Span, latest, recent
from toprank.clicks.simulation import relevance_of
from toprank.compute import FloatArray
from toprank.data.checks import check_data, check_flag, check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError, Remedy, UnknownNameError
from toprank.losses import LambdaLoss, Loss, Multicategory, SafeDCG
from toprank.losses import make as make_loss
from toprank.losses.safe import mean_exposure
from toprank.metrics.conventions import Discount
from toprank.metrics.evaluation import evaluate as evaluate_labels
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.rankers.estimator import unfitted
from toprank.rankers.linear.expected_gain import ExpectedGainRanker
from toprank.rankers.trees.ranker import TreeRanker
from toprank.showing.pictures import Picture, signed_bars
from toprank.showing.tables import Kind, Part, Shown, Table, bracketed, frame_of
from toprank.significance import Interval, bootstrap_interval

_METRICS = {"click": "dcg@10", "value": "value-dcg@10"}
_FULL = "full information"
_ROUGHLY = 1e-3  # tolerance of a loss that is not convex: its last digits cost much and say nothing
_LINEAR_FORMS: dict[str, Loss] = {
    "ListNet": Multicategory(gain=None),
    "XENDCG": Multicategory(gain=None),
    "Logistic": LambdaLoss("arp1"),
}
_ASSUMED = {
    "none": "users look at every position alike, or click what is best wherever it stands.",
    "ips": (
        "users click only what they look at, the chance that they look depends on the position alone and is known, and "
        "nobody clicks a worthless document out of trust in its position."
    ),
    "affine": "the chance of a click is α·R + β, where α and β depend on the position alone and are known.",
    "position": (
        "the chance of a click is what the document is worth times the chance that users look at its position, and "
        "documents like it stood at several positions."
    ),
    "dr": (
        "the chance of a click is α·R + β, where α and β depend on the position alone and are known; and the "
        "regression is right about documents that were hardly or never looked at."
    ),
}
_ASSUMED |= {
    "snips": _ASSUMED["affine"],
    "safe": (
        f"{_ASSUMED['affine'][:-1]}; where this fails, the ranker cannot have gained by moving exposure further from "
        "the log's than the band allows."
    ),
}


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """A ranker trained on clicks, and the naive one.

    Attributes:
        ranker: trained on corrected clicks.
        naive: the same ranker trained on the rates of clicks as they are.
        full: the same ranker trained on the labels of the data, where it was asked for.
        correction: how clicks were corrected.
        curves: α and β of the positions; None where none were needed.
        data: what `ranker` was trained on: documents with their corrected relevance as labels, queries weighted by
            their sessions.
        loss: what it was trained under, and the loss it stands for.
        assumption: what would have to hold for the correction to be right.
        approximate: whether the loss is not linear in the gains.
        estimates: of each ranker by name, DCG@10 of the documents that were shown, by ``snips``, where rankers that saw
            no session of a query rank it: those of its kind that were trained on the other queries' sessions. Empty
            where the log cannot tell.
        gains: of each ranker but the naive one, by how much its estimate is above the naive one's, paired by query.
        metrics: of each ranker by name, NDCG@10 on the labels of `valid`; empty without.
        valid_gains: and by how much that is above the naive one's.
        counts: impressions, those that were left out and why, those divided by the least propensity, documents, those
            never shown, sessions without clicks, labels below 0.
        folds: into how many parts the queries were cut, each held out once; 0: nothing was held out.
        not_compared: why there are no `estimates`, as a sentence; empty where there are.
        reward: what was learnt, ``click`` or ``value``; of values, DCG@10 is that of what documents bring.
        clip: the least propensity that was divided by; 0 where all were divided by their own.
        recency: how sessions were weighed by their age; None if all count alike.
        held_out: the latest sessions, which no ranker learned from and which the estimates are from, in words; empty
            where parts of the queries were held out in turn.
        contradiction: how documents that stood at several positions contradict the propensities, in words; empty if
            they do not.
    """

    ranker: Ranker
    naive: Ranker
    full: Ranker | None
    correction: str
    curves: Curves | None
    data: RankingData
    loss: tuple[Loss, Loss]
    assumption: str
    approximate: bool
    estimates: dict[str, Interval]
    metrics: dict[str, Interval]
    counts: dict[str, int]
    gains: dict[str, Interval] = field(default_factory=dict)
    valid_gains: dict[str, Interval] = field(default_factory=dict)
    folds: int = 0
    clip: float = 0.0
    not_compared: str = ""
    reward: str = "click"
    recency: Recency | None = None
    held_out: str = ""
    contradiction: str = ""

    @property
    def choice(self) -> str:
        """Which ranker to take: the debiased one where it is shown to be better, and otherwise the naive one.

        What clicks on held-out queries say decides; the labels of `valid` do where these say nothing.
        """
        gain = (self.gains or self.valid_gains).get(self.correction)
        return self.correction if gain is not None and gain.low > 0 else "naive"

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was trained, and the rankers side by side."""
        facts: dict[str, Any] = {
            "summary": self.summary, "correction": self.correction, "loss": str(self.loss[0]),
            "asked": str(self.loss[1]),
            "approximate": self.approximate, "assumption": self.assumption, "counts": self.counts, "folds": self.folds,
            "clip": self.clip, "choice": self.choice, "not_compared": self.not_compared or None,
            "reward": self.reward, "recency": None if self.recency is None else self.recency.to_dict(),
            "held_out": self.held_out or None, "contradiction": self.contradiction or None,
        }  # fmt: skip
        for name, worth in self._numbers().items():
            facts[name] = {ranker: interval.to_dict() for ranker, interval in worth.items()} or None
        return facts

    @property
    def summary(self) -> str:
        """What was trained on what, what must hold, what was left out, and which ranker to take."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        counts, (used, requested) = self.counts, self.loss
        words = [
            f"Trained on {counts['impressions']:,} impressions of {counts['documents']:,} documents, corrected by "
            f"{self.correction!r}. It is right if {self.assumption}"
        ]
        if self.recency is not None:
            words.append(str(self.recency))
        if self.held_out:
            words.append(f"Held out: {self.held_out}; neither ranker learned from them.")
        if self.approximate:
            words.append(
                f"An approximation: {type(requested).__name__} is not linear in the gains, so estimates of relevance "
                "were clipped to [0, 1] and used as labels. Noise in the clicks becomes a bias, which shrinks as "
                "clicks grow."
            )
        elif self.correction in ("safe", "position"):
            words.append(f"{self.correction!r} has a loss of its own; {requested} was not used.")
        elif type(used) is not type(requested):
            words.append(
                f"{type(requested).__name__} is not linear in the gains; it was trained in its linear form, {used}."
            )
        if self.curves is not None and self.curves.layout is not None:
            words.append(self.curves.layout.sentence)
        words += [self.contradiction] if self.contradiction else []
        words += left_out(counts["unknown"], counts["uncorrected"])
        words += clipped(self.clip, counts["clipped"], self.correction)
        if counts["never_shown"]:
            known = "taken to be worth what the regression says" if self.correction == "dr" else "left out"
            words.append(f"{counts['never_shown']:,} documents of these queries were never shown: {known}.")
            if self.estimates:
                words.append("DCG@10 here counts only documents that the log showed.")
        if counts["clickless_sessions"]:
            words.append(f"{counts['clickless_sessions']:,} sessions have no click; they count as skips.")
        return words if self.correction == "none" else [*words, self._verdict()]

    def _verdict(self) -> str:
        """Whether the debiased ranker is shown to be better than the naive one, and so which to take."""
        where = "On the latest sessions" if self.held_out else "On held-out queries"
        grounds = [(where, "DCG@10", self.gains), ("By the labels", "NDCG@10", self.valid_gains)]
        comparisons = [(where, metric, gains[self.correction]) for where, metric, gains in grounds if gains]
        words = [
            f"{where} {self.correction!r} gains {gain.value:+.4f} of {metric} over the naive model"
            f"{', interval ' if _signed(gain) else ''}{_signed(gain)}."
            for where, metric, gain in comparisons
        ]
        if not self.gains:
            words.append(f"The clicks cannot compare the models: {self.not_compared}")
        if self.choice != "naive":
            return " ".join([*words, f"The choice is {self.correction!r}."])
        worse = comparisons and comparisons[0][2].high < 0
        words.append(
            f"{self.correction!r} is {'worse' if worse else 'not shown to be better'}: the choice is the naive model."
        )
        if self.correction != "dr":
            words.append("With few clicks, the correction 'dr' with a linear model is the safer choice.")
        return " ".join(words)

    @property
    def compared_by(self) -> tuple[str, ...]:
        """The comparisons that there are, as `plot` takes them."""
        return tuple(name for name, worth in self._numbers().items() if worth)

    def plot(self, by: str = "gain") -> Picture:
        """A bar for each ranker, with its interval: by ``dcg@10``, ``gain``, ``valid_ndcg@10`` or ``valid_gain``."""
        if by not in self.compared_by:
            raise UnknownNameError("comparison of these rankers", by, self.compared_by)
        rows = []
        for name, worth in self._numbers()[by].items():
            known = np.isfinite(worth.low) and np.isfinite(worth.high)
            low, high = worth if known else (worth.value, worth.value)
            words = f"{name}: {worth.value:.4f}" + (f", {low:.4f} to {high:.4f}" if known else "")
            rows.append((name, words, worth.value, low, high))
        return signed_bars(f"Rankers trained on clicks, by {by}", rows, by)

    def _numbers(self) -> dict[str, dict[str, Interval]]:
        of_clicks = {"dcg@10": self.estimates, "gain": self.gains}
        return of_clicks | {"valid_ndcg@10": self.metrics, "valid_gain": self.valid_gains}

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each ranker: its metrics and gains with the ends of their intervals; None where not known."""
        names = list(dict.fromkeys(("naive", self.correction, *self.estimates, *self.metrics)))
        columns: dict[str, list[Any]] = {"model": [name for name in names if name != "none"]}
        for metric, worth in self._numbers().items():
            rows = [worth[name].to_dict() if name in worth else {} for name in columns["model"]]
            columns |= {f"{metric} {side}": [row.get(side) for row in rows] for side in ("value", "low", "high")}
        return frame_of(columns, kind)

    def table(self) -> Table | None:
        """The rankers side by side, with intervals over queries; None where nothing compares them."""
        columns = [
            (f"DCG@10 ({'latest sessions' if self.held_out else 'held-out queries'})", self.estimates, self.gains),
            ("NDCG@10 (validation)", self.metrics, self.valid_gains),
        ]
        judged_by = [column for column in columns if column[1]]
        if not judged_by:
            return None

        def cells(name: str, worth: Mapping[str, Interval], gains: Mapping[str, Interval]) -> tuple[str, ...]:
            gain = (f"{gains[name].value:+.4f}", _signed(gains[name])) if name in gains else ("", "")
            interval = worth[name]
            return (f"{interval.value:.4f}", bracketed(interval.low, interval.high, digits=4), *gain)

        heads = [cell for head, *_ in judged_by for cell in (head, "95% interval", "over naive", "95% interval")]
        rows = [(name, *(cell for _, *both in judged_by for cell in cells(name, *both))) for name in judged_by[0][1]]
        return Table(("model", *heads), rows, names=1)

    def _parts(self) -> Sequence[Part]:
        table = self.table()
        return [*self._sentences(), *([] if table is None else [table])]


def train(
    ranker: Ranker,
    log: ClickLog,
    data: RankingData,
    correction: str = "affine",
    propensities: Any = None,
    *,
    context: Context | None = None,
    clip: float | None = None,
    regression: Any = None,
    within: float = 1.5,
    reward: str = "click",
    approximate: bool = False,
    full: bool = False,
    valid: RankingData | None = None,
    folds: int = 5,
    by: str | None = None,
    holdout: float = 0.2,
    half_life: Span | None = None,
    window: Span | None = None,
) -> Trained:
    """Train a ranker on clicks; the naive ranker, on the rates of clicks as they are, is trained beside it.

    Args:
        ranker: unfitted; its loss must be linear in the gains (Squared, QuerySquared, Multicategory, LambdaLoss with
            ``arp1``), or have such a form (ListNet, XENDCG: Multicategory; Logistic: ``arp1``).
        log: sessions of queries of `data`.
        data: documents with features; their labels are not looked at, but for `full`. Those of the log that they do not
            have are left out and counted, and so are those of the data that were never shown (but not under ``dr``).
        correction: ``none``, ``ips``, ``snips``, ``affine``, ``dr`` (see `toprank.clicks.corrections`), or ``safe``:
            ``affine``, under a loss of its own that gains nothing where a document gets more than `within` times more
            or less exposure than it had (`toprank.losses.SafeDCG`); or ``position``, for trees: a term for each
            position inside a softmax loss of the clicks, dropped where they score and kept as
            ``ranker.training_["clicks"]["position_biases"]``.
        propensities: one for each position, from the first on; α and β as two rows; what `propensities` gave, or a
            fitted PBM; None or the name of a method: found from the log (``dual`` and ``regression-em`` learn them with
            this ranker).
        context: column of the log (or several, crossed) whose contexts have propensities of their own, as in
            `toprank.clicks.propensities`; those that are given are then a mapping from contexts.
        clip: the least propensity to divide by, so that no click counts more than 1/clip; None: 0 where propensities
            are given, 10/√sessions where they are found from the log, and under ``dr``.
        regression: R̂ of ``dr``: a number for each document in the order of ``data.X``, or a fitted ranker; None: a
            linear regression on the corrected clicks of other queries.
        within: the factor of ``safe`` by which exposure may differ from the log's.
        reward: what the ranker is to bring to the top: ``click``, or the column ``value`` of the log.
        approximate: train a loss that is not linear in the gains all the same, on relevance held within 0 and 1.
        full: train it on the labels of `data` too, beside: full information, which more clicks should lead to.
        valid: labelled data: for what the ranker chooses on such data, and to compare the rankers on.
        folds: into how many parts queries are cut to compare the rankers: each part is ranked by rankers that were
            trained on the sessions of the others, so that training costs so many times more; 0: no such comparison. The
            rankers that are returned are trained on all sessions.
        by: a column of the log with times, such as ``time``: hold out the latest sessions instead. They compare the
            rankers, none of which learns from them, so that `launch` may judge by the same.
        holdout: the share of sessions to hold out.
        half_life: a session counts half for every such time that it is older than the newest one learned from:
            ``"14d"``, ``"36h"``, or seconds; None: for its age none counts less.
        window: leave out sessions that are older than this.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.known([1, 0.5, 0.2]), sessions=2000, k=3)
    >>> done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, propensities=[1, 0.5, 0.2])
    >>> done.ranker.predict(data).shape == done.naive.predict(data).shape
    True
    """
    known = (*CORRECTIONS, "safe", "position")
    if correction not in known:
        raise UnknownNameError("correction", correction, known)
    check_log(log)
    check_data("learning from clicks", data)
    check_flag("approximate", approximate)
    check_flag("full", full)
    check_number("within", within, least=1)
    check_whole("folds", folds, 0)
    if folds == 1:
        raise DataError("folds must be 2 or more, or 0 to hold nothing out.")
    cut = None if by is None else latest(log, by, holdout)
    log, recency = recent(log if cut is None else cut.early, half_life, window)
    requested = _loss_of(ranker)
    plain, used = _usable_loss(requested, correction, approximate), _own_loss(correction, within)
    _check_reward(reward, correction, plain, full)
    liked = _liked(data) if full else None
    task = _Task(ranker, data, correction, clip, regression, plain, used, valid, liked, reward)
    alone = correction in ("none", "position")
    if correction == "position" and context is not None:
        raise DataError("correction='position' learns one term per position, whatever the context; use 'affine'.")
    curves = None if alone and propensities is None else curves_of(propensities, log, data, ranker, context)
    _refuse_cells(curves, correction)
    if not log.rewards(reward).any():
        needed = "was clicked" if reward == "click" else "brought anything"
        raise DataError(f"No document of the log {needed}; nothing can be learnt from it.")
    fits = task.fitted(log, curves)
    rankers = fits.rankers
    facts = _facts(log, recency)
    for name, trained in rankers.items():
        if name != _FULL:
            correction_of = {"correction": "none" if name == "naive" else name}
            trained.training_["clicks"] = {**trained.training_.get("clicks", {}), **correction_of, **facts}
    if cut is None:
        estimates, gains, why = _held_out(task, log, propensities, context, curves, fits, folds)
    else:
        estimates, gains, why = _by_the_latest(task, cut.late, propensities, context, curves, fits)
    metrics, valid_gains = _by_labels(rankers, valid)
    trained_ranker = rankers["naive" if correction == "none" else correction]
    return Trained(
        trained_ranker, rankers["naive"], rankers.get(_FULL), correction, curves, fits.part, (used or plain, requested),
        _ASSUMED[correction], task.soft and used is None, estimates, metrics, _counts(fits, log, data), gains,
        valid_gains, folds if cut is None else 0, fits.corrected.clip, why, reward, recency,
        "" if cut is None else str(cut), "" if alone or curves is None else contradiction(curves, log),
    )  # fmt: skip


def _facts(log: ClickLog, recency: Recency | None) -> dict[str, Any]:
    """Return what a model file keeps of the log: its size, how age counted, and how to recognise its sessions."""
    facts: dict[str, Any] = {"sessions": log.n_sessions, "impressions": log.n_impressions}
    if recency is not None:
        facts |= {"half_life": recency.half_life, "window": recency.window}
    known = KnownSessions.of(log)
    return facts if known is None else {**facts, "known": known.plain()}


def _check_reward(reward: str, correction: str, loss: Loss, full: bool) -> None:
    """Refuse what is made for clicks, where values are to be learnt."""
    if reward not in REWARDS:
        raise UnknownNameError("reward", reward, REWARDS)
    if reward == "click":
        return
    if correction == "position":
        raise DataError("correction='position' learns from clicks, not values; use 'affine' or another for values.")
    if not loss.traits.linear_in_gain:
        raise DataError("The approximation clips relevance to [0, 1], which does not suit values; choose another loss.")
    if full:
        raise DataError("Training on labels (full) compares with clicks; labels say nothing about values.")


def _refuse_cells(curves: Curves | None, correction: str) -> None:
    """Refuse what counts exposure by rank, where positions are places within contexts."""
    if correction == "safe" and curves is not None and curves.layout is not None and curves.layout.varies:
        raise DataError(
            f"correction='safe' counts exposure by rank, but {curves.layout.called} varies within sessions, so "
            "positions are not ranks; use 'affine'."
        )


class _Fits(NamedTuple):
    """Rankers by name, what clicks were corrected to, and what the ranker asked for was trained on."""

    rankers: dict[str, Any]
    corrected: Corrected
    part: RankingData


class _Task(NamedTuple):
    """What to train, whatever the sessions."""

    ranker: Ranker
    data: RankingData
    correction: str
    clip: float | None
    regression: Any
    plain: Loss
    used: Loss | None
    valid: RankingData | None
    liked: RankingData | None
    reward: str = "click"

    @property
    def soft(self) -> bool:
        """Whether relevance is held within 0 and 1, for a loss that is not linear in the gains."""
        return not self.plain.traits.linear_in_gain

    def fitted(self, log: ClickLog, curves: Curves | None) -> _Fits:
        """The ranker that was asked for, the naive one, and that of full information, on these sessions."""
        data, correction = self.data, self.correction
        how = {"safe": "affine", "position": "none"}.get(correction, correction)
        corrected = correct(log, data, how, curves, self.clip, self.regression, self.reward)
        rankers = {}
        if correction == "position":
            rankers[correction], part = _with_positions(self.ranker, log, data, self.valid)
        else:
            part = _to_learn(corrected, data, log, correction == "safe", self.soft and self.used is None)
            made = _with_loss(self.ranker, self.used or self.plain).fit(part, valid=self.valid)
            rankers["naive" if correction == "none" else correction] = made
        if correction != "none":
            rates = _to_learn(correct(log, data, "none", None, reward=self.reward), data, log, False, self.soft)
            rankers["naive"] = _with_loss(self.ranker, self.plain).fit(rates, valid=self.valid)
        if self.liked is not None:
            rankers[_FULL] = _with_loss(self.ranker, self.plain).fit(self.liked, valid=self.valid)
        return _Fits(rankers, corrected, part)


def _counts(fits: _Fits, log: ClickLog, data: RankingData) -> dict[str, int]:
    corrected = fits.corrected
    shown_queries = corrected.asked & (data.queries.sum(corrected.shown) > 0)
    return {
        "impressions": int((corrected.weight > 0).sum()), "documents": int(np.isfinite(corrected.relevance).sum()),
        "unknown": corrected.unknown, "uncorrected": corrected.uncorrected, "clipped": corrected.clipped,
        "never_shown": int(((corrected.shown == 0) & data.queries.spread(shown_queries)).sum()),
        "negative": int((fits.part.labels < 0).sum()),
        "clickless_sessions": int((log.session_clicks == 0).sum()),
    }  # fmt: skip


def _liked(data: RankingData) -> RankingData:
    """The labels as relevance from 0 to 1, as clicks estimate it."""
    if not data.judged.all():
        raise DataError("Training on labels (full) needs a label for every document, but not all are judged.")
    return data.replace(labels=relevance_of(data))


def _loss_of(ranker: Any) -> Loss:
    if not isinstance(ranker, Ranker) or not hasattr(ranker, "loss"):
        raise DataError(
            f"{type(ranker).__name__} has no loss to train under; give a LinearRanker, a TreeRanker, a NeuralRanker or "
            "an ExpectedGainRanker."
        )
    return make_loss(ranker.loss)


def _own_loss(correction: str, within: float) -> Loss | None:
    """Return the loss of a correction that is a loss; None of others."""
    if correction == "safe":
        return SafeDCG(within)
    return Multicategory(gain=None) if correction == "position" else None


def _usable_loss(requested: Loss, correction: str, approximate: bool) -> Loss:
    """The loss to train under: linear in the gains, of which labels are estimates, unless it may be approximate."""
    name = type(requested).__name__
    if requested.traits.linear_in_gain:
        own = {field.name for field in fields(requested)}
        changes = {option: None for option in ("gain", "max_grade") if option in own}
        return replace(requested, **changes)
    if approximate:
        if requested.traits.space == "class":
            raise DataError(f"{name} takes grades as classes, which estimates of relevance are not. Choose Squared.")
        return requested
    if name in _LINEAR_FORMS:
        return _LINEAR_FORMS[name]
    if correction in ("safe", "position"):
        return Multicategory(gain=None)  # of the naive ranker: the other has a loss of its own
    raise DataError(
        f"{name} is not linear in the gains, so clicks that are right in expectation would train it with a bias. "
        "Choose Squared, QuerySquared, Multicategory, LambdaLoss(scheme='arp1'), ListNet or Logistic; or accept the "
        "approximation, which trains it on relevance clipped to [0, 1]:",
        remedy=Remedy("{approximate}.", approximate=True),
    )


def _to_learn(corrected: Corrected, data: RankingData, log: ClickLog, safe: bool, soft: bool) -> RankingData:
    """The data with the corrected relevance as labels, queries weighted by their sessions."""
    relevance = np.clip(corrected.relevance, 0.0, 1.0) if soft else corrected.relevance
    kept = np.isfinite(relevance)
    weights = corrected.sessions * (1.0 if data.query_weights is None else data.query_weights)
    changes: dict[str, Any] = {"query_weights": np.where(corrected.asked, weights, 0.0)}
    if safe:
        relevance, changes["document_weights"] = _banded(relevance, kept, corrected, data, log)
    changes["labels"] = judged(relevance)
    part = data.replace(**changes)
    return part if kept.all() else part.keep(kept)


def _banded(
    relevance: FloatArray, kept: npt.NDArray[np.bool_], corrected: Corrected, data: RankingData, log: ClickLog
) -> tuple[FloatArray, FloatArray]:
    """Return for ``safe`` how much better each document is than the mean of its query, and the exposure that it had."""
    if data.document_weights is not None:
        raise DataError("'safe' needs the document weights for its band, but the data have weights of their own.")
    queries, known = data.queries, corrected.row >= 0
    sizes = np.maximum(queries.sum(kept * 1.0), 1.0)
    mean = queries.spread(queries.sum(np.where(kept, relevance, 0.0)) / sizes)
    seen = Discount.of("log2").weights(log.depth)[log.position - 1] * log.impression_weights
    exposure = np.bincount(corrected.row[known], seen[known], minlength=data.n_documents)
    usual = mean_exposure(Queries.from_sizes(sizes.astype(np.int64))) * np.where(
        corrected.asked, corrected.sessions, 1.0
    )
    return relevance - mean, np.where(kept, exposure / queries.spread(usual), 0.0)


def _with_loss(ranker: Ranker, loss: Loss) -> Any:
    """An unfitted copy under this loss; expected gains are those of two grades, worthless and relevant."""
    copy = unfitted(ranker).set_params(loss=loss)
    if isinstance(copy, ExpectedGainRanker):
        copy.set_params(n_grades=2, gain="linear")
    if isinstance(loss, SafeDCG) and getattr(copy, "tolerance", 0.0) is None:
        copy.set_params(tolerance=_ROUGHLY)
    return copy


def _with_positions(
    ranker: Any, log: ClickLog, data: RankingData, valid: RankingData | None
) -> tuple[Any, RankingData]:
    """Trees with a term for each position, which they keep as ``training_["clicks"]["position_biases"]``."""
    if not isinstance(ranker, TreeRanker) or ranker.outputs != "score":
        raise DataError("correction='position' adds a term to the scores of trees; give a TreeRanker of one output.")
    cells = PositionCells.of(log, data)
    trees = _with_loss(ranker, PositionSoftmax(cells)).fit(cells.data, valid=valid)
    trees.set_params(loss=Multicategory(gain=None))  # without the positions that only training knows
    trees.training_["clicks"] = {"position_biases": cells.biases.tolist()}
    return trees, cells.data


def _held_out(
    task: _Task, log: ClickLog, propensities: Any, context: Context | None, curves: Curves | None, fits: _Fits,
    folds: int,
) -> tuple[dict[str, Interval], dict[str, Interval], str]:  # fmt: skip
    """What clicks say of rankings of queries by rankers that saw no session of them, and of the gains over the naive.

    Only of documents that were shown: of others the log knows nothing. If clicks say nothing, the third says why.
    """
    if not folds:
        return {}, {}, "nothing was held out."
    if task.correction == "none" and curves is None:
        return {}, {}, "no propensities are known."
    shown = named(task.data).keep(fits.corrected.shown > 0)
    query = session_queries(log, shown)
    queries = np.unique(query[query >= 0])
    if len(queries) < 2:
        return {}, {}, "all sessions are of one query, so none would be left to learn from."
    fold = np.full(shown.n_queries, -1)
    fold[queries] = np.random.default_rng(0).permutation(len(queries)) % folds
    try:
        of_session = np.where(query >= 0, fold[query], -1)
        scores = _cross_fitted(task, log, propensities, context, curves, shown, fold, of_session)
        return *_judged(task, scores, log, shown, propensities, context, curves), ""
    except DataError as problem:  # too few clicks, or positions that the sessions of the others do not tell apart
        return {}, {}, str(problem)


def _by_the_latest(
    task: _Task, late: ClickLog, propensities: Any, context: Context | None, curves: Curves | None, fits: _Fits
) -> tuple[dict[str, Interval], dict[str, Interval], str]:
    """`_held_out`, by what the latest sessions say of rankers that learned from earlier ones, of any queries."""
    if task.correction == "none" and curves is None:
        return {}, {}, "no propensities are known."
    try:
        shown = named(task.data).keep(correct(late, task.data, "none", None).shown > 0)
        scores = {name: ranker.predict(shown) for name, ranker in fits.rankers.items()}
        return *_judged(task, scores, late, shown, propensities, context, curves), ""
    except DataError as problem:  # too few clicks, or positions that so few sessions do not tell apart
        return {}, {}, str(problem)


def _judged(
    task: _Task, scores: Mapping[str, FloatArray], log: ClickLog, shown: RankingData, propensities: Any,
    context: Context | None, curves: Curves | None,
) -> tuple[dict[str, Interval], dict[str, Interval]]:  # fmt: skip
    """Return what clicks say of rankings by these scores, and of the gains over the naive one.

    Propensities that are harvested from clicks are harvested from these; nothing is clipped, so no bias speaks for
    either side.
    """
    harvests = propensities is None or (isinstance(propensities, str) and propensities in HARVESTED)
    by = {"propensities": propensities, "context": context} if harvests else {"propensities": curves}
    ranks, metric = {name: ranks_of(values, shown) for name, values in scores.items()}, _METRICS[task.reward]
    judgement = judge_by(("snips",), ranks, log, shown, [metric], **by, clip=0.0)["snips"]
    estimates = {name: estimate.intervals[metric] for name, estimate in judgement.estimates.items()}
    return estimates, {name: judgement.gain(name, "naive", metric) for name in ranks if name != "naive"}


def _cross_fitted(
    task: _Task, log: ClickLog, propensities: Any, context: Context | None, curves: Curves | None, shown: RankingData,
    fold: npt.NDArray[np.int64], of_session: npt.NDArray[np.int64],
) -> dict[str, FloatArray]:  # fmt: skip
    """Scores of the documents that were shown, each by rankers that know the sessions of other folds alone."""
    scores: dict[str, FloatArray] = {}
    fold_of = {str(qid): number for qid, number in zip(shown.qids.tolist(), fold.tolist(), strict=True)}
    of_query = np.array([fold_of.get(str(qid), -1) for qid in task.data.qids.tolist()])
    of_row = shown.queries.spread(fold)
    for number in np.unique(fold[fold >= 0]).tolist():
        part = log.select(of_session != number)
        of_part = curves
        liked = None if task.liked is None else task.liked.select(of_query != number)
        with warnings.catch_warnings():  # what is worth saying was said of the fit to all sessions
            for kind in (UnidentifiedWarning, ConvergenceWarning):
                warnings.simplefilter("ignore", kind)
            if curves is not None and (propensities is None or isinstance(propensities, str)):
                of_part = curves_of(propensities, part, task.data, task.ranker, context, curves)
            rankers = task._replace(liked=liked).fitted(part, of_part).rankers
        of_fold = shown.select(fold == number)
        for name, ranker in rankers.items():
            scores.setdefault(name, np.zeros(shown.n_documents))[of_row == number] = ranker.predict(of_fold)
    return scores


def _by_labels(
    rankers: Mapping[str, Ranker], valid: RankingData | None
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """NDCG@10 of each ranker on labels, and how much it is above the naive one's, paired by query."""
    if valid is None:
        return {}, {}
    evaluations = {name: evaluate_labels(ranker.predict(valid), valid, "ndcg@10") for name, ranker in rankers.items()}
    values = {name: np.asarray(evaluation.per_query["ndcg@10"]) for name, evaluation in evaluations.items()}
    means = {name: evaluation.mean["ndcg@10"] for name, evaluation in evaluations.items()}

    def worth(mean: float, of: FloatArray) -> Interval:
        return replace(bootstrap_interval(of, resamples=2_000), value=mean)

    others = [name for name in rankers if name != "naive"]
    gains = {name: worth(means[name] - means["naive"], values[name] - values["naive"]) for name in others}
    return {name: worth(means[name], of) for name, of in values.items()}, gains


def _signed(gain: Interval) -> str:
    """The interval of a difference in words; nothing where it is not known."""
    return f"[{gain.low:+.4f}, {gain.high:+.4f}]" if np.isfinite(gain.low) and np.isfinite(gain.high) else ""
