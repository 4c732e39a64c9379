"""The id of a list that was served: when and by which versions; for an interleaved list also the documents' teams.

A document of an interleaved list is represented by four bytes of a keyed hash, whose last bit is flipped for the second
team: without the key an id gives away neither documents nor teams. The id is signed, so nobody without the key can make
one, and a replica with the same key takes events on a list that another replica made.
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

# When it was made, by which process, a random word, the two versions, two bytes of 0, and which models are interleaved.
_HEAD = struct.Struct(">Q4s8s6s6sH4s")
_MARK = struct.Struct(">I")
_SIGNATURE = 16
_NAME = 16  # letters of an id, 96 bits of its signature: enough to tell lists apart, too few to write an id
_ONE_MODEL = bytes(6)  # the second version of a list that one model made


def _written(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def name_of(impression: str) -> str:
    """Return the name of a list in a log: its id in full would say too much, and be too long."""
    return impression[:_NAME]


class OpenedList:
    """A list whose id was opened."""

    def __init__(self, signer: ListIdSigner, head: bytes, marks: bytes) -> None:
        self.made, _, self._word, _, _, _, self.pair = _HEAD.unpack(head)
        self._signer, self._places = signer, {mark: place for place, (mark,) in enumerate(_MARK.iter_unpack(marks))}
        self.listed = bool(self._places)
        """Whether the id knows its documents: that of a list of one model does not."""

    def place(self, document: Any) -> tuple[int, int] | None:
        """Return the place of a document in the list and its team, 0 or 1; None if it is not there."""
        mark = self._signer.mark(self._word, document)
        for team in (0, 1):
            if (place := self._places.get(mark ^ team)) is not None:
                return place, team
        return None


class ListIdSigner:
    """Makes ids and opens them.

    Args:
        names: the models that are interleaved; none for lists of one model. The same secret opens ids of other names,
            too: `OpenedList.pair` tells them apart.
        secret: shared by replicas; without one, ids are valid in this process only.

    >>> signer = ListIdSigner(("a", "b"), b"a long random word")
    >>> shown = signer.open(signer.sign_interleaved([("x", 0), (7, 1)], ("0123456789ab", "ba9876543210")))
    >>> shown.place(7), shown.place("7")
    ((1, 1), None)
    """

    def __init__(self, names: Sequence[str], secret: bytes | None) -> None:
        self._key = hashlib.sha256(secret or secrets.token_bytes(32)).digest()
        self.pair = hashlib.sha256(msgspec.json.encode(list(names))).digest()[:4]
        self.process = os.urandom(4)
        self._words = count()  # `next` of it is atomic: lists are made on several threads

    def mark(self, word: bytes, document: Any) -> int:
        """The four bytes that stand for a document in the list of this random word."""
        text = msgspec.json.encode(document)
        mark: int
        (mark,) = _MARK.unpack(
            hashlib.blake2b(text, digest_size=4, key=self._key, salt=word, person=b"document").digest()
        )
        return mark

    def sign_ranking(self, version: str) -> str:
        """The id of a new list of one model, which does not say what it shows: a log does."""
        word = next(self._words).to_bytes(8)  # beside the process and time it tells lists apart; it salts nothing
        both = bytes.fromhex(version), _ONE_MODEL
        content = _HEAD.pack(time.time_ns(), self.process, word, *both, 0, self.pair)
        return _written(self._signature(content) + content)

    def sign_interleaved(self, teams: Sequence[tuple[Any, int]], versions: tuple[str, str]) -> str:
        """The id of a new list of documents with their teams."""
        while True:
            word = os.urandom(8)
            marks = [self.mark(word, document) for document, _ in teams]
            if len({mark | 1 for mark in marks}) == len(marks):  # else another word, which tells them apart
                break
        both = map(bytes.fromhex, versions)
        head = _HEAD.pack(time.time_ns(), self.process, word, *both, 0, self.pair)
        content = head + b"".join(_MARK.pack(mark ^ team) for mark, (_, team) in zip(marks, teams, strict=True))
        return _written(self._signature(content) + content)

    def open(self, impression: str) -> OpenedList | None:
        """Return the list of an id; None if the id was not made with our key."""
        try:
            text = base64.urlsafe_b64decode(impression + "=" * (-len(impression) % 4))
        except ValueError:
            return None
        if _written(text) != impression:  # the decoder skips foreign letters: one list would have many names
            return None
        signature, head, marks = text[:_SIGNATURE], text[_SIGNATURE:][: _HEAD.size], text[_SIGNATURE + _HEAD.size :]
        if len(head) < _HEAD.size or not hmac.compare_digest(signature, self._signature(head + marks)):
            return None
        return OpenedList(self, head, marks)

    def hash_key(self, word: Any) -> str:
        """Return the hash that a log has instead of the key of a client (a user, a visit), the same in all replicas.

        The keys 7 and ``"7"`` are one client, as in `TrafficSplit`.
        """
        text = msgspec.json.encode(str(word))
        return hashlib.blake2b(text, digest_size=8, key=self._key, person=b"client").hexdigest()

    def _signature(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=_SIGNATURE, key=self._key, person=b"list").digest()
