"""Signed ids of served lists: time, versions and, for an interleaved list, the team of each document.

A document of an interleaved list is represented by four bytes of a keyed hash; the last bit is flipped for the second
team. Without the key, an id reveals neither documents nor teams. The id is signed, so ids cannot be forged without the
key, and a replica with the same key accepts events on lists of another replica.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import struct
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

# Time, process, random salt, the two versions, two zero bytes, and a hash of the interleaved models.
_HEAD = struct.Struct(">Q4s8s6s6sH4s")
_MARK = struct.Struct(">I")
_SIGNATURE = 16
_NAME = 16  # Letters of an id that identify a list in the log: 96 bits of the signature, too few to reconstruct the id.
_ONE_MODEL = bytes(6)  # Second version of a list of a single model.


def _written(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def name_of(impression: str) -> str:
    """Return the name of a list in the log, a prefix of its id: the complete id is long and could be used to send
    events.
    """
    return impression[:_NAME]


class OpenedList:
    """A list whose id was verified."""

    def __init__(self, signer: ListIdSigner, head: bytes, marks: bytes) -> None:
        self.made, _, self._word, _, _, _, self.pair = _HEAD.unpack(head)
        self._signer, self._places = signer, {mark: place for place, (mark,) in enumerate(_MARK.iter_unpack(marks))}
        self.listed = bool(self._places)
        """True for interleaved lists, whose ids contain the documents."""

    def place(self, document: Any) -> tuple[int, int] | None:
        """Return the index of a document in the list and its team, 0 or 1; None if it is not in the list."""
        mark = self._signer.mark(self._word, document)
        for team in (0, 1):
            if (place := self._places.get(mark ^ team)) is not None:
                return place, team
        return None


class ListIdSigner:
    """Signs and verifies ids of lists.

    Args:
        names: names of the interleaved models; empty for lists of a single model. The same secret verifies ids of other
            names too; `OpenedList.pair` distinguishes them.
        secret: secret shared by replicas. Default: a random one, so ids are valid in this process only.

    >>> signer = ListIdSigner(("a", "b"), b"a long random word")
    >>> shown = signer.open(signer.sign_interleaved([("x", 0), (7, 1)], ("0123456789ab", "ba9876543210")))
    >>> shown.place(7), shown.place("7")
    ((1, 1), None)
    """

    def __init__(self, names: Sequence[str], secret: bytes | None) -> None:
        self._key = hashlib.sha256(secret or secrets.token_bytes(32)).digest()
        self.pair = hashlib.sha256(msgspec.json.encode(list(names))).digest()[:4]
        self.process = os.urandom(4)
        self._words = count()  # `next` is atomic; ids are created on several threads.

    def mark(self, word: bytes, document: Any) -> int:
        """Return the four bytes that represent a document in the list with this salt."""
        text = msgspec.json.encode(document)
        mark: int
        (mark,) = _MARK.unpack(
            hashlib.blake2b(text, digest_size=4, key=self._key, salt=word, person=b"document").digest()
        )
        return mark

    def sign_ranking(self, version: str) -> str:
        """Return the id of a new list of a single model, which does not contain its documents; the log does."""
        word = next(self._words).to_bytes(8)  # Unique together with process and time; not used as a salt.
        both = bytes.fromhex(version), _ONE_MODEL
        content = _HEAD.pack(time.time_ns(), self.process, word, *both, 0, self.pair)
        return _written(self._signature(content) + content)

    def sign_interleaved(self, teams: Sequence[tuple[Any, int]], versions: tuple[str, str]) -> str:
        """Return the id of a new list of documents with their teams."""
        while True:
            word = os.urandom(8)
            marks = [self.mark(word, document) for document, _ in teams]
            # Otherwise retry with another salt to avoid collisions.
            if len({mark | 1 for mark in marks}) == len(marks):
                break
        both = map(bytes.fromhex, versions)
        head = _HEAD.pack(time.time_ns(), self.process, word, *both, 0, self.pair)
        content = head + b"".join(_MARK.pack(mark ^ team) for mark, (_, team) in zip(marks, teams, strict=True))
        return _written(self._signature(content) + content)

    def open(self, impression: str) -> OpenedList | None:
        """Verify an id and return its list; None if it was not signed with this key."""
        try:
            text = base64.urlsafe_b64decode(impression + "=" * (-len(impression) % 4))
        except ValueError:
            return None
        # The decoder ignores foreign characters, so several texts would decode to one id.
        if _written(text) != impression:
            return None
        signature, head, marks = text[:_SIGNATURE], text[_SIGNATURE:][: _HEAD.size], text[_SIGNATURE + _HEAD.size :]
        if len(head) < _HEAD.size or not hmac.compare_digest(signature, self._signature(head + marks)):
            return None
        return OpenedList(self, head, marks)

    def hash_key(self, word: Any) -> str:
        """Return the hash that the log contains instead of the key of a client (a user, a visit), the same in all
        replicas.

        The keys 7 and ``"7"`` are the same client, as in `TrafficSplit`.
        """
        text = msgspec.json.encode(str(word))
        return hashlib.blake2b(text, digest_size=8, key=self._key, person=b"client").hexdigest()

    def _signature(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=_SIGNATURE, key=self._key, person=b"list").digest()
