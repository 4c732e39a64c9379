"""A system of an experiment: a named way from training and validation data to a fitted ranker."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from toprank import losses
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.experiment.content import described
from toprank.metrics.conventions import CONVENTIONS, Convention
from toprank.selection import select
from toprank.systems import System, get

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Chosen", "Entry", "entries_of"]


class Chosen(NamedTuple):
    """A fitted ranker and how it was chosen."""

    ranker: Ranker
    options: dict[str, Any]
    metric: str | None
    convention: str
    valid: float | None
    tried: list[dict[str, Any]]


@dataclass(frozen=True)
class Entry:
    """A system by name with options to fix, searched over its grid; or an unfitted ranker, fitted as it is."""

    name: str
    system: System | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    ranker: Ranker | None = None

    def unfitted(self) -> Any:
        """The ranker before any choice."""
        if self.system is None:
            return self.ranker
        return self.system.make(**{name: value for name, value in self.options.items() if name != "threads"})

    @property
    def random(self) -> bool:
        """Whether a seed makes a difference: the ranker or its loss draws something, and the seed is not fixed."""
        parameters = self.unfitted().get_params(deep=False)
        if self.system is not None and "seed" in self.options:
            return False
        return "seed" in parameters or _draws(_loss(parameters))

    def seeds(self, asked: tuple[int, ...] | None) -> tuple[int | None, ...]:
        """The seeds of its cells: those asked for, else its own; one cell without a seed where nothing is random."""
        if not self.random:
            return (None,)
        if asked is not None:
            return asked
        parameters = self.unfitted().get_params(deep=False)
        own = parameters["seed"] if "seed" in parameters else _loss(parameters).seed
        return (own if isinstance(own, int) else None,)

    @property
    def portable(self) -> bool:
        """Whether another process can rebuild it: not what is defined in a script or a notebook."""
        try:
            return b"__main__" not in pickle.dumps(self)
        except Exception:  # noqa: BLE001 - pickling fails in as many ways as there are objects
            return False

    def describe(self) -> Any:
        """What the fitted ranker depends on, in plain terms; names and sources of the literature are not part of it."""
        if self.system is None:
            return described(self.ranker)
        one = self.system
        options = {name: value for name, value in self.options.items() if name != "threads"}
        return {
            "ranker": one.ranker,
            "loss": one.loss,
            "options": described({**one.options, **one.plain_options(options)}),
            "fixed": sorted(one.plain_options(options)),
            # As pairs: of two equally good candidates the first wins, so the order counts.
            "grid": [[name, described(tuple(values))] for name, values in one.grid.items()],
            "refine": list(one.refine),
            "metric": one.metric,
            "exact_grid": one.exact_grid,
        }

    def choose(
        self,
        train: RankingData,
        valid: RankingData,
        *,
        metric: str | None,
        convention: str | Convention,
        seed: int | None,
        threads: int,
    ) -> Chosen:
        """Fit on `train`, choose on `valid`; a given ranker goes by its own metric and convention."""
        if self.system is None:
            return self._fit(train, valid, seed, threads)
        options = {name: value for name, value in self.options.items() if name != "threads"}
        if seed is not None:
            options["seed"] = seed
        rules = Convention.of(convention)
        # By its name where that tells all: a ranker with a convention of one's own inside cannot be saved.
        called: Any = rules.name if CONVENTIONS.get(rules.name) == rules else rules
        one = select(self.system, train, valid, metric=metric, convention=called, threads=threads, **options)
        return Chosen(one.ranker, one.options, one.metric, rules.name, one.value, one.tried)

    def _fit(self, train: RankingData, valid: RankingData, seed: int | None, threads: int) -> Chosen:
        from sklearn.base import clone

        ranker = clone(self.ranker)
        known = ranker.get_params(deep=False)
        changes: dict[str, Any] = {"threads": threads}
        if seed is not None:
            changes |= {"seed": seed} if "seed" in known else {"loss": replace(_loss(known), seed=seed)}
        ranker.set_params(**{name: value for name, value in changes.items() if name in known})
        ranker.fit(train, valid=valid)
        judged = ranker.get_params(deep=False).get("metric")
        reached = getattr(ranker, "training_", {}).get("valid", {})
        path = list(getattr(ranker, "path_", []))
        options = {"l2": ranker.l2_} if len(path) > 1 and hasattr(ranker, "l2_") else {}
        value = reached.get(str(judged)) if judged else None
        rules = reached.get("convention") or known.get("convention") or "standard"
        return Chosen(ranker, options, judged, getattr(rules, "name", str(rules)), value, path)


def entries_of(systems: Any) -> tuple[Entry, ...]:
    """The systems that were asked for, by distinct names."""
    if isinstance(systems, str | System):
        systems = [systems]
    if isinstance(systems, Mapping):
        pairs = [(str(name), _entry(str(name), what)) for name, what in systems.items()]
    elif isinstance(systems, Iterable):
        pairs = [(entry.name, entry) for entry in (_entry(None, what) for what in systems)]
    else:
        raise DataError(f"systems must be names, or a mapping from names to systems, not {systems!r}.")
    if not pairs:
        raise DataError("There is no system to run; name at least one, such as 'LambdaMART'.")
    entries = dict(pairs)
    for place, (name, _) in enumerate(pairs):
        if name in dict(pairs[:place]):
            raise DataError(f"Two systems are called '{name}'; give a mapping with different names.")
    for entry in entries.values():
        entry.random  # noqa: B018 - unknown options are refused here, before any work
        _check_penalty(entry)
    return tuple(entries.values())


def _entry(name: str | None, what: Any) -> Entry:
    if isinstance(what, Entry):
        return what if name is None else replace(what, name=name)
    if isinstance(what, str):
        return Entry(name or get(what).name, get(what))
    if isinstance(what, System):
        return Entry(name or what.name, what)
    if isinstance(what, tuple) and len(what) == 2 and isinstance(what[1], Mapping):
        inner = _entry(name, what[0])
        if inner.system is None:
            raise DataError(f"{inner.name}: options go with the name of a system; give a ranker its options itself.")
        return replace(inner, options=dict(what[1]))
    if all(hasattr(what, method) for method in ("fit", "predict", "get_params")) and not isinstance(what, type):
        return Entry(name or type(what).__name__, ranker=what)
    raise DataError(
        f"{what!r} is not a system: give a name, a System, a pair (name, options), or an unfitted ranker such as "
        "LinearRanker(l2=0.1)."
    )


def _check_penalty(entry: Entry) -> None:
    """A penalty may be one number or several, which `System.make` leaves to the fit; text is neither."""
    given = entry.options.get("l2", 0.0)
    several = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in several):
        raise DataError(f"{entry.name}: l2 must be a number, or several, not {given!r}.")


def _loss(parameters: Mapping[str, Any]) -> Any:
    """The loss of a ranker, where it is one of ours."""
    loss = parameters.get("loss")
    return losses.make(loss) if isinstance(loss, str) and loss in losses.names() else loss


def _draws(loss: Any) -> bool:
    """Whether a loss is random: it has a seed, and is not told to do without."""
    if not hasattr(loss, "seed"):
        return False
    return getattr(loss, "ties", "random") == "random" and getattr(loss, "gamma", "uniform") == "uniform"
