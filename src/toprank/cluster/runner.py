"""Execution of tasks on a cluster, with monitoring, so that a lost worker or scheduler results in a clear error.

Results are added in the order of the partitions, never in the order of completion.
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
"""Maximum number of partial sums added at a time; more are first added on the workers, in groups of neighbors."""
# Bytes that an argument may add to all tasks together; a larger one is sent to each worker once.
_MAX_TASK_BYTES = 1 << 20
# Seconds for the transfer of finished results; scores of very many documents take a while.
_FETCH_SECONDS = 600.0
# Seconds between two checks of the cluster.
_POLL_SECONDS = 1.0
# Seconds, or the timeout if longer, without a heartbeat after which a worker counts as lost. (A live worker sends one
# every half second, or every few seconds if there are hundreds.)
_SILENCE_SECONDS = 30.0
# Maximum number of attempts, each after a loss, before the work fails.
_MAX_ATTEMPTS = 5


class LostError(Exception):
    """Objects were lost with a worker and Dask cannot compute them again, but we can, from the partitions' sources."""


class Runner:
    """Runs tasks with one client, and raises an error after `timeout` seconds without scheduler or worker."""

    def __init__(self, client: Any, timeout: float, checkpoint_every: int) -> None:
        self.client, self.timeout, self.checkpoint_every = client, timeout, checkpoint_every
        self._heard: dict[str, tuple[Any, float]] = {}

    def workers(self) -> list[str]:
        """Return the addresses of the workers in a fixed order; wait for the first one."""
        began = time.monotonic()
        while True:
            addresses = self.present()
            if addresses:
                return addresses
            if self._is_closed() or time.monotonic() - began > self.timeout:
                raise self._nobody()
            time.sleep(min(_POLL_SECONDS, self.timeout))

    def is_of_same_cluster(self, other: Runner) -> bool:
        """Return whether another runner uses the same workers."""
        if other.client is self.client:
            return True
        ours, theirs = (getattr(runner.client.scheduler, "address", None) for runner in (self, other))
        return ours is not None and ours == theirs

    def submit(self, function: Callable[..., Any], *args: Any, **where: Any) -> Any:
        """Return a future of ``function(*args)``; futures among the arguments are not moved to the client."""
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
        """Return futures of ``function(object, *args)`` on the objects' own workers.

        `apart` is as in `PartitionObjects.each`. A large argument is sent to each worker once, not with every task.
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
        """Raise an error if the connection to the scheduler is lost."""
        if self.client.status != "running":
            raise gone()

    def _is_closed(self) -> bool:
        """Return whether the connection is closed; one that is only interrupted may recover."""
        return self.client.status in ("closing", "closed")

    def _once(self, value: Any, homes: Sequence[str]) -> Any:
        if getattr(value, "nbytes", 0) * len(homes) <= _MAX_TASK_BYTES:
            return value
        return self.scatter(value, sorted(set(homes)))

    def scatter(self, value: Any, homes: Sequence[str]) -> Any:
        """Send a value to some workers; return its future.

        Raises:
            LostError: one of the workers is lost.
        """
        self._check()
        try:
            return self._transfer(
                self.client.scatter(
                    value, workers=list(homes), broadcast=True, hash=False, timeout=self.timeout, asynchronous=True
                ),
                homes,
            )
        except (KeyError, OSError):  # the worker is unknown to the scheduler, or cannot be reached
            raise self._loss() from None

    def wait(self, futures: Sequence[Any], homes: Sequence[str] = ()) -> None:
        """Wait until all are done, as `results` does, but leave their values on the workers."""
        self._run_guarded(lambda: self._wait(futures, homes), futures)

    def results(self, futures: Sequence[Any], homes: Sequence[str] = ()) -> list[Any]:
        """Return the values of the futures, in order; `homes` are the workers that they need.

        Raises:
            LostError: a result was on a worker that died, and Dask cannot compute it again.
            ClusterError: all workers are gone.
        """

        def waited() -> list[Any]:
            self._wait(futures, homes)
            return list(self._transfer(self.client.gather(list(futures), asynchronous=True), homes))

        return self._run_guarded(waited, futures)

    def _transfer(self, transfer: Coroutine[Any, Any, T], homes: Sequence[str]) -> T:
        """Return the result of a Dask transfer. Dask retries a lost worker for long, so we check its presence."""
        task = asyncio.run_coroutine_threadsafe(transfer, self.client.loop.asyncio_loop)
        deadline = time.monotonic() + max(self.timeout, _FETCH_SECONDS)
        try:
            while True:
                try:
                    return task.result(_POLL_SECONDS)
                except TimeoutError:
                    if task.done() or time.monotonic() > deadline:
                        raise
                    present = self.present()
                    if self._is_closed() or (present and not set(homes) <= set(present)):
                        raise self._loss() from None
        finally:
            task.cancel()

    def _run_guarded(self, work: Callable[[], T], futures: Sequence[Any]) -> T:
        """Do the work; if it fails, cancel the futures and raise an explained error."""
        try:
            return work()
        except KeyboardInterrupt:
            self.cancel(futures)
            raise
        except Exception as problem:
            self.cancel(futures)
            explained = self._explain(problem)
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
        """Wait until all are done or one has failed, and monitor the cluster meanwhile."""
        distributed = require_extra("distributed", "cluster", "tr.cluster")
        waiting, last_seen = list(futures), time.monotonic()
        while waiting:
            try:
                distributed.wait(waiting, timeout=_POLL_SECONDS)
            except TimeoutError:
                present = self.present()
                if present and not set(homes) <= set(present):
                    raise LostError from None
                if present:
                    last_seen = time.monotonic()
                elif self._is_closed() or time.monotonic() - last_seen > self.timeout:
                    raise self._nobody() from None
            for future in waiting:
                if future.status == "error":
                    raise future.exception(timeout=self.timeout)
                if future.status in ("cancelled", "lost"):
                    raise LostError
            waiting = [future for future in waiting if future.status != "finished"]

    def present(self) -> list[str]:
        """Return the workers with a recent heartbeat; none if the scheduler does not reply."""
        if self.client.status != "running":
            return []
        try:
            workers = self._answer(self.client.scheduler.identity)["workers"]
        except (OSError, TimeoutError, RuntimeError):
            return []
        # Do not compare clocks of two machines: measure by our clock how long a worker's last heartbeat has not
        # changed.
        now, before = time.monotonic(), self._heard
        self._heard = {}
        for address, worker in workers.items():
            seen, since = before.get(address, (None, now))
            self._heard[address] = (seen, since) if seen == worker["last_seen"] else (worker["last_seen"], now)
        longest = max(self.timeout, _SILENCE_SECONDS)
        return sorted(address for address, (_, since) in self._heard.items() if now - since <= longest)

    def threads(self) -> dict[str, int]:
        """Return the number of threads of each worker."""
        self._check()
        try:
            return dict(self._answer(self.client.scheduler.ncores))
        except (OSError, RuntimeError):
            raise self._loss() from None

    def _answer(self, question: Callable[..., Any]) -> Any:
        """Return the scheduler's reply; raise TimeoutError if it is late."""
        return self.client.sync(question, callback_timeout=max(self.timeout, _POLL_SECONDS))

    def _nobody(self) -> ClusterError:
        if self.client.status != "running":
            return gone()
        return ClusterError(
            f"There has been no worker for {self.timeout:g} s. Start workers (dask worker ADDRESS), or pass a longer "
            "timeout= to toprank.cluster.connect."
        )

    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel tasks whose results are no longer needed."""
        if self.client.status == "running":
            with suppress(OSError, TimeoutError, RuntimeError):  # the scheduler is gone
                self.client.sync(
                    lambda: self.client.cancel(list(futures), asynchronous=True, force=True),
                    callback_timeout=_POLL_SECONDS,
                )

    def _explain(self, problem: Exception) -> Exception:
        distributed = require_extra("distributed", "cluster", "tr.cluster")
        if isinstance(problem, distributed.scheduler.KilledWorker):
            return ClusterError(
                f"A task ({problem.task}) was abandoned: the workers that tried it died one after another, most often "
                "for lack of memory. Use smaller partitions, or workers with more memory."
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
        "The connection to the Dask scheduler is lost, along with all data on the cluster. Restart it, connect again "
        "and repeat the call."
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


def retry_lost(work: Callable[[], T], forget: Callable[[], None] = lambda: None) -> T:
    """Do the work; if objects were lost, call `forget` and repeat it."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            return work()
        except LostError:
            forget()
    raise ClusterError(
        f"Workers were lost {_MAX_ATTEMPTS} times during one pass over the data, which was repeated each time. Check "
        "the workers' logs; most often they lack memory: use smaller partitions."
    )


