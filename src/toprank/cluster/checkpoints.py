"""What a training of trees leaves on the scheduler, which outlives workers: checkpoints, wishes, who has begun."""

from __future__ import annotations

import pickle
import time
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

from toprank.errors import needs
from toprank.rankers.watching import Round

__all__ = ["Attempt", "Checkpoints", "Checkpoint"]

_ASK = 0.5
"""Seconds between two looks at what the client wants."""
_TELL = 1.0
"""Seconds between two words about where the training stands."""


class Checkpoint(NamedTuple):
    """The rounds made so far, and what was known after them; at the end, the rounds to keep."""

    trees: str
    rounds: int
    valid: float | None
    history: dict[str, list[float]]
    best: int
    best_value: float | None
    stopped: str = ""
    interrupted: bool = False


class Checkpoints:
    """The last checkpoint, and the client's wish to stop."""

    def __init__(self, name: str, client: Any) -> None:
        distributed = needs("distributed", "cluster", "tr.cluster")
        self._note = distributed.Variable(f"{name}-checkpoint", client=client)
        self._round = distributed.Variable(f"{name}-round", client=client)
        self._stop = distributed.Event(f"{name}-stop", client=client)
        self._asked, self._wish, self._told = 0.0, False, -_TELL

    def post(self, checkpoint: Checkpoint) -> None:
        """Replace the last checkpoint."""
        self._note.set(zlib.compress(pickle.dumps(tuple(checkpoint)), 1))

    def last(self) -> Checkpoint | None:
        """The last checkpoint, where there is one."""
        try:
            return Checkpoint(*pickle.loads(zlib.decompress(self._note.get(timeout="2s"))))
        except TimeoutError:
            return None

    def tell(self, now: Round) -> None:
        """Say where the training stands, about once a second."""
        if now.seconds - self._told >= _TELL or now.number == now.last:
            self._told = now.seconds
            self._round.set(now._replace(booster=None))

    def told(self) -> Round | None:
        """Where the training stands, if that was said."""
        try:
            return Round(*self._round.get(timeout=_TELL))
        except OSError:  # nothing was said in time, or nobody answers, which the client looks at elsewhere
            return None

    def ask_to_stop(self) -> None:
        """Tell the trainers to end after this round."""
        self._stop.set()

    def stop_wanted(self) -> bool:
        """Whether the client wants to stop; asked now and then."""
        if time.monotonic() - self._asked > _ASK:
            self._asked, self._wish = time.monotonic(), bool(self._stop.is_set())
        return self._wish

    def clear(self) -> None:
        """Forget everything."""
        self._note.delete()
        self._round.delete()
        self._stop.clear()


class Attempt:
    """One start of the trainers, as a sign on the scheduler that stays up as long as the client wants them to go on.

    Who finds it taken down leaves. So the client need not reach a trainer to end it, not even one that is still in a
    queue, and nothing is left behind.
    """

    def __init__(self, name: str, client: Any) -> None:
        self._name, self._client = name, client
        self._sign = self._event("wanted")
        self._asked, self._up = float("-inf"), True

    def _event(self, what: str) -> Any:
        return needs("distributed", "cluster", "tr.cluster").Event(f"{self._name}-{what}", client=self._client)

    def open(self) -> None:
        """Put the sign up."""
        self._sign.set()

    def close(self) -> None:
        """Take the sign down."""
        self._sign.clear()

    def wanted(self) -> bool:
        """Whether the sign is up; looked at now and then."""
        if time.monotonic() - self._asked > _ASK:
            self._asked = time.monotonic()
            try:
                self._up = bool(self._sign.is_set())
            except OSError:  # the scheduler is lost, and nobody can have what is made here
                self._up = False
        return self._up

    def begin(self, rank: int) -> bool:
        """Say that a trainer has begun; whether it is still wanted."""
        self._event(str(rank)).set()
        if self.wanted():
            return True
        self._event(str(rank)).clear()  # the client has tidied up already, or is about to
        return False

    def begun(self, rank: int) -> bool:
        """Whether a trainer has begun."""
        with suppress(OSError):  # nobody answers, which the client looks at elsewhere
            return bool(self._event(str(rank)).is_set())
        return False

    def forget(self, size: int) -> None:
        """Leave nothing behind on the scheduler."""
        self.close()
        for rank in range(size):
            self._event(str(rank)).clear()
