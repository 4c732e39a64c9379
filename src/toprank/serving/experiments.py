"""Experiments on users: assignment of keys to models, and random perturbation of lists."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from toprank.errors import DataError

_HASHES = 2**64  # Number of hashes of a key.
_DEPTH = 10
_METHOD = "swap-neighbors"


class Arm(NamedTuple):
    """A model of a split, and its share of the keys."""

    model: str
    share: float


class TrafficSplit:
    """Assignment of keys to models.

    The arm of a key depends on the key, the names and the shares, but not on the order of the options, so all replicas
    agree. If the share of a model increases, its keys stay, and the additional ones come from the primary model; keys
    move between two other models only if three or more share the keys with the primary model and one of them exceeds
    its part of the range (`_allocate`). Another set of models is another experiment with a new assignment. The keys 7
    and ``"7"`` are the same.

    Args:
        primary: the model of all remaining keys.
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
            raise DataError(f"'{primary}' is the primary model and gets all other keys. Name another in the split.")
        if (total := sum(shares.values())) > 1:
            raise DataError(f"The shares of the split add up to {float(100 * total):g} percent. The maximum is 100.")
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
    """Return disjoint ranges of [0, 1) with the name that each is assigned to.

    Each of k names, in alphabetical order, has a slot of width 1/k, which it fills from the lower end. A share beyond
    1/k continues in the free upper ends of the following slots, from above. The ranges of a name therefore grow with
    its share, and those of another move only if a slot is full.

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
        share = Fraction(str(float(percent))) / 100  # as a decimal fraction, so that 33.3 and 66.7 add up to 100
    except ValueError:
        share = Fraction(-1)
    if not 0 < share <= 1:
        raise DataError(
            f"'{text}' is not a share of a split. Give NAME=PERCENT, above 0 and at most 100, such as new=5."
        )
    return share


class Swap(NamedTuple):
    """Perturbation of a list: the index that is exchanged with the next, or None for no change."""

    place: int | None = None
    propensity: float = 1.0
    """Probability of the resulting list."""


class Exploration:
    """Swaps two random neighbors in a random sample of the lists.

    Args:
        text: ``swap-neighbors:SHARE``, or ``swap-neighbors:SHARE:DEPTH``.
        rng: random generator. Default: a new one.

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
        if way != _METHOD or len(numbers) > 2 or not 0 < self.share <= 1 or self._depth < 2:
            raise DataError(
                f"'{text}' is not an exploration method. Give {_METHOD}:SHARE, with a share of the lists above 0 and "
                f"at most 1, such as {_METHOD}:0.05; or {_METHOD}:SHARE:DEPTH, with a depth of 2 or more."
            )
        self._rng = rng or random.Random()

    def draw(self, length: int) -> Swap:
        """Draw the swap for a list of this length."""
        pairs = min(length, self._depth) - 1
        if pairs < 1:
            return Swap()
        if self._rng.random() >= self.share:
            return Swap(None, 1 - self.share)
        return Swap(self._rng.randrange(pairs), self.share / pairs)
