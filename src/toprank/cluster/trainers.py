"""The trainers of one start: looked after while they train, and all of them ended where one fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from toprank.cluster.board import Attempt
from toprank.cluster.faults import ClusterError, LostError
from toprank.cluster.running import Runner
from toprank.cluster.tree_share import is_desertion

__all__ = ["Trainers"]

_FAREWELL = 10.0
"""Seconds that trainers get to notice that they are no longer wanted, before their workers are restarted."""
_LOOK = 0.5


class Trainers:
    """Trainers on workers of their own, which need each other.

    Args:
        runner: the cluster.
        name: of this start; no other has the same.
        addresses: the workers, in the order of the trainers' ranks.
    """

    def __init__(self, runner: Runner, name: str, addresses: Sequence[str]) -> None:
        self.runner, self.name, self.addresses = runner, name, addresses
        self.futures: dict[str, Any] = {}
        self._attempt = Attempt(name, runner.client)
        self._late = dict(enumerate(addresses))
        self._began = self._looked = time.monotonic()

    def start(self, function: Callable[..., Any], args: Iterable[tuple[Any, ...]]) -> None:
        """Start them; `args` are those of each trainer."""
        self._attempt.open()
        for address, own in zip(self.addresses, args, strict=True):
            self.futures[address] = self.runner.submit(function, *own, workers=[address], allow_other_workers=False)
        self._began = time.monotonic()

    def finished(self) -> bool:
        """Whether all are done."""
        return all(future.status == "finished" for future in self.futures.values())

    def look(self) -> None:
        """Raise what a trainer raised; notice that one is gone, or does not begin.

        Raises:
            LostError: the trainers cannot go on, but others may from a checkpoint.
            ClusterError: nobody is there, or a worker is busy with something else.
        """
        own, deserted = self._problems()
        if own:
            raise own[0]
        if deserted:
            raise LostError(str(deserted[0]).strip().partition("\n")[0][:300].rstrip("."))
        if any(future.status in ("cancelled", "lost") for future in self.futures.values()):
            raise LostError("the task of a trainer was cancelled")
        if time.monotonic() - self._looked >= _LOOK:
            self._looked = time.monotonic()
            self._check_workers()

    def _problems(self) -> tuple[list[BaseException], list[BaseException]]:
        """What trainers raised: of their own, and for want of another."""
        failed = [future for future in self.futures.values() if future.status == "error"]
        problems = [future.exception(timeout=self.runner.patience) for future in failed]
        deserted = [one for one in problems if is_desertion(one) or type(one).__name__ == "KilledWorker"]
        return [one for one in problems if one not in deserted], deserted

    def _check_workers(self) -> None:
        present = self.runner.present() or self.runner.workers()  # which waits, and says so where nobody comes
        absent = [a for a, future in self.futures.items() if future.status == "pending" and a not in present]
        if absent:
            raise LostError(f"{', '.join(absent)} went away or fell silent")
        self._late = {rank: address for rank, address in self._late.items() if not self._attempt.begun(rank)}
        if self._late and time.monotonic() - self._began > self.runner.patience:
            raise ClusterError(
                "Trees need all workers that have partitions at the same time, but nothing was begun within "
                f"{self.runner.patience:g} s on {', '.join(self._late.values())}: busy with other tasks, or still "
                "waiting for data. Train again when they are free, or give a longer patience= to "
                "toprank.cluster.connect."
            )

    def end(self, problem: BaseException) -> BaseException:
        """See that no trainer goes on, whatever went wrong; what to raise in the end.

        One that has not begun is cancelled, and so never disturbs the worker that is busy with something else. Those
        that have begun leave when they see that nobody wants them; but LightGBM may wait for ever for a trainer that is
        gone, so that its worker must be restarted. (Not where the keyboard interrupts: then nobody is gone.)
        """
        if self.runner.client.status != "running":
            return problem
        with suppress(OSError):
            self._attempt.close()
        begun = [address for rank, address in enumerate(self.addresses) if self._attempt.begun(rank)]
        self.runner.cancel([future for address, future in self.futures.items() if address not in begun])
        stuck = self._after_farewell(begun)
        trouble = self._restart(stuck) if stuck and not isinstance(problem, KeyboardInterrupt) else None
        own, _ = self._problems()
        self.runner.cancel(list(self.futures.values()))
        if not isinstance(problem, LostError):
            return problem
        return own[0] if own else trouble or problem  # a trainer that fails may be heard of after those that it left

    def _after_farewell(self, begun: Sequence[str]) -> list[str]:
        """The workers whose trainers do not leave in time."""
        deadline = time.monotonic() + _FAREWELL
        while True:
            pending = [address for address in begun if self.futures[address].status == "pending"]
            busy = sorted(set(pending) & set(self.runner.present())) if pending else []
            if not busy or time.monotonic() > deadline:
                return busy
            time.sleep(_LOOK / 5)

    def _restart(self, stuck: list[str]) -> ClusterError | None:
        try:
            self.runner.client.restart_workers(stuck, timeout=self.runner.patience, raise_for_error=False)
        except ValueError as problem:
            return ClusterError(
                f"A worker was lost while trees were trained, and the others ({', '.join(stuck)}) still wait for it "
                f"and cannot be restarted ({problem}). Restart them by hand, and train again."
            )
        except (OSError, KeyError):  # they went away by themselves, or nobody answers: the next start will tell
            pass
        return None

    def forget(self) -> None:
        """Leave nothing behind on the scheduler."""
        if self.runner.client.status == "running":
            with suppress(OSError):
                self._attempt.forget(len(self.addresses))
