"""Click models of users who read from the top, and stop: cascade, dependent click, dynamic Bayesian, click chain.

All are one chain with two states. The first document is looked at; one that is looked at is clicked with its
attraction; the next is looked at after a skip with one probability, after a click with another, and that is where the
models differ:

| model | after a skip | after a click |
|---|---|---|
| `Cascade` | 1 | 0 |
| `DCM` | 1 | λ of the position |
| `SDBN` | 1 | 1 - σ of the document |
| `DBN` | γ | γ (1 - σ) |
| `CCM` | τ₁ | (1 - α) τ₂ + α τ₃ |

Expectations are exact (forward and backward over the list), so the fit climbs to a maximum of the likelihood itself.
It begins at the closed forms of the literature, for which what stands down to the last click was looked at.
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

_SESSIONS_PER_BLOCK = 1 << 14  # that a thread takes at a time, where their sums belong to the pairs of whole queries


class Expected(NamedTuple):
    """What the clicks tell of each impression: looked at; looked at, and the next one too."""

    examined: FloatArray
    onward: FloatArray


class _Chain(ClickModel):
    """A user who reads from the top: how likely clicks are, and how they are drawn."""

    skip_: float = 1.0  # p(look at the next one | looked, and did not click)

    def _kinds(self, log: ClickLog) -> IntArray:
        """Which probability of going on after a click belongs to each impression: its document's, by default."""
        return log.pair

    def _after(self, log: ClickLog) -> FloatArray:
        """Return the fitted P(go on after a click) of each kind of `log`; by default for each pair."""
        name = "satisfaction_" if hasattr(self, "satisfaction_") else "attraction_"
        return self._goes_on(log.pair_query, self._of_pairs("attraction_", log), self._of_pairs(name, log))

    @abstractmethod
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        """Return P(go on after a click) at positions, of documents with given attraction and satisfaction."""

    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Attraction times the probability that the user has come so far."""
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
        """From the top on, until the user stops."""
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
        """The attraction of each pair: its share, or what a ranker makes of all shares."""
        return self._share(part, whole) if self._learner is None else self._learner(part, whole)


class Cascade(_Chain):
    """The user stops at the first click. Sessions with several are impossible: counted (`impossible_`), and cut there.

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
    """Which impressions a user looked at who stops at a click; all of a list without one."""
    place = np.arange(log.n_impressions)
    first = np.minimum.reduceat(np.where(log.clicks, place, log.n_impressions), log.offsets[:-1])
    return np.asarray(place <= first[log.session])


def _last_clicks(log: ClickLog) -> IntArray:
    """Return the place of the last click of each impression's session among all impressions; -1 if there is none."""
    clicked = np.where(log.clicks, np.arange(log.n_impressions), -1)
    return np.asarray(np.maximum.reduceat(clicked, log.offsets[:-1])[log.session])


def _down_to_the_last_click(log: ClickLog) -> npt.NDArray[np.bool_]:
    """Which impressions a user surely looked at who never stops at a skip; all of a list without a click."""
    latest = _last_clicks(log)
    return np.asarray((latest < 0) | (np.arange(log.n_impressions) <= latest))


class _Fitted(_Chain):
    """A chain that is fitted by expectation and maximization: attractions first, then parameters of its own."""

    @abstractmethod
    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        """Its own parameters to begin with; `last`: impressions that are their session's last click."""

    @abstractmethod
    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        """P(go on after a click) of each kind, and after a skip."""

    @abstractmethod
    def _better(self, log: ClickLog, now: EStepParameters, expected: Expected) -> tuple[FloatArray, FloatArray]:
        """The attractions and own parameters that are most likely, given what was expected."""

    @abstractmethod
    def _keep(self, own: FloatArray) -> None:
        """Take what was learned of its own parameters."""

    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        """Sessions that showed the same and were clicked the same are looked at once, and weigh as many as they are."""
        limits = self.tolerance * log.n_impressions, self.max_iterations
        log, counts = log.unique_sessions
        of_session, n = counts * weights[log.session_query], log.n_pairs
        weight = np.repeat(of_session, np.diff(log.offsets))
        kinds, clicks = self._kinds(log), log.clicks.view(np.uint8)
        inner = np.ones(log.n_impressions, dtype=bool)
        inner[log.offsets[1:] - 1] = False  # nothing is known of what would have come after the last document
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
        """All parameters, as if users had looked at nothing below their last click, and at all above."""
        n, seen = log.n_pairs, weight * _down_to_the_last_click(log)
        attraction = self._share(sums(log.pair, weight * log.clicks, n), sums(log.pair, seen, n))
        last = np.where(log.clicks, np.arange(log.n_impressions), -1) == _last_clicks(log)
        return np.concatenate([attraction, self._start(log, weight, last)])


