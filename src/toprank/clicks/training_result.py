"""Rankers trained on clicks, as a result: the debiased ranker beside the naive one, and what compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toprank.clicks.curves import BLOCKED, PropensityCurves
from toprank.clicks.evaluation import clipped, left_out
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
    """A ranker trained on clicks, and the naive one.

    Attributes:
        ranker: trained on corrected clicks.
        naive: the same ranker trained on the rates of clicks as they are.
        full_information: the same ranker trained on the labels of the data, where it was asked for.
        correction: how clicks were corrected.
        curves: α and β of the positions; None where none were needed.
        data: what `ranker` was trained on: documents with their corrected relevance as labels, queries weighted by
            their sessions.
        loss: what it was trained under, and the loss it stands for.
        assumption: what would have to hold for the correction to be right.
        uses_biased_loss: whether the loss is not linear in the gains.
        estimates: of each ranker by name, DCG@10 of the documents that were shown, by ``snips``, where rankers that saw
            no session of a query rank it: those of its kind that were trained on the other queries' sessions. Empty
            where the log cannot tell.
        gains: of each ranker but the naive one, by how much its estimate is above the naive one's, paired by query.
        metrics: of each ranker by name, NDCG@10 on the labels of `valid`; empty without.
        valid_gains: and by how much that is above the naive one's.
        counts: impressions, those that were left out and why, those divided by the least propensity, documents, those
            never shown, sessions without clicks, labels below 0.
        folds: into how many parts the queries were cut, each held out once; 0: nothing was held out.
        no_comparison_reason: why there are no `estimates`, as a sentence; empty where there are.
        reward: what was learned, ``click`` or ``value``; of values, DCG@10 is that of what documents bring.
        clip: the least propensity that was divided by; 0 where all were divided by their own.
        recency: how sessions were weighed by their age; None if all count alike.
        held_out: the latest sessions, which no ranker learned from and which the estimates are from, in words; empty
            where parts of the queries were held out in turn.
        propensity_conflict: how documents shown at several positions contradict the propensities, as a sentence; empty
            if they do not. A contradiction blocks the choice of the debiased ranker.
        shared_propensities_reason: why the comparison uses the propensities that trained the ranker, as a sentence;
            empty if it uses propensities estimated from the held-out sessions.
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
        """The ranker to take: the debiased one if it is shown to be better, otherwise the naive one.

        Held-out clicks decide; without them, the labels of `valid` do. If the log contradicts the propensities
        (`propensity_conflict`), the choice is the naive ranker.
        """
        if self.propensity_conflict:
            return "naive"
        gain = (self.gains or self.valid_gains).get(self.correction)
        return self.correction if gain is not None and gain.low > 0 else "naive"

    @property
    def status(self) -> int:
        """The exit status of the command: 5 if a contradiction blocks the choice, otherwise 0."""
        return BLOCKED if self.propensity_conflict else 0

    json_hidden = frozenset({
        "ranker", "naive", "full_information", "curves", "data", "loss", "estimates", "gains", "metrics", "valid_gains",
    })  # fmt: skip
    json_properties = ("summary", "choice")

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was trained, and the rankers side by side; None for what there is not."""
        words = {name: getattr(self, name) or None for name in _OPTIONAL_WORDS}
        numbers = {
            by: {name: interval.to_dict() for name, interval in of.items()} or None
            for by, of in self._comparisons().items()
        }
        losses = {"loss": str(self.loss[0]), "requested_loss": str(self.loss[1])}
        return super().to_dict() | losses | words | numbers

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
        if self.uses_biased_loss:
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
        words += [self.propensity_conflict] if self.propensity_conflict else []
        words += left_out(counts["unknown"], counts["without_propensity"])
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
            words.append(f"The clicks cannot compare the models: {self.no_comparison_reason}")
        words += [self.shared_propensities_reason] if self.shared_propensities_reason else []
        if self.propensity_conflict:
            words.append(
                "The choice is the naive model, because the log contradicts the propensities. Without given "
                "propensities, they are estimated from the log."
            )
            return " ".join(words)
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
        return tuple(name for name, worth in self._comparisons().items() if worth)

    def plot(self, by: str = "gain") -> Picture:
        """A bar for each ranker, with its interval: by ``dcg@10``, ``gain``, ``valid_ndcg@10`` or ``valid_gain``."""
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
        """One row for each ranker: its metrics and gains with the ends of their intervals; None if unknown."""
        names = list(dict.fromkeys(("naive", self.correction, *self.estimates, *self.metrics)))
        columns: dict[str, list[Any]] = {"model": [name for name in names if name != "none"]}
        for metric, worth in self._comparisons().items():
            rows = [worth[name].to_dict() if name in worth else {} for name in columns["model"]]
            columns |= {f"{metric} {side}": [row.get(side) for row in rows] for side in ("value", "low", "high")}
        return columns

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


def _signed(gain: Interval) -> str:
    """The interval of a difference in words; nothing where it is not known."""
    return f"[{gain.low:+.4f}, {gain.high:+.4f}]" if np.isfinite(gain.low) and np.isfinite(gain.high) else ""
