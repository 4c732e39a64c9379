"""One object for each partition, on the workers: kept there, worked on there, and made again where a worker is lost.

Every task is bound to the worker that has its partition. (Left to itself, Dask may move a partition to an idle worker,
which costs far more than a pass over it.) So where a worker is gone, its tasks cannot go on; then its partitions are
placed on other workers from their sources, and the pass is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from typing_extensions import override

from toprank.cluster.running import LostError, Runner
from toprank.errors import ClusterError

__all__ = ["Placement", "SourcePartitions", "Partitions"]

T = TypeVar("T")
_PLACEMENTS = 5


class Placement(NamedTuple):
    """Futures of the objects, and the addresses of the workers that have them."""

    futures: list[Any]
    homes: list[str]


class Partitions(ABC):
    """One object for each partition."""

    runner: Runner

    @property
    @abstractmethod
    def root(self) -> SourcePartitions:
        """What it was made from, in the end."""

    @abstractmethod
    def placement(self) -> Placement:
        """Where the objects are now."""

    def then(self, function: Callable[..., Any], *args: Any) -> Partitions:
        """The objects ``function(object, *args)``, made where they are first needed and kept."""
        return _DerivedPartitions(self, function, args)

    def each(self, function: Callable[..., Any], *args: Any, apart: Sequence[Any] | None = None) -> list[Any]:
        """``function(object, *args)`` of every partition, in order; `apart` is one more argument, for each its own."""
        return self.root.steadily(lambda: self.runner.results(*self._asked(function, args, apart)))

    def total(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """The sum over the partitions, in their order, of the tuples that the function gives."""
        return self.root.steadily(lambda: self.runner.added(*self._asked(function, args)))

    def _asked(
        self, function: Callable[..., Any], args: tuple[Any, ...], apart: Sequence[Any] | None = None
    ) -> tuple[list[Any], list[str]]:
        futures, homes = self.placement()
        return self.runner.each(function, futures, *args, homes=homes, apart=apart), homes


class SourcePartitions(Partitions):
    """Objects that are made from sources.

    Args:
        runner: the cluster.
        place: makes them; called anew after a loss. What it gives again is taken to be still there.
    """

    def __init__(self, runner: Runner, place: Callable[[], Placement]) -> None:
        self.runner, self._place = runner, place
        self._placed: Placement | None = None
        self.derived: WeakSet[_DerivedPartitions] = WeakSet()

    @property
    @override
    def root(self) -> SourcePartitions:
        return self  # not an attribute: a root that holds itself would keep rows until the collector comes

    @override
    def placement(self) -> Placement:
        if self._placed is None:
            self._placed = self._place()
        return self._placed

    def release(self) -> None:
        """Have the workers forget what was made of the objects; it is made anew where it is asked for."""
        for one in self.derived:
            one.release()
        self._placed = None

    def steadily(self, work: Callable[[], T]) -> T:
        """Do the work; where objects were lost, place them anew and repeat."""
        for _ in range(_PLACEMENTS):
            try:
                return work()
            except LostError:
                self._placed = None
        raise ClusterError(
            f"Workers were lost {_PLACEMENTS} times during one pass over the data, which was repeated each time. Look "
            "at the workers' logs; most often they lack memory: use smaller partitions."
        )


class _DerivedPartitions(Partitions):
    """Objects that are made from others, where those are."""

    def __init__(self, parent: Partitions, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.runner, self.parent = parent.runner, parent
        self.function, self.args = function, args
        self._made: dict[str, tuple[Any, Any]] = {}
        self.root.derived.add(self)

    def release(self) -> None:
        """Have the workers forget the objects; they are made anew where they are asked for."""
        for _, future in self._made.values():
            future.release()
        self._made = {}

    @property
    @override
    def root(self) -> SourcePartitions:
        return self.parent.root

    @override
    def placement(self) -> Placement:
        """Where the objects are now; only what has a new parent is made anew."""
        parents, homes = self.parent.placement()
        new = [place for place, parent in enumerate(parents) if parent.key not in self._made]
        made = self.runner.each(self.function, [parents[i] for i in new], *self.args, homes=[homes[i] for i in new])
        fresh = {parents[i].key: (parents[i], future) for i, future in zip(new, made, strict=True)}
        self._made = {parent.key: fresh.get(parent.key) or self._made[parent.key] for parent in parents}
        return Placement([self._made[parent.key][1] for parent in parents], homes)
