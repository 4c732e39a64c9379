"""Chain models, in which users read from the top until they stop: cascade, DCM, SDBN, DBN and CCM.

All models are one Markov chain with two states. The first document is examined. An examined document is clicked with
its attraction. The probability of examining the next document depends on whether this one was clicked:

| model | after a skip | after a click |
|---|---|---|
| `Cascade` | 1 | 0 |
| `DCM` | 1 | λ of the position |
| `SDBN` | 1 | 1 - σ of the document |
| `DBN` | γ | γ (1 - σ) |
| `CCM` | τ₁ | (1 - α) τ₂ + α τ₃ |

The E-step is exact (forward and backward over the list), so the fit climbs to a maximum of the likelihood. It starts
from the closed forms of the literature, which treat everything down to the last click as examined.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.clicks.em import blocks, climb, inside, maximize, product, rate_prior
from toprank.clicks.log import ClickLog, sums
from toprank.clicks.models import ClickModel, by_rank, check_depth
from toprank.compute import FloatArray, IntArray, blocks_of, each_block

_SESSIONS_PER_BLOCK = 1 << 14  # blocks hold whole queries, whose pairs no other block changes


class Expected(NamedTuple):
    """Posterior probabilities for each impression: it was examined; it and the next one were examined."""

    examined: FloatArray
    onward: FloatArray


class _Chain(ClickModel):
    """Base class of models in which users read from the top."""

    skip_: float = 1.0  # P(examine the next document | examined, not clicked)

    def _kinds(self, log: ClickLog) -> IntArray:
        """Return the index of each impression's continuation probability after a click; by default its pair."""
        return log.pair

    def _after(self, log: ClickLog) -> FloatArray:
        """Return the fitted continuation probabilities after a click; by default one for each pair."""
        name = "satisfaction_" if hasattr(self, "satisfaction_") else "attraction_"
        return self._goes_on(log.pair_query, self._of_pairs("attraction_", log), self._of_pairs(name, log))

    @abstractmethod
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        """Return P(continue | click) at these positions, for documents with this attraction and satisfaction."""

    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Return the attraction times the probability that the user examines the impression."""
        attraction, after, kinds = self._of_pairs("attraction_", log), self._after(log), self._kinds(log)
        chance, clicks = np.empty(log.n_impressions), log.clicks.view(np.uint8)
        each_block(
            lambda part: kernels.cascade_chances(
                log.offsets, log.pair, clicks, attraction, kinds, after, self.skip_, conditional, *part, chance
            ),
            blocks(log.n_sessions),
        )
        return chance

    def sample_clicks(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Sample clicks from the top until the user stops."""
        looking, clicks = np.ones(log.n_sessions, dtype=bool), np.zeros(log.n_impressions, dtype=bool)
        uniform = rng.random((2, log.n_impressions))
        for rows, sessions in by_rank(log):
            clicks[rows] = looking[sessions] & (uniform[0, rows] < attraction[rows])
            after = self._goes_on(log.position[rows], attraction[rows], satisfaction[rows])
            looking[sessions] &= uniform[1, rows] < np.where(clicks[rows], after, self.skip_)
        return clicks

    def _share(self, part: Any, whole: Any) -> FloatArray:
        a, b = self.prior_
        return np.atleast_1d((part + a) / (whole + a + b))

    def _liked(self, part: FloatArray, whole: FloatArray) -> FloatArray:
        """Return the attraction of each pair: its shrunken click rate, or the ranker's fit to all rates."""
        return self._share(part, whole) if self._learner is None else self._learner(part, whole)


class Cascade(_Chain):
    """The cascade model: the user stops at the first click.

    The model excludes sessions with several clicks; they are counted in `impossible_` and truncated at the first click.

    >>> log = ClickLog.from_columns(["q"] * 3, ["a", "b", "c"], [1, 2, 3], [0, 1, 0])
    >>> Cascade(prior=(1, 2)).fit(log).attraction_.tolist()  # c was not looked at
    [0.25, 0.5, 0.3333333333333333]
    """

    impossible_: int

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log, looked_at=_down_to_the_first_click(log))

    @override
    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        seen = log.reweighted(weights) * _down_to_the_first_click(log)
        clicked = sums(log.pair, seen * log.clicks, log.n_pairs)
        self.attraction_ = self._liked(clicked, sums(log.pair, seen, log.n_pairs))
        self.impossible_ = int((log.session_clicks > 1).sum())

    @override
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        return np.zeros(len(attraction))


