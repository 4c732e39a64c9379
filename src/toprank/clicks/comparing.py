"""Click models side by side, on sessions that none of them has seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.cascades import CCM, DBN, DCM, SDBN, Cascade
from toprank.clicks.log import ClickLog
from toprank.clicks.models import PBM, UBM, ClickModel, DocumentCTR, GlobalCTR, RankCTR
from toprank.data.checks import check_number
from toprank.errors import DataError, UnknownNameError
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of

__all__ = ["MODELS", "RATES", "ModelComparison", "Score", "compare", "held_out", "model_named", "rate_prior"]

_ALL: tuple[type[ClickModel], ...] = (GlobalCTR, RankCTR, DocumentCTR, PBM, UBM, Cascade, DCM, SDBN, DBN, CCM)
MODELS: dict[str, type[ClickModel]] = {one.__name__: one for one in _ALL}
RATES = ("GlobalCTR", "RankCTR", "DocumentCTR")
"""What every model must beat."""


class Score(NamedTuple):
    """How likely a model holds sessions that it has not seen.

    `log_likelihood` is the mean over sessions of log P(the clicks of the session), `perplexity` the mean over ranks of
    2^(-mean log2 P), `by_rank` the perplexity of each.
    """

    model: str
    log_likelihood: float
    perplexity: float
    by_rank: tuple[float, ...]
    steps: int
    converged: bool


@dataclass(frozen=True, repr=False)
class ModelComparison(Shown):
    """Models by what they say of held-out sessions, the likeliest first."""

    scores: tuple[Score, ...]
    sessions: tuple[int, int]
    """How many the models were fitted to, and how many they were judged by."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a likelihood of 0 has no logarithm and is None."""
        rows = [one._asdict() | {"by_rank": [_finite(v) for v in one.by_rank]} for one in self.scores]
        for row in rows:
            row |= {name: _finite(row[name]) for name in ("log_likelihood", "perplexity")}
        return {"sessions": {"fitted": self.sessions[0], "held_out": self.sessions[1]}, "models": rows}

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each model; a frame of pandas or polars, or Arrow's."""
        return frame_of({name: [getattr(one, name) for one in self.scores] for name in Score._fields}, kind)

    def table(self) -> Table:
        """One row for each model, in words."""
        rows = [
            (one.model, _shown(one.log_likelihood, ".4f"), _shown(one.perplexity, ".4f"), str(one.steps))
            for one in self.scores
        ]
        return Table(("model", "log-likelihood", "perplexity", "steps"), rows, names=1)

    def _parts(self) -> Sequence[Part]:
        old, new = self.sessions
        heading = (
            f"Fitted to {old:,} sessions, judged by {new:,} others: log P(clicks of a session | model), mean over "
            "sessions; perplexity, mean over ranks."
        )
        said = []
        impossible = [one.model for one in self.scores if not np.isfinite(one.log_likelihood)]
        if impossible:
            said.append(f"{', '.join(impossible)} cannot explain some held-out sessions at all.")
        slow = [one.model for one in self.scores if not one.converged]
        if slow:
            said.append(f"Not converged: {', '.join(slow)}.")
        return [heading, self.table(), *said]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _shown(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else "-∞" if value < 0 else "∞"


def model_named(name: str) -> type[ClickModel]:
    """A click model by its name, in any case.

    >>> model_named("pbm").__name__
    'PBM'
    """
    found = {known.lower(): model for known, model in MODELS.items()}.get(name.lower())
    if found is None:
        raise UnknownNameError("click model", name, MODELS)
    return found


def rate_prior(log: ClickLog, impressions: float = 2.0) -> tuple[float, float]:
    """A prior of so many impressions with the rate of clicks at the first position, as clicks and skips.

    There everything is looked at, so that the rate is the mean attraction of what was shown. A prior with another mean
    draws rarely shown documents to it, and so the examination of the positions at which they stand the other way.

    >>> rate_prior(ClickLog.of(["q"] * 4, ["a"] * 4, [1] * 4, [1, 0, 0, 0]))
    (0.6, 1.4)
    """
    first = log.clicks[log.position == log.position.min(initial=1)]
    rate = (float(first.sum()) + 0.5) / (len(first) + 1)
    return impressions * rate, impressions * (1 - rate)


def held_out(log: ClickLog, share: float = 0.2, seed: int = 0) -> tuple[ClickLog, ClickLog]:
    """The log as sessions to fit to, and a share of them, drawn by lot, to judge by.

    >>> log = ClickLog.of(["q"] * 10, ["a"] * 10, [1] * 10, [0] * 10)
    >>> [part.n_sessions for part in held_out(log, 0.3)]
    [7, 3]
    """
    check_number("holdout", share, above=0, below=1)
    count = round(share * log.n_sessions)
    if not 0 < count < log.n_sessions:
        raise DataError(f"A share of {share:g} of {log.n_sessions} sessions leaves nothing on one side.")
    order = np.random.default_rng(seed).permutation(log.n_sessions)
    return log.select(np.sort(order[count:])), log.select(np.sort(order[:count]))


def compare(
    log: ClickLog,
    models: Iterable[str | ClickModel] | None = None,
    *,
    holdout: float = 0.2,
    seed: int = 0,
    threads: int | None = None,
) -> ModelComparison:
    """Fit click models to a part of the sessions, and see how likely they hold the others.

    Args:
        log: sessions; those with several documents at one position are refused.
        models: names, or models; None: all ten. Those that are named have the `rate_prior` of the log.
        holdout: the share of sessions to judge by.
        seed: of the draw.
        threads: how many; the results do not depend on it.

    >>> log = ClickLog.of(["q"] * 400, ["a", "b"] * 200, [1, 2] * 200, [1, 0] * 200)
    >>> compare(log, ["GlobalCTR", "PBM"]).scores[0].model
    'PBM'
    """
    old, new = held_out(log, holdout, seed)
    wanted = list(MODELS) if models is None else list(models)
    prior = rate_prior(log)
    made = [model_named(one)(prior=prior) if isinstance(one, str) else one for one in wanted]
    scores = [score(one, old, new, threads) for one in made]
    scores.sort(key=lambda one: -one.log_likelihood)
    return ModelComparison(tuple(scores), (old.n_sessions, new.n_sessions))


def score(model: ClickModel, old: ClickLog, new: ClickLog, threads: int | None = None) -> Score:
    """What a model that is fitted to old sessions says of new ones."""
    model.fit(old, threads=threads)
    surprise = model.perplexity(new)
    name, by_rank = type(model).__name__, tuple(surprise.by_rank.tolist())
    return Score(name, model.log_likelihood(new), float(surprise), by_rank, model.steps_, model.converged_)
