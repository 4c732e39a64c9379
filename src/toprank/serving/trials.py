"""Trials on users: which model a key gets, and which lists are changed a little, so that their clicks can tell."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from toprank.errors import DataError

_DEPTH = 10
_WAY = "swap-neighbours"


class Arm(NamedTuple):
    """A model of a split, and the share of the keys that get it."""

    model: str
    share: float


class TrafficSplit:
    """Models that share the keys of users.

    The arm of a key depends on the key and the names of the models alone: all replicas agree, and if the share of a
    model is raised, the keys that had it keep it.

    Args:
        primary: the model that all others get.
        texts: NAME=PERCENT, of each.

    >>> split = TrafficSplit("old", ["new=25"])
    >>> arms = [split.arm(key) for key in range(1000)]
    >>> 200 < sum(arm.model == "new" for arm in arms) < 300, arms[0].share
    (True, 0.75)
    """

    def __init__(self, primary: str, texts: Sequence[str]) -> None:
        shares: dict[str, float] = {}
        for text in texts:
            name, _, percent = text.partition("=")
            shares[name] = shares.get(name, 0.0) + _percent(percent, text)
        if primary in shares:
            raise DataError(f"'{primary}' is the primary model and gets all other keys; name another in the split.")
        if (total := sum(shares.values())) > 100:
            raise DataError(f"The shares of the split are {total:g} percent together; 100 is all that there is.")
        self.names = tuple(shares)
        self._arms = [Arm(name, percent / 100) for name, percent in shares.items()]
        self._rest = Arm(primary, 1 - total / 100)
        self._salt = hashlib.sha256(msgspec.json.encode([primary, *shares])).digest()

    def arm(self, key: Any) -> Arm:
        """The arm of a key."""
        text = hashlib.blake2b(msgspec.json.encode(key), digest_size=8, key=self._salt, person=b"split").digest()
        place = int.from_bytes(text) / 2**64
        for arm in self._arms:
            if place < arm.share:
                return arm
            place -= arm.share
        return self._rest


def _percent(text: str, whole: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 < percent <= 100:
        raise DataError(f"'{whole}' is no share of a split: give NAME=PERCENT, above 0 and at most 100, such as new=5.")
    return percent


class Swap(NamedTuple):
    """What exploring does to a list: the place, from 0, that is exchanged with the next; None: it stays as it is."""

    place: int | None = None
    propensity: float = 1.0
    """The chance of the list that comes of it, which would also be the same list's if it were drawn again."""


class Exploration:
    """Exchanges two random neighbours of some lists.

    Args:
        text: ``swap-neighbours:SHARE``, or ``swap-neighbours:SHARE:DEPTH``.
        rng: draws.

    >>> exploration = Exploration("swap-neighbours:0.2:3", random.Random(0))
    >>> {exploration.drawn(10) for _ in range(100)} == {Swap(None, 0.8), Swap(0, 0.1), Swap(1, 0.1)}
    True
    """

    def __init__(self, text: str, rng: random.Random | None = None) -> None:
        way, *numbers = text.split(":")
        try:
            self.share, self._depth = float(numbers[0]), int(numbers[1]) if numbers[1:] else _DEPTH
        except (ValueError, IndexError):
            self.share, self._depth = -1.0, 0
        if way != _WAY or len(numbers) > 2 or not 0 < self.share <= 1 or self._depth < 2:
            raise DataError(
                f"'{text}' is no way to explore: give {_WAY}:SHARE, with a share of the lists above 0 and at most 1, "
                f"such as {_WAY}:0.05; or {_WAY}:SHARE:DEPTH, with a depth of 2 or more."
            )
        self._rng = rng or random.Random()

    def drawn(self, length: int) -> Swap:
        """What is done to a list of so many documents."""
        pairs = min(length, self._depth) - 1
        if pairs < 1:
            return Swap()
        if self._rng.random() >= self.share:
            return Swap(None, 1 - self.share)
        return Swap(self._rng.randrange(pairs), self.share / pairs)