def _down_to_the_first_click(log: ClickLog) -> npt.NDArray[np.bool_]:
    """Return whether each impression is above or at the first click of its session; all are in sessions without a
    click.
    """
    place = np.arange(log.n_impressions)
    first = np.minimum.reduceat(np.where(log.clicks, place, log.n_impressions), log.offsets[:-1])
    return np.asarray(place <= first[log.session])


def _last_clicks(log: ClickLog) -> IntArray:
    """Return the index of the impression with the last click of each impression's session; -1 without a click."""
    clicked = np.where(log.clicks, np.arange(log.n_impressions), -1)
    return np.asarray(np.maximum.reduceat(clicked, log.offsets[:-1])[log.session])


def _down_to_the_last_click(log: ClickLog) -> npt.NDArray[np.bool_]:
    """Return whether each impression is above or at the last click of its session; all are in sessions without a
    click.
    """
    latest = _last_clicks(log)
    return np.asarray((latest < 0) | (np.arange(log.n_impressions) <= latest))


class _Fitted(_Chain):
    """Base class of chains fitted by expectation-maximization; attractions precede the model's own parameters."""

    @abstractmethod
    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        """Return initial values of the model's own parameters; `last` marks the last click of each session."""

    @abstractmethod
    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        """Return P(continue | click) of each kind, and P(continue | skip)."""

    @abstractmethod
    def _better(self, log: ClickLog, now: EStepParameters, expected: Expected) -> tuple[FloatArray, FloatArray]:
        """Return the attractions and own parameters of the M-step."""

    @abstractmethod
    def _keep(self, own: FloatArray) -> None:
        """Store the fitted own parameters."""

    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        """Fit by expectation-maximization; identical sessions are processed once, with their count as weight."""
        limits = self.tolerance * log.n_impressions, self.max_iterations
        log, counts = log.unique_sessions
        of_session, n = counts * weights[log.session_query], log.n_pairs
        weight = np.repeat(of_session, np.diff(log.offsets))
        kinds, clicks = self._kinds(log), log.clicks.view(np.uint8)
        inner = np.ones(log.n_impressions, dtype=bool)
        inner[log.offsets[1:] - 1] = False  # continuation after the last document is unobserved
        a, b = self.prior_
        clicked = sums(log.pair, weight * log.clicks, n)
        now = EStepParameters(
            attraction=np.empty(0), own=np.empty(0), weight=weight, inner=inner, below=weight * inner, clicked=clicked,
            of_session=of_session, parts=_whole_queries(log), threads=threads,
        )  # fmt: skip

        def step(both: FloatArray) -> tuple[FloatArray, float]:
            after, skip = self._steps(both[:n], both[n:])
            examined, onward = np.empty(log.n_impressions), np.empty(log.n_impressions)
            values, arguments = np.empty(log.n_sessions), (log.offsets, log.pair, clicks, both[:n], kinds, after, skip)
            each_block(
                lambda part: kernels.cascade_expectations(*arguments, *part, examined, onward, values),
                blocks(log.n_sessions),
                threads,
            )
            shrunk = both if self._learner is None else both[n:]
            value = product(values, of_session) + float((a * np.log(shrunk) + b * np.log1p(-shrunk)).sum())
            better = self._better(log, now._replace(attraction=both[:n], own=both[n:]), Expected(examined, onward))
            return inside(np.concatenate(better)), value

        start = self._closed_form(log, weight) if self._begin is None else self._begin
        if self._learner is None:
            self._end(maximize(step, start, *limits, lambda both: both[n:]))
        else:
            self._end(climb(step, start, *limits))
        assert self._rest is not None
        self.attraction_ = self._rest[:n]
        self._keep(self._rest[n:])

    def _closed_form(self, log: ClickLog, weight: FloatArray) -> FloatArray:
        """Return initial values of all parameters, as if users examined everything down to their last click and
        nothing below.
        """
        n, seen = log.n_pairs, weight * _down_to_the_last_click(log)
        attraction = self._share(sums(log.pair, weight * log.clicks, n), sums(log.pair, seen, n))
        last = np.where(log.clicks, np.arange(log.n_impressions), -1) == _last_clicks(log)
        return np.concatenate([attraction, self._start(log, weight, last)])