class EStepParameters(NamedTuple):
    """The parameters of a step, and what is the same in all of them."""

    attraction: FloatArray
    own: FloatArray
    weight: FloatArray  # of each impression
    inner: npt.NDArray[np.bool_]  # which impressions have one below them
    below: FloatArray  # the weights of these; 0 for the others
    clicked: FloatArray  # how often each pair was clicked
    of_session: FloatArray  # the weight of each session
    parts: list[tuple[int, int]]  # sessions of whole queries, so that no two parts have a pair in common
    threads: int | None


def _whole_queries(log: ClickLog) -> list[tuple[int, int]]:
    """Ranges of about so many sessions as a thread takes at a time; one range where they do not stand by query."""
    turns = np.diff(log.session_query)
    if (turns < 0).any():
        return [(0, log.n_sessions)]
    begins = np.concatenate([[0], np.flatnonzero(turns) + 1, [log.n_sessions]])
    return [(int(begins[first]), int(begins[last])) for first, last in blocks_of(begins, _SESSIONS_PER_BLOCK)]


class _Continued(_Fitted):
    """A chain whose own parameters are continuations."""

    shared: ClassVar[tuple[str, ...]] = ("continuation",)
    continuation_: FloatArray

    @classmethod
    def from_parameters(cls, continuation: npt.ArrayLike) -> Self:
        """Return a model with known continuations, to simulate with."""
        model = cls()
        model._keep(np.asarray(continuation, dtype=np.float64))
        return model

    def _keep(self, own: FloatArray) -> None:
        self.continuation_ = own


class DCM(_Continued):
    """The dependent click model: after a click at position k the user goes on with `continuation_[k - 1]`."""

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
    """The simplified dynamic Bayesian network: a clicked document satisfies with `satisfaction_`: the end."""

    satisfaction_: FloatArray

    @classmethod
    def from_parameters(cls) -> Self:
        """A model to simulate with."""
        return cls()

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log, looked_at=_down_to_the_last_click(log))

    def relevance(self, log: ClickLog | None = None) -> FloatArray:
        """Attraction times satisfaction."""
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
        return self._liked(now.clicked, looked), own[: len(now.own)]  # only `DBN` learns its patience

    def _keep(self, own: FloatArray) -> None:
        self.satisfaction_ = own

    @override
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        return self.skip_ * (1 - satisfaction)


def _satisfaction_sums(
    log: ClickLog, now: EStepParameters, expected: Expected, patience: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how often each pair was looked at, and satisfied; then how often users went on, and were not satisfied."""
    looked, enough, totals = np.zeros(log.n_pairs), np.zeros(log.n_pairs), np.zeros((len(now.parts), 2))
    shown = log.offsets, log.pair, log.clicks.view(np.uint8), now.of_session, now.own[: log.n_pairs]

    def part(number: int) -> None:
        sessions = now.parts[number]
        kernels.satisfaction_sums(*shown, patience, *expected, *sessions, looked, enough, totals[number])

    each_block(part, range(len(now.parts)), now.threads)
    return looked, enough, totals.sum(axis=0)


class DBN(SDBN):
    """The dynamic Bayesian network: as `SDBN`, and who is not satisfied goes on with probability `continuation_`."""

    shared: ClassVar[tuple[str, ...]] = ("continuation",)

    @classmethod
    def from_parameters(cls, continuation: float = 0.9) -> Self:
        """A model whose continuation is given, to simulate with."""
        model = cls()
        model.skip_ = continuation
        return model

    def _usual_prior(self, log: ClickLog) -> tuple[float, float]:
        return rate_prior(log)  # who runs out of patience may have stopped anywhere

    @property
    def continuation_(self) -> float:
        """P(go on | not satisfied), after a skip or a click."""
        return self.skip_

    def _start(self, log: ClickLog, weight: FloatArray, last: npt.NDArray[np.bool_]) -> FloatArray:
        return np.append(super()._start(log, weight, last), 0.8)

    def _steps(self, attraction: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
        patience = float(own[-1])
        return patience * (1 - own[: len(attraction)]), patience

    def _keep(self, own: FloatArray) -> None:
        self.satisfaction_, self.skip_ = own[:-1], float(own[-1])


class CCM(_Continued):
    """The click chain model: after a skip the user goes on with τ₁, after a click with τ₂ or, where satisfied, τ₃.

    A clicked document satisfies with its attraction, so that one number is learned of each; `continuation_` = (τ₁, τ₂,
    τ₃). With the satisfaction as a hidden variable of its own every step has a closed form.
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
        went = np.where(inner, on * liked * less / after, 0.0)  # satisfied, and went on all the same
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
        """P(look at the next one | looked, and did not click): τ₁."""
        return float(self.continuation_[0])

    @override
    def _goes_on(self, position: IntArray, attraction: FloatArray, satisfaction: FloatArray) -> FloatArray:
        return self._steps(attraction, self.continuation_)[0]
