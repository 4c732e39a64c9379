"""Work on a cluster, watched while it is waited for, so that a lost worker or scheduler ends in a sentence.

Results are added in the order of the partitions, never in the order in which workers answer.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from typing_extensions import override

from toprank.errors import ClusterError, require_extra

T = TypeVar("T")

FAN_IN = 16
"""How many partial sums are added at a time; more are added on the workers first, in groups of neighbors."""
# Bytes that an argument may add to all tasks together; a larger one goes to each worker once.
_WITH_EVERY_TASK = 1 << 20
# Seconds that finished results may take on their way here; scores of very many documents take a while.
_FETCH = 600.0
# Seconds between two looks at whether anybody is still there.
_LOOK = 1.0
# Seconds, or the patience if that is longer, that a worker may be silent before it counts as lost. (A living one tells
# the scheduler every half second that it is there, or every few seconds if there are hundreds.)
_SILENCE = 30.0
# How often work is repeated after a loss before it fails.
_PLACEMENTS = 5


class LostError(Exception):
    """Objects were lost with a worker, and Dask cannot make them again; we can, from the partitions' sources."""


class Runner:
    """The tasks of one client, which gives up after `patience` seconds without scheduler or worker."""

    def __init__(self, client: Any, patience: float, checkpoint: int) -> None:
        self.client, self.patience, self.checkpoint = client, patience, checkpoint
        self._heard: dict[str, tuple[Any, float]] = {}

    def workers(self) -> list[str]:
        """Return the addresses of the workers in a fixed order; wait for the first one."""
        began = time.monotonic()
        while True:
            addresses = self.present()
            if addresses:
                return addresses
            if self._is_closed() or time.monotonic() - began > self.patience:
                raise self._nobody()
            time.sleep(min(_LOOK, self.patience))

    def is_of_same_cluster(self, other: Runner) -> bool:
        """Whether another runner's workers are ours."""
        if other.client is self.client:
            return True
        ours, theirs = (getattr(runner.client.scheduler, "address", None) for runner in (self, other))
        return ours is not None and ours == theirs

    def submit(self, function: Callable[..., Any], *args: Any, **where: Any) -> Any:
        """Return a future of ``function(*args)``; futures among the arguments are taken where they lie."""
        self._check()
        return self.client.submit(function, *args, pure=False, **where)

    def each(
        self,
        function: Callable[..., Any],
        objects: Sequence[Any],
        *args: Any,
        homes: Sequence[str],
        apart: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Return futures of ``function(object, *args)`` on the objects' own workers; see `Partitions.each` for `apart`.

        A large argument goes to each worker once, not with every task.
        """
        self._check()
        sent = [self._once(value, homes) for value in args]
        futures: list[Any] = [None] * len(objects)
        for home in dict.fromkeys(homes):
            places = [place for place, address in enumerate(homes) if address == home]
            columns = [[objects[place] for place in places]]
            columns += [] if apart is None else [[apart[place] for place in places]]
            columns += [[value] * len(places) for value in sent]
            mapped = self.client.map(function, *columns, pure=False, workers=[home], allow_other_workers=False)
            for place, future in zip(places, mapped, strict=True):
                futures[place] = future
        return futures

    def _check(self) -> None:
        """Refuse to hand out work without a scheduler that hears of it."""
        if self.client.status != "running":
            raise gone()

    def _is_closed(self) -> bool:
        """Whether the connection is over; one that is only interrupted may come back."""
        return self.client.status in ("closing", "closed")

    def _once(self, value: Any, homes: Sequence[str]) -> Any:
        if getattr(value, "nbytes", 0) * len(homes) <= _WITH_EVERY_TASK:
            return value
        return self.scatter(value, sorted(set(homes)))

    def scatter(self, value: Any, homes: Sequence[str]) -> Any:
        """Send a value to some workers; return its future.

        Raises:
            LostError: one of them is gone.
        """
        self._check()
        try:
            return self._looked_after(
                self.client.scatter(
                    value, workers=list(homes), broadcast=True, hash=False, timeout=self.patience, asynchronous=True
                ),
                homes,
            )
        except (KeyError, OSError):  # the scheduler does not know the worker, or cannot reach it
            raise self._loss() from None

    def wait(self, futures: Sequence[Any], homes: Sequence[str] = ()) -> None:
        """Wait until all are done; as `results`, but what they hold stays where it is."""
        self._guarded(lambda: self._wait(futures, homes), futures)

    def results(self, futures: Sequence[Any], homes: Sequence[str] = ()) -> list[Any]:
        """Return what the futures hold, in their order; `homes` are the workers that they cannot do without.

        Raises:
            LostError: a result was on a worker that died, and Dask cannot make it again.
            ClusterError: nobody is there to do the work.
        """

        def waited() -> list[Any]:
            self._wait(futures, homes)
            return list(self._looked_after(self.client.gather(list(futures), asynchronous=True), homes))

        return self._guarded(waited, futures)

    def _looked_after(self, transfer: Coroutine[Any, Any, T], homes: Sequence[str]) -> T:
        """Return the result of one of Dask's transfers. Dask tries for long to reach a worker that is gone; we look."""
        task = asyncio.run_coroutine_threadsafe(transfer, self.client.loop.asyncio_loop)
        deadline = time.monotonic() + max(self.patience, _FETCH)
        try:
            while True:
                try:
                    return task.result(_LOOK)
                except TimeoutError:
                    if task.done() or time.monotonic() > deadline:
                        raise
                    present = self.present()
                    if self._is_closed() or (present and not set(homes) <= set(present)):
                        raise self._loss() from None
        finally:
            task.cancel()

    def _guarded(self, work: Callable[[], T], futures: Sequence[Any]) -> T:
        """Do the work; if it fails, forget the futures, and say why in our words."""
        try:
            return work()
        except KeyboardInterrupt:
            self.cancel(futures)
            raise
        except Exception as problem:
            self.cancel(futures)
            explained = self._explained(problem)
            if explained is problem:
                raise
            raise explained from None

    def added(self, futures: Sequence[Any], homes: Sequence[str] = ()) -> tuple[Any, ...]:
        """Add tuples of numbers and arrays, in the order of the futures; `homes` as in `results`."""
        level = list(futures)
        while len(level) > FAN_IN:
            level = [self.submit(added, *level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        return added(*self.results(level, homes))

    def _wait(self, futures: Sequence[Any], homes: Sequence[str]) -> None:
        """Wait until all are done or one has failed; watch the cluster meanwhile."""
        distributed = require_extra("distributed", "cluster", "tr.cluster")
        waiting, last_seen = list(futures), time.monotonic()
        while waiting:
            try:
                distributed.wait(waiting, timeout=_LOOK)
            except TimeoutError:
                present = self.present()
                if present and not set(homes) <= set(present):
                    raise LostError from None
                if present:
                    last_seen = time.monotonic()
                elif self._is_closed() or time.monotonic() - last_seen > self.patience:
                    raise self._nobody() from None
            for future in waiting:
                if future.status == "error":
                    raise future.exception(timeout=self.patience)
                if future.status in ("cancelled", "lost"):
                    raise LostError
            waiting = [future for future in waiting if future.status != "finished"]

    def present(self) -> list[str]:
        """Return the workers that the scheduler hears of; none if it does not answer itself."""
        if self.client.status != "running":
            return []
        try:
            workers = self._answer(self.client.scheduler.identity)["workers"]
        except (OSError, TimeoutError, RuntimeError):
            return []
        # Clocks of two machines are not compared: what counts is how long, by ours, a worker's last sign has not moved.
        now, before = time.monotonic(), self._heard
        self._heard = {}
        for address, worker in workers.items():
            seen, since = before.get(address, (None, now))
            self._heard[address] = (seen, since) if seen == worker["last_seen"] else (worker["last_seen"], now)
        longest = max(self.patience, _SILENCE)
        return sorted(address for address, (_, since) in self._heard.items() if now - since <= longest)

    def threads(self) -> dict[str, int]:
        """Return the number of threads of each worker."""
        self._check()
        try:
            return dict(self._answer(self.client.scheduler.ncores))
        except (OSError, RuntimeError):
            raise self._loss() from None

    def _answer(self, question: Callable[..., Any]) -> Any:
        """Return the scheduler's answer; raise TimeoutError if it does not come in time."""
        return self.client.sync(question, callback_timeout=max(self.patience, _LOOK))

    def _nobody(self) -> ClusterError:
        if self.client.status != "running":
            return gone()
        return ClusterError(
            f"No worker has been there for {self.patience:g} s. Start workers (dask worker ADDRESS), or give a longer "
            "patience= to toprank.cluster.connect."
        )

    def cancel(self, futures: Sequence[Any]) -> None:
        """Forget about tasks that nobody waits for any more."""
        if self.client.status == "running":
            with suppress(OSError, TimeoutError, RuntimeError):  # nobody left to tell
                self.client.sync(
                    lambda: self.client.cancel(list(futures), asynchronous=True, force=True), callback_timeout=_LOOK
                )

    def _explained(self, problem: Exception) -> Exception:
        distributed = require_extra("distributed", "cluster", "tr.cluster")
        if isinstance(problem, distributed.scheduler.KilledWorker):
            return ClusterError(
                f"A task ({problem.task}) was given up: the workers that tried it died one after another, most often "
                "for want of memory. Use smaller partitions, or workers with more memory."
            )
        dask = (distributed.client.FutureCancelledError, distributed.CancelledError, distributed.comm.CommClosedError)
        if isinstance(problem, (*dask, TimeoutError, LostError)):
            return self._loss()
        return problem

    def _loss(self) -> Exception:
        return LostError() if self.client.status == "running" else gone()


def gone() -> ClusterError:
    """Return the error for a lost scheduler."""
    return ClusterError(
        "The connection to the Dask scheduler is lost, and with it what was on the cluster. Start it again, connect "
        "anew and repeat the call."
    )


def added(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add tuples of numbers and arrays, one after another.

    >>> added((1, 2.0), (3, 4.0))
    (4, 6.0)
    """
    total = list(parts[0])
    for part in parts[1:]:
        total = [a + b for a, b in zip(total, part, strict=True)]
    return tuple(total)


def steadily(work: Callable[[], T], forget: Callable[[], None] = lambda: None) -> T:
    """Do the work; if objects were lost, `forget` where they were and repeat it."""
    for _ in range(_PLACEMENTS):
        try:
            return work()
        except LostError:
            forget()
    raise ClusterError(
        f"Workers were lost {_PLACEMENTS} times during one pass over the data, which was repeated each time. Look "
        "at the workers' logs; most often they lack memory: use smaller partitions."
    )


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
        """The partitions that these were made from in the end."""

    @abstractmethod
    def placement(self) -> Placement:
        """Return where the objects are now."""

    def then(self, function: Callable[..., Any], *args: Any) -> Partitions:
        """Return the objects ``function(object, *args)``, made when they are first needed, and kept."""
        return _DerivedPartitions(self, function, args)

    def each(self, function: Callable[..., Any], *args: Any, apart: Sequence[Any] | None = None) -> list[Any]:
        """Return ``function(object, *args)`` for every partition, in order; `apart`: one more argument for each."""
        return self.root.steadily(lambda: self.runner.results(*self._submitted(function, args, apart)))

    def total(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Add the tuples that the function gives for each partition, in their order."""
        return self.root.steadily(lambda: self.runner.added(*self._submitted(function, args)))

    def _submitted(
        self, function: Callable[..., Any], args: tuple[Any, ...], apart: Sequence[Any] | None = None
    ) -> tuple[list[Any], list[str]]:
        futures, homes = self.placement()
        return self.runner.each(function, futures, *args, homes=homes, apart=apart), homes


class SourcePartitions(Partitions):
    """Objects that `place` makes from sources, anew after a loss; those it returns again are still there."""

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
        """Have the workers forget what was made of the objects; it is made anew when it is needed."""
        for rows in self.derived:
            rows.release()
        self._forget()

    def steadily(self, work: Callable[[], T]) -> T:
        """Do the work; if objects were lost, place them anew and repeat it."""
        return steadily(work, self._forget)

    def _forget(self) -> None:
        self._placed = None


class _DerivedPartitions(Partitions):
    """Objects that are made from others, where those are."""

    def __init__(self, parent: Partitions, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.runner, self.parent = parent.runner, parent
        self.function, self.args = function, args
        self._made: dict[str, tuple[Any, Any]] = {}
        self.root.derived.add(self)

    def release(self) -> None:
        """Have the workers forget the objects; they are made anew when they are needed."""
        for _, future in self._made.values():
            future.release()
        self._made = {}

    @property
    @override
    def root(self) -> SourcePartitions:
        return self.parent.root

    @override
    def placement(self) -> Placement:
        """Return where the objects are now; only those with a new parent are made anew."""
        parents, homes = self.parent.placement()
        new = [place for place, parent in enumerate(parents) if parent.key not in self._made]
        futures = self.runner.each(self.function, [parents[i] for i in new], *self.args, homes=[homes[i] for i in new])
        fresh = {parents[i].key: (parents[i], future) for i, future in zip(new, futures, strict=True)}
        self._made = {parent.key: fresh.get(parent.key) or self._made[parent.key] for parent in parents}
        return Placement([self._made[parent.key][1] for parent in parents], homes)