class Placement(NamedTuple):
    """Futures of the objects, and the addresses of the workers that hold them."""

    futures: list[Any]
    homes: list[str]


class PartitionObjects(ABC):
    """One object for each partition."""

    runner: Runner

    @property
    @abstractmethod
    def root(self) -> SourceObjects:
        """The source partitions that these objects are derived from."""

    @abstractmethod
    def placement(self) -> Placement:
        """Return the current location of the objects."""

    def then(self, function: Callable[..., Any], *args: Any) -> PartitionObjects:
        """Return the objects ``function(object, *args)``, computed when first needed, and kept."""
        return _DerivedObjects(self, function, args)

    def each(self, function: Callable[..., Any], *args: Any, apart: Sequence[Any] | None = None) -> list[Any]:
        """Return ``function(object, *args)`` for every partition, in order; `apart` is one additional argument for
        each.
        """
        return self.root.retry_lost(lambda: self.runner.results(*self._submitted(function, args, apart)))

    def total(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Add the tuples returned by the function for each partition, in order."""
        return self.root.retry_lost(lambda: self.runner.added(*self._submitted(function, args)))

    def _submitted(
        self, function: Callable[..., Any], args: tuple[Any, ...], apart: Sequence[Any] | None = None
    ) -> tuple[list[Any], list[str]]:
        futures, homes = self.placement()
        return self.runner.each(function, futures, *args, homes=homes, apart=apart), homes


class SourceObjects(PartitionObjects):
    """Objects that `place` loads from sources, and reloads after a loss; those it returns again still exist."""

    def __init__(self, runner: Runner, place: Callable[[], Placement]) -> None:
        self.runner, self._place = runner, place
        self._placed: Placement | None = None
        self.derived: WeakSet[_DerivedObjects] = WeakSet()

    @property
    @override
    def root(self) -> SourceObjects:
        # This is not an attribute: a root with a reference to itself would keep rows until garbage collection.
        return self

    @override
    def placement(self) -> Placement:
        if self._placed is None:
            self._placed = self._place()
        return self._placed

    def release(self) -> None:
        """Release derived objects on the workers; they are computed again when needed."""
        for rows in self.derived:
            rows.release()
        self._forget()

    def retry_lost(self, work: Callable[[], T]) -> T:
        """Do the work; if objects were lost, load them again and repeat it."""
        return retry_lost(work, self._forget)

    def _forget(self) -> None:
        self._placed = None


class _DerivedObjects(PartitionObjects):
    """Objects computed from others, on the same workers."""

    def __init__(self, parent: PartitionObjects, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.runner, self.parent = parent.runner, parent
        self.function, self.args = function, args
        self._made: dict[str, tuple[Any, Any]] = {}
        self.root.derived.add(self)

    def release(self) -> None:
        """Release the objects on the workers; they are computed again when needed."""
        for _, future in self._made.values():
            future.release()
        self._made = {}

    @property
    @override
    def root(self) -> SourceObjects:
        return self.parent.root

    @override
    def placement(self) -> Placement:
        """Return the current location of the objects; only those with a new parent are recomputed."""
        parents, homes = self.parent.placement()
        new = [place for place, parent in enumerate(parents) if parent.key not in self._made]
        futures = self.runner.each(self.function, [parents[i] for i in new], *self.args, homes=[homes[i] for i in new])
        fresh = {parents[i].key: (parents[i], future) for i, future in zip(new, futures, strict=True)}
        self._made = {parent.key: fresh.get(parent.key) or self._made[parent.key] for parent in parents}
        return Placement([self._made[parent.key][1] for parent in parents], homes)
