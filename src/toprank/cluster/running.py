"""Work on a cluster, waited for without ever hanging: what fails is said in a sentence.

Results are added in the order of the partitions, never in the order in which workers answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from toprank.cluster.faults import ClusterError, LostError
from toprank.errors import needs

__all__ = ["FAN_IN", "Runner", "added"]

FAN_IN = 16
"""So many partial sums are added at a time; more partitions are added on the workers first, in groups of neighbours."""
_WITH_EVERY_TASK = 1 << 20
_FETCH = 600.0
"""Seconds that finished results may take on their way here; scores of very many documents do take a while."""
_LOOK = 1.0
"""Seconds between two looks at whether anybody is still there."""


class Runner:
    """Tasks of one client.

    Args:
        client: a Dask client.
        patience: seconds without scheduler or worker after which we give up.
        checkpoint: rounds of boosting between two checkpoints.
    """

    def __init__(self, client: Any, patience: float, checkpoint: int) -> None:
        self.client, self.patience, self.checkpoint = client, patience, checkpoint

    def workers(self) -> list[str]:
        """Addresses of the workers, in a fixed order; waits for the first one."""
        began = time.monotonic()
        while True:
            found = self.present()
            if found:
                return found
            if time.monotonic() - began > self.patience:
                raise self._nobody()
            time.sleep(min(_LOOK, self.patience))

    def submit(self, function: Callable[..., Any], *args: Any, **where: Any) -> Any:
        """A future of ``function(*args)``; futures among the arguments are taken where they lie."""
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
        """Futures of ``function(object, *args)`` on the objects' own workers; see `Spread.each` for `apart`.

        What is large among the arguments goes to the workers once, not with every task.
        """
        self._check()
        sent = [self._once(value, len(objects)) for value in args]
        futures: list[Any] = [None] * len(objects)
        for home in dict.fromkeys(homes):
            places = [place for place, address in enumerate(homes) if address == home]
            columns = [[objects[place] for place in places]]
            columns += [] if apart is None else [[apart[place] for place in places]]
            columns += [[value] * len(places) for value in sent]
            made = self.client.map(function, *columns, pure=False, workers=[home], allow_other_workers=False)
            for place, future in zip(places, made, strict=True):
                futures[place] = future
        return futures

    def _check(self) -> None:
        """Refuse to hand out work where nobody hears of it."""
        if self.client.status != "running":
            raise gone()

    def _once(self, value: Any, times: int) -> Any:
        if getattr(value, "nbytes", 0) * times <= _WITH_EVERY_TASK:
            return value
        return self.client.scatter(value, broadcast=True, hash=False, timeout=self.patience)

    def results(self, futures: Sequence[Any], homes: Sequence[str] = ()) -> list[Any]:
        """What the futures hold, in their order; `homes` are the workers that they cannot do without.

        Raises:
            LostError: it was on a worker that died, and Dask cannot make it again.
            ClusterError: nobody is there to do the work.
        """
        try:
            self._wait(futures, homes)
            return list(
                self.client.sync(
                    lambda: self.client.gather(list(futures), asynchronous=True),
                    callback_timeout=max(self.patience, _FETCH),
                )
            )
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
        """The sum of tuples of numbers and arrays, in the order of the futures; `homes` as in `results`."""
        level = list(futures)
        while len(level) > FAN_IN:
            level = [self.submit(added, *level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        return added(*self.results(level, homes))

    def _wait(self, futures: Sequence[Any], homes: Sequence[str]) -> None:
        """Until all are done or one has failed; looks after the cluster meanwhile."""
        distributed = needs("distributed", "cluster", "tr.cluster")
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
                elif time.monotonic() - last_seen > self.patience:
                    raise self._nobody() from None
            for future in waiting:
                if future.status == "error":
                    raise future.exception(timeout=self.patience)
                if future.status in ("cancelled", "lost"):
                    raise LostError
            waiting = [future for future in waiting if future.status != "finished"]

    def present(self) -> list[str]:
        """The workers that the scheduler knows; none where it does not answer."""
        if self.client.status != "running":
            return []
        try:
            known = self.client.sync(self.client.scheduler.ncores, callback_timeout=max(self.patience, _LOOK))
        except (OSError, TimeoutError, RuntimeError):
            return []
        return sorted(known)

    def threads(self) -> dict[str, int]:
        """Threads of each worker."""
        return dict(self.client.nthreads())

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
        distributed = needs("distributed", "cluster", "tr.cluster")
        if isinstance(problem, distributed.scheduler.KilledWorker):
            return ClusterError(
                f"A task ({problem.task}) was given up: the workers that tried it died one after another, most often "
                "for want of memory. Use smaller partitions, or workers with more memory."
            )
        lost = (
            distributed.client.FutureCancelledError,
            distributed.CancelledError,
            distributed.comm.CommClosedError,
            TimeoutError,
            LostError,
        )
        if isinstance(problem, lost):
            return LostError() if self.client.status == "running" else gone()
        return problem


def gone() -> ClusterError:
    """What to say where the scheduler is lost."""
    return ClusterError(
        "The connection to the Dask scheduler is lost, and with it what was on the cluster. Start it again, connect "
        "anew and repeat the call."
    )


def added(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tuples of numbers and arrays, added one after another.

    >>> added((1, 2.0), (3, 4.0))
    (4, 6.0)
    """
    total = list(parts[0])
    for part in parts[1:]:
        total = [a + b for a, b in zip(total, part, strict=True)]
    return tuple(total)
