"""Trials on users: which model a key gets, and which lists are changed a little, so that their clicks can tell."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from toprank.errors import DataError

_HASHES = 2**64  # different hashes of a key
_DEPTH = 10
_WAY = "swap-neighbors"


class Arm(NamedTuple):
    """A model of a split, and the share of the keys that get it."""

    model: str
    share: float


class TrafficSplit:
    """Models that share the keys of users.

    The arm of a key depends on the key, the names and the shares, never on the order in which they are given, so all
    replicas agree. If the share of a model is raised, the keys that had it keep it, and the others come from the
    primary model; keys change between two other models only if three or more share the keys with the primary model and
    one of them has more than its part of the range (`_allocate`). Another set of models is another experiment, whose
    keys are assigned anew. The keys 7 and ``"7"`` are one user.

    Args:
        primary: the model for all remaining keys.
        texts: NAME=PERCENT for each other model.

    >>> split = TrafficSplit("old", ["new=25"])
    >>> arms = [split.arm(key) for key in range(1000)]
    >>> 200 < sum(arm.model == "new" for arm in arms) < 300, arms[0].share
    (True, 0.75)
    """

    def __init__(self, primary: str, texts: Sequence[str]) -> None:
        shares: dict[str, Fraction] = {}
        for text in texts:
            name, _, percent = text.partition("=")
            shares[name] = shares.get(name, Fraction(0)) + _share_of(percent, text)
        if primary in shares:
            raise DataError(f"'{primary}' is the primary model and gets all other keys; name another in the split.")
        if (total := sum(shares.values())) > 1:
            raise DataError(
                f"The shares of the split are {float(100 * total):g} percent together; 100 is all that there is."
            )
        self.names = tuple(shares)
        self._arms = {name: Arm(name, float(share)) for name, share in shares.items()}
        self._primary = Arm(primary, float(1 - total))
        self._ranges = [
            (int(start * _HASHES), int(end * _HASHES), self._arms[name]) for start, end, name in _allocate(shares)
        ]
        self._salt = hashlib.sha256(msgspec.json.encode([primary, *sorted(shares)])).digest()

    def arm(self, key: Any) -> Arm:
        """Return the arm of a key."""
        text = msgspec.json.encode(str(key))
        place = int.from_bytes(hashlib.blake2b(text, digest_size=8, key=self._salt, person=b"split").digest())
        for start, end, arm in self._ranges:
            if start <= place < end:
                return arm
        return self._primary


def _allocate(shares: Mapping[str, Fraction]) -> list[tuple[Fraction, Fraction, str]]:
    """Return disjoint ranges of [0, 1) with the name that each belongs to.

    Each of k names, in alphabetical order, has a slot of width 1/k, which it fills from below. A share beyond 1/k
    continues in the free upper ends of the following slots, from above. So the ranges of one name grow with its share,
    and those of another move only if a slot is full.

    >>> for start, end, name in _allocate({"b": Fraction(1, 10), "a": Fraction(7, 10)}):
    ...     print(name, start, end)
    a 0 1/2
    b 1/2 3/5
    a 4/5 1
    """
    names, width = sorted(shares), Fraction(1, len(shares))
    own = [min(shares[name], width) for name in names]
    ranges = [
        (slot * width, slot * width + share, name) for slot, (name, share) in enumerate(zip(names, own, strict=True))
    ]
    free = [width - share for share in own]
    for first, name in enumerate(names):
        rest = shares[name] - own[first]
        for slot in [*range(first + 1, len(names)), *range(first)]:
            taken = min(rest, free[slot])
            if taken:
                end = slot * width + own[slot] + free[slot]
                ranges.append((end - taken, end, name))
                free[slot] -= taken
                rest -= taken
    return ranges


def _share_of(percent: str, text: str) -> Fraction:
    try:
        share = Fraction(str(float(percent))) / 100  # as a decimal fraction: 33.3 and 66.7 are 100 together
    except ValueError:
        share = Fraction(-1)
    if not 0 < share <= 1:
        raise DataError(f"'{text}' is no share of a split: give NAME=PERCENT, above 0 and at most 100, such as new=5.")
    return share


class Swap(NamedTuple):
    """What exploring does to a list: the place, from 0, that is exchanged with the next; None: it stays as it is."""

    place: int | None = None
    propensity: float = 1.0
    """The chance of the list that comes of it, which would also be the same list's if it were drawn again."""


class Exploration:
    """Exchanges two random neighbors of some lists.

    Args:
        text: ``swap-neighbors:SHARE``, or ``swap-neighbors:SHARE:DEPTH``.
        rng: draws.

    >>> exploration = Exploration("swap-neighbors:0.2:3", random.Random(0))
    >>> {exploration.draw(10) for _ in range(100)} == {Swap(None, 0.8), Swap(0, 0.1), Swap(1, 0.1)}
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

    def draw(self, length: int) -> Swap:
        """What is done to a list of so many documents."""
        pairs = min(length, self._depth) - 1
        if pairs < 1:
            return Swap()
        if self._rng.random() >= self.share:
            return Swap(None, 1 - self.share)
        return Swap(self._rng.randrange(pairs), self.share / pairs)