class EStepParameters(NamedTuple):
    """The current parameters, and quantities that stay the same in all steps."""

    attraction: FloatArray
    own: FloatArray
    weight: FloatArray  # weight of each impression
    inner: npt.NDArray[np.bool_]  # whether an impression has one below it
    below: FloatArray  # weights of inner impressions; 0 for the others
    clicked: FloatArray  # weighted clicks of each pair
    of_session: FloatArray  # weight of each session
    parts: list[tuple[int, int]]  # ranges of sessions; no two share a pair
    threads: int | None


def _whole_queries(log: ClickLog) -> list[tuple[int, int]]:
    """Return ranges of about `_SESSIONS_PER_BLOCK` sessions of whole queries; one range if sessions are not sorted
    by query.
    """
    turns = np.diff(log.session_query)
    if (turns < 0).any():
        return [(0, log.n_sessions)]
    begins = np.concatenate([[0], np.flatnonzero(turns) + 1, [log.n_sessions]])
    return [(int(begins[first]), int(begins[last])) for first, last in blocks_of(begins, _SESSIONS_PER_BLOCK)]


class _Continued(_Fitted):
    """Base class of chains whose own parameters are continuation probabilities."""

    shared: ClassVar[tuple[str, ...]] = ("continuation",)
    continuation_: FloatArray

    @classmethod
    def from_parameters(cls, continuation: npt.ArrayLike) -> Self:
        """Return a model with these continuation probabilities, for simulation."""
        model = cls()
        model._keep(np.asarray(continuation, dtype=np.float64))
        return model

    def _keep(self, own: FloatArray) -> None:
        self.continuation_ = own


class DCM(_Continued):
    """The dependent click model: after a click at position k the user continues with probability `continuation_[k -
    1]`.
    """

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log, looked_at=_down_to_the_last_click(log))

    def _kinds(self, log: ClickLog) -> IntArray:
        return log.position - 1

    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        clicked = sums(log.position - 1, weight * log.clicks, log.depth)
        return self._share(clicked - sums(log.position - 1, weight * (last & log.clicks), log.depth), clicked)

    @override
    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        return own, 1.0

    def _better(self, log: ClickLog, now: EStepParameters, expected: Expected) -> tuple[FloatArray, FloatArray]:
        counted = now.below * log.clicks
        on = sums(log.position - 1, counted * expected.onward, log.depth)
        own = self._share(on, sums(log.position - 1, counted, log.depth))
        return self._liked(now.clicked, sums(log.pair, now.weight * expected.examined, log.n_pairs)), own

    def _after(self, log: ClickLog) -> FloatArray:
        check_depth(self, log, len(self.continuation_))
        return self.continuation_

    @override
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        return self.continuation_[position - 1]


class SDBN(_Fitted):
    """The simplified dynamic Bayesian network: a clicked document satisfies with probability `satisfaction_`, which
    ends the session.
    """

    satisfaction_: FloatArray

    @classmethod
    def from_parameters(cls) -> Self:
        """Return a model for simulation; it has no shared parameters."""
        return cls()

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log, looked_at=_down_to_the_last_click(log))

    def relevance(self, log: ClickLog | None = None) -> FloatArray:
        """Return attraction times satisfaction of each pair."""
        return self._of_pairs("attraction_", log) * self._of_pairs("satisfaction_", log)

    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        clicked = sums(log.pair, weight * log.clicks, log.n_pairs)
        return self._share(sums(log.pair, weight * (last & log.clicks), log.n_pairs), clicked)

    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        return 1 - own[: len(attraction)], 1.0

    def _better(self, log: ClickLog, now: EStepParameters, expected: Expected) -> tuple[FloatArray, FloatArray]:
        patience = self._steps(now.attraction, now.own)[1]
        looked, enough, (went, unsatisfied) = _satisfaction_sums(log, now, expected, patience)
        own = np.append(self._share(enough, now.clicked), self._share(went, unsatisfied))
        return self._liked(now.clicked, looked), own[: len(now.own)]  # only `DBN` learns the continuation

    def _keep(self, own: FloatArray) -> None:
        self.satisfaction_ = own

    @override
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        return self.skip_ * (1 - satisfaction)


