"""The rows of partitions on the workers: loaded there, whole queries made of them, and all of it again after a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.cluster import work
from toprank.cluster.queries import Move, joined, taken
from toprank.cluster.running import Runner
from toprank.cluster.sources import DataPart, FramePart, Parts, load, rows_of_frame
from toprank.cluster.spread import Placement
from toprank.errors import DataError, ToprankError

__all__ = ["Holding"]


class Holding:
    """Futures of the partitions' rows, and the workers that have them.

    It knows nothing of those who use it: when they are gone, so is it, and the workers forget the rows at once.
    """

    def __init__(self, runner: Runner, parts: Parts) -> None:
        self.runner, self.parts = runner, parts
        self.moves: list[Move] = []
        self.kept = list(range(len(parts)))
        """Numbers of the partitions that have rows."""
        self.homes = [""] * len(parts)
        """A worker for each partition, also for those without rows."""
        self._raw: list[Any] = [None] * len(parts)
        self._whole: list[Any] = []

    def place(self) -> Placement:
        """All partitions that have rows. What is still there stays; neighbours go to the same worker."""
        workers = self.runner.workers()
        at_once = all(future is None for future in self._raw)
        for number, future in enumerate(self._raw):
            if self.homes[number] not in workers or not _is_there(future):
                place = number * len(workers) // len(self._raw) if at_once else number % len(workers)
                self.homes[number] = workers[place]
                self._raw[number] = self._load(self.parts.sources[number], workers[place])
                self._whole = []
        if not self._whole or not all(_is_there(future) for future in self._whole):
            self._whole = self._repaired() if self.moves else list(self._raw)
        return Placement([self._whole[number] for number in self.kept], [self.homes[number] for number in self.kept])

    def repair(self, moves: list[Move]) -> None:
        """Bring rows together, from now on."""
        self.moves, self._whole = moves, []

    def forget(self) -> None:
        """Place all partitions anew when they are asked for."""
        self._raw, self._whole = [None] * len(self.parts), []

    def release(self) -> None:
        """Have the workers forget the rows, even where somebody still holds a future of them."""
        for future in (*self._raw, *self._whole):
            if future is not None:
                future.release()
        self.forget()

    def check_frames(self) -> None:
        """Say which partition of a frame could not be computed, if one could not."""
        for future, source in zip(self._raw, self.parts.sources, strict=True):
            if isinstance(source, FramePart) and future is not None and future.status == "error":
                problem = future.exception(timeout=self.runner.patience)
                if not isinstance(problem, ToprankError):
                    text = " ".join(str(problem).split())[:300].rstrip(".")
                    said = f"{source.name} cannot be computed ({type(problem).__name__}: {text})."
                    raise DataError(said[0].upper() + said[1:]) from problem

    def _repaired(self) -> list[Any]:
        """The partitions after the moves, made before anybody asks: later, those that gave rows may be gone."""
        gone: dict[int, list[Any]] = {}
        come: dict[int, list[Any]] = {}
        for donor, home, qids, _ in self.moves:
            gone.setdefault(donor, []).append(qids)
            part = self.runner.submit(taken, self._raw[donor], donor, qids, workers=[self.homes[donor]])
            come.setdefault(home, []).append(part)
        rows, changed = list(self._raw), sorted({*gone, *come})
        for number in changed:
            left = np.concatenate(gone[number]) if number in gone else None
            more = come.get(number, [])
            rows[number] = self.runner.submit(joined, rows[number], number, left, *more, workers=[self.homes[number]])
        self.runner.wait([rows[number] for number in changed], self.homes)
        return rows

    def _load(self, source: Any, home: str) -> Any:
        if isinstance(source, DataPart):
            return self.runner.scatter(work.Rows(source.data, source.name, None), [home])
        if isinstance(source, FramePart):
            frame = self.runner.client.compute(source.frame)
            return self.runner.submit(rows_of_frame, frame, source.name, source.roles, workers=[home])
        return self.runner.submit(load, source, workers=[home])


def _is_there(future: Any) -> bool:
    """Whether there is something, or will be."""
    return future is not None and future.status in ("pending", "finished")
