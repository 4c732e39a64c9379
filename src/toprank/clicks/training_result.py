"""Result of training on clicks: the debiased and the naive ranker, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toprank.clicks.curves import BLOCKED, PropensityCurves
from toprank.clicks.evaluation import clipping_sentences, dropped_sentences
from toprank.clicks.recency import Recency
from toprank.data.dataset import RankingData
from toprank.display.pictures import Picture, signed_bars
from toprank.display.record import Record
from toprank.display.tables import Part, Table, bracketed
from toprank.errors import UnknownNameError
from toprank.losses import Loss
from toprank.rankers.base import Ranker
from toprank.significance import Interval

_OPTIONAL_WORDS = ("no_comparison_reason", "held_out", "propensity_conflict", "shared_propensities_reason")


@dataclass(frozen=True, repr=False)
class ClickTrainingResult(Record):
    """A ranker trained on corrected clicks, the naive ranker, and their comparison.

    Attributes:
        ranker: ranker trained on corrected clicks.
        naive: the same ranker trained on uncorrected click rates.
        full_information: the same ranker trained on the labels of the data, if requested; otherwise None.
        correction: name of the correction.
        curves: α and β of the positions; None if not needed.
        data: training data of `ranker`: documents with corrected relevance as labels, and queries weighted by sessions.
        loss: the training loss and the requested loss.
        assumption: condition under which the correction is valid.
        uses_biased_loss: whether the loss is not linear in the gains.
        estimates: for each ranker by name, DCG@10 of the documents that were shown, estimated by ``snips``. Each query
            is ranked by rankers trained without its sessions. Empty if the log does not identify it.
        gains: for each ranker except the naive one, the difference of its estimate to the naive one, paired by query.
        metrics: for each ranker by name, NDCG@10 on the labels of `valid`; empty without `valid`.
        valid_gains: paired differences of `metrics` to the naive ranker.
        counts: numbers of impressions used, dropped and clipped, of documents, of documents never shown, of sessions
            without clicks, and of labels below 0.
        folds: number of folds of queries in the comparison; 0 if there was none.
        no_comparison_reason: reason if there are no `estimates`, as a sentence; otherwise empty.
        reward: ``click`` or ``value``; for values, gains in DCG@10 are the expected values of documents.
        clip: smallest propensity used as a divisor; 0 if no propensity was clipped.
        recency: how sessions were weighted by age; None if all have the same weight.
        held_out: description of the latest sessions, if these were held out for the comparison; empty if folds of
            queries were.
        propensity_conflict: sentence on how documents shown at several positions contradict the propensities; empty if
            they do not. A conflict blocks the choice of the debiased ranker.
        shared_propensities_reason: why the comparison uses the propensities of the training, as a sentence; empty if it
            uses propensities estimated from the held-out sessions.
    """

    ranker: Ranker
    naive: Ranker
    full_information: Ranker | None
    correction: str
    curves: PropensityCurves | None
    data: RankingData
    loss: tuple[Loss, Loss]
    assumption: str
    uses_biased_loss: bool
    estimates: dict[str, Interval]
    metrics: dict[str, Interval]
    counts: dict[str, int]
    gains: dict[str, Interval] = field(default_factory=dict)
    valid_gains: dict[str, Interval] = field(default_factory=dict)
    folds: int = 0
    clip: float = 0.0
    no_comparison_reason: str = ""
    reward: str = "click"
    recency: Recency | None = None
    held_out: str = ""
    propensity_conflict: str = ""
    shared_propensities_reason: str = ""

    @property
    def choice(self) -> str:
        """Name of the ranker to use: the debiased one if it is significantly better, otherwise the naive one.

        Held-out clicks decide; if there are none, the labels of `valid` do. If the log contradicts the propensities
        (`propensity_conflict`), the choice is the naive ranker.
        """
        if self.propensity_conflict:
            return "naive"
        gain = (self.gains or self.valid_gains).get(self.correction)
        return self.correction if gain is not None and gain.low > 0 else "naive"

    @property
    def status(self) -> int:
        """The exit status of the command: 5 if a conflict blocks the choice, otherwise 0."""
        return BLOCKED if self.propensity_conflict else 0

    json_hidden = frozenset({
        "ranker", "naive", "full_information", "curves", "data", "loss", "estimates", "gains", "metrics", "valid_gains",
    })  # fmt: skip
    json_properties = ("summary", "choice")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold; missing parts are None."""
        words = {name: getattr(self, name) or None for name in _OPTIONAL_WORDS}
        numbers = {
            by: {name: interval.to_dict() for name, interval in of.items()} or None
            for by, of in self._comparisons().items()
        }
        losses = {"loss": str(self.loss[0]), "requested_loss": str(self.loss[1])}
        return super().to_dict() | losses | words | numbers

    @property
    def summary(self) -> str:
        """The training data, the assumption, dropped data, and the ranker to use."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        counts, (used, requested) = self.counts, self.loss
        words = [
            f"Trained on {counts['impressions']:,} impressions of {counts['documents']:,} documents, corrected by "
            f"{self.correction!r}. The correction is valid if {self.assumption}"
        ]
        if self.recency is not None:
            words.append(str(self.recency))
        if self.held_out:
            words.append(f"Held out: {self.held_out}; no ranker was trained on them.")
        if self.uses_biased_loss:
            words.append(
                f"The loss is biased: {type(requested).__name__} is not linear in the gains, so estimates of relevance "
                "were clipped to [0, 1] and used as labels. Noise in the clicks becomes a bias, which shrinks with "
                "more clicks."
            )
        elif self.correction in ("safe", "position"):
            words.append(f"{self.correction!r} has a loss of its own; {requested} was not used.")
        elif type(used) is not type(requested):
            words.append(
                f"{type(requested).__name__} is not linear in the gains; it was trained in its linear form, {used}."
            )
        if self.curves is not None and self.curves.layout is not None:
            words.append(self.curves.layout.sentence)
        words += [self.propensity_conflict] if self.propensity_conflict else []
        words += dropped_sentences(counts["unknown"], counts["without_propensity"])
        words += clipping_sentences(self.clip, counts["clipped"], self.correction)
        if counts["never_shown"]:
            known = "have the relevance predicted by the regression" if self.correction == "dr" else "were dropped"
            words.append(f"{counts['never_shown']:,} documents of these queries were never shown and {known}.")
            if self.estimates:
                words.append("DCG@10 is over the documents that were shown.")
        if counts["clickless_sessions"]:
            words.append(f"{counts['clickless_sessions']:,} sessions have no click; all their documents were skipped.")
        return words if self.correction == "none" else [*words, self._verdict()]

    def _verdict(self) -> str:
        """Return whether the debiased ranker is significantly better than the naive one, and the choice."""
        where = "On the latest sessions" if self.held_out else "On held-out queries"
        grounds = [(where, "DCG@10", self.gains), ("By the labels", "NDCG@10", self.valid_gains)]
        comparisons = [(where, metric, gains[self.correction]) for where, metric, gains in grounds if gains]
        words = [
            f"{where} {self.correction!r} gains {gain.value:+.4f} of {metric} over the naive model"
            f"{', interval ' if _signed(gain) else ''}{_signed(gain)}."
            for where, metric, gain in comparisons
        ]
        if not self.gains:
            words.append(f"The clicks do not compare the models: {self.no_comparison_reason}")
        words += [self.shared_propensities_reason] if self.shared_propensities_reason else []
        if self.propensity_conflict:
            words.append(
                "The choice is the naive model, because the log contradicts the propensities. Omit given propensities "
                "to estimate them from the log."
            )
            return " ".join(words)
        if self.choice != "naive":
            return " ".join([*words, f"The choice is {self.correction!r}."])
        worse = comparisons and comparisons[0][2].high < 0
        words.append(
            f"{self.correction!r} is {'worse' if worse else 'not significantly better'}, so the choice is the naive "
            "model."
        )
        if self.correction != "dr":
            words.append("With few clicks, use the correction 'dr' with a linear model.")
        return " ".join(words)

    @property
    def compared_by(self) -> tuple[str, ...]:
        """Names of the available comparisons, as `plot` takes them."""
        return tuple(name for name, worth in self._comparisons().items() if worth)

    def plot(self, by: str = "gain") -> Picture:
        """Draw a bar with an interval for each ranker, by ``dcg@10``, ``gain``, ``valid_ndcg@10`` or ``valid_gain``."""
        if by not in self.compared_by:
            raise UnknownNameError("comparison of these rankers", by, self.compared_by)
        rows = []
        for name, worth in self._comparisons()[by].items():
            known = np.isfinite(worth.low) and np.isfinite(worth.high)
            low, high = worth if known else (worth.value, worth.value)
            words = f"{name}: {worth.value:.4f}" + (f", {low:.4f} to {high:.4f}" if known else "")
            rows.append((name, words, worth.value, low, high))
        return signed_bars(f"Rankers trained on clicks, by {by}", rows, by)

    def _comparisons(self) -> dict[str, dict[str, Interval]]:
        of_clicks = {"dcg@10": self.estimates, "gain": self.gains}
        return of_clicks | {"valid_ndcg@10": self.metrics, "valid_gain": self.valid_gains}

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per ranker: metrics and gains with interval bounds; None if unknown."""
        names = list(dict.fromkeys(("naive", self.correction, *self.estimates, *self.metrics)))
        columns: dict[str, list[Any]] = {"model": [name for name in names if name != "none"]}
        for metric, worth in self._comparisons().items():
            rows = [worth[name].to_dict() if name in worth else {} for name in columns["model"]]
            columns |= {f"{metric} {side}": [row.get(side) for row in rows] for side in ("value", "low", "high")}
        return columns

    def table(self) -> Table | None:
        """Return the rankers side by side, with intervals over queries; None if nothing compares them."""
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


def _signed(gain: Interval) -> str:
    """Return the interval of a difference as text; empty if unknown."""
    return f"[{gain.low:+.4f}, {gain.high:+.4f}]" if np.isfinite(gain.low) and np.isfinite(gain.high) else ""