def _satisfaction_sums(
    log: ClickLog, now: EStepParameters, expected: Expected, patience: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the expected examinations and satisfactions of each pair, and the expected numbers of continuing and of
    unsatisfied users.
    """
    looked, enough, totals = np.zeros(log.n_pairs), np.zeros(log.n_pairs), np.zeros((len(now.parts), 2))
    shown = log.offsets, log.pair, log.clicks.view(np.uint8), now.of_session, now.own[: log.n_pairs]

    def part(number: int) -> None:
        sessions = now.parts[number]
        kernels.satisfaction_sums(*shown, patience, *expected, *sessions, looked, enough, totals[number])

    each_block(part, range(len(now.parts)), now.threads)
    return looked, enough, totals.sum(axis=0)


class DBN(SDBN):
    """The dynamic Bayesian network: as `SDBN`, but an unsatisfied user continues with probability `continuation_`."""

    shared: ClassVar[tuple[str, ...]] = ("continuation",)

    @classmethod
    def from_parameters(cls, continuation: float = 0.9) -> Self:
        """Return a model with this continuation probability, for simulation."""
        model = cls()
        model.skip_ = continuation
        return model

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log)  # users may have stopped anywhere

    @property
    def continuation_(self) -> float:
        """P(continue | not satisfied), after a skip or a click."""
        return self.skip_

    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        return np.append(super()._start(log, weight, last), 0.8)

    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        patience = float(own[-1])
        return patience * (1 - own[: len(attraction)]), patience

    def _keep(self, own: FloatArray) -> None:
        self.satisfaction_, self.skip_ = own[:-1], float(own[-1])


class CCM(_Continued):
    """The click chain model: the user continues with τ₁ after a skip, τ₂ after a click, and τ₃ if the click
    satisfied.

    A clicked document satisfies with its attraction, so there is one parameter per pair; `continuation_` is (τ₁, τ₂,
    τ₃). With satisfaction as a latent variable, every M-step has a closed form.
    """

    @override
    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        return np.array([0.9, 0.7, 0.3])

    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        return (1 - attraction) * own[1] + attraction * own[2], float(own[0])

    def _better(self, log: ClickLog, now: EStepParameters, expected: Expected) -> tuple[FloatArray, FloatArray]:
        clicks, inner, (_, more, less) = log.clicks, now.inner[log.clicks], now.own
        liked, on = now.attraction[log.pair[clicks]], expected.onward[clicks]
        after = (1 - liked) * more + liked * less
        went = np.where(inner, on * liked * less / after, 0.0)  # satisfied users who continued
        satisfied = np.where(inner, went + (1 - on) * liked * (1 - less) / (1 - after), liked)
        counted = now.weight[clicks]
        pairs = sums(log.pair[clicks], counted * satisfied, log.n_pairs)
        looked = sums(log.pair, now.weight * expected.examined, log.n_pairs)
        skipped, below = now.below * ~clicks, counted * inner
        own = np.concatenate([
            self._share(product(skipped, expected.onward), product(skipped, expected.examined)),
            self._share(product(below, on - went), product(below, 1 - satisfied)),
            self._share(product(below, went), product(below, satisfied)),
        ])  # fmt: skip
        return self._liked(now.clicked + pairs, looked + now.clicked), own

    @property
    def skip_(self) -> float:  # type: ignore[override]
        """P(examine the next document | examined and not clicked), τ₁."""
        return float(self.continuation_[0])

    @override
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        return self._steps(attraction, self.continuation_)[0]
