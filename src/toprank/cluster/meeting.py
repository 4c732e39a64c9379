"""Sums of a few numbers over all trainers, in the middle of a round of boosting.

LightGBM's trainers exchange histograms among themselves, but an objective of ours sees only its own trainer's rows.
What must be the same everywhere (the floor of the curvature, the metric, whether to stop) is a sum: each trainer
sends its numbers to the first one, which adds them in the order of the ranks and answers. One that goes away closes
its connection, which ends the sum for all: nobody waits for the dead.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from contextlib import suppress
from typing import Self

import numpy as np

from toprank.compute import FloatArray

__all__ = ["LeftAloneError", "Meeting", "free_port"]

_FIRST_PORT, _LAST_PORT = 12_000, 32_768
"""Above what services commonly use, below what Linux, macOS and Windows give to outgoing connections."""
_GREETING = 2.0
"""Seconds for a trainer to say who it is, which it does at once."""
_ANSWER = 900.0
"""Seconds that a trainer may let the others wait: all have about the same to do."""


class LeftAloneError(Exception):
    """Another trainer is gone."""


class Meeting:
    """The connections of one trainer: the first has one to each of the others, they have one to the first.

    Args:
        rank: 0, 1 … `size` − 1.
        size: number of trainers.
        address: where the first listens.
        token: what only these trainers know.
        patience: seconds to wait until all are here.
    """

    def __init__(self, rank: int, size: int, address: tuple[str, int], token: bytes, patience: float) -> None:
        self.rank, self.size = rank, size
        self.peers: list[socket.socket] = []
        deadline = time.monotonic() + patience
        try:
            self.peers = (
                self._welcome(address, token, deadline) if rank == 0 else [self._call(address, token, deadline)]
            )
        except OSError as problem:
            self.close()
            raise LeftAloneError(f"not all trainers met: {problem}") from None

    def sum(self, numbers: FloatArray) -> FloatArray:
        """The sum over all trainers, in the order of their ranks; each must ask at the same point."""
        own = np.ascontiguousarray(numbers, dtype=np.float64)
        try:
            if self.rank == 0:
                for peer in self.peers:
                    own = own + np.frombuffer(_received(peer, own.nbytes))
                for peer in self.peers:
                    peer.sendall(own.tobytes())
                return own
            self.peers[0].sendall(own.tobytes())
            return np.frombuffer(_received(self.peers[0], own.nbytes)).copy()
        except OSError as problem:
            raise LeftAloneError(f"a trainer is gone: {problem}") from None

    def close(self) -> None:
        """Hang up."""
        for peer in self.peers:
            with suppress(OSError):
                peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _welcome(self, address: tuple[str, int], token: bytes, deadline: float) -> list[socket.socket]:
        """Accept every other trainer, whoever comes first; a stranger is sent away."""
        found: dict[int, socket.socket] = {}
        with socket.create_server(address, backlog=self.size) as door:
            while len(found) < self.size - 1:
                door.settimeout(max(0.01, deadline - time.monotonic()))
                guest, _ = door.accept()
                guest.settimeout(_GREETING)
                said = b""
                with suppress(OSError):  # a stranger who hangs up or says nothing
                    said = _received(guest, len(token) + 4)
                if hmac.compare_digest(said[:-4], token):
                    guest.settimeout(_ANSWER)
                    guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    found[int.from_bytes(said[-4:], "little")] = guest
                else:
                    guest.close()
        return [found[rank] for rank in sorted(found)]

    def _call(self, address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
        """Connect to the first trainer, who may not be there yet."""
        while True:
            try:
                line = socket.create_connection(address, timeout=max(0.01, deadline - time.monotonic()))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        line.settimeout(_ANSWER)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(token + self.rank.to_bytes(4, "little"))
        return line


def _received(line: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        piece = line.recv(length - len(parts))
        if not piece:
            raise OSError("the connection was closed")
        parts += piece
    return bytes(parts)


def free_port(count: int = 1) -> list[int]:
    """Numbers of ports that nobody listens on at this moment, drawn from those that systems do not hand out themselves.

    A port that the system may give to any outgoing connection can be taken before we listen on it, even by a trainer
    that calls it too early and is then connected with itself.
    """
    chance = secrets.SystemRandom()
    doors: list[socket.socket] = []
    try:
        while len(doors) < count:
            with suppress(OSError):  # in use
                doors.append(socket.create_server(("", chance.randrange(_FIRST_PORT, _LAST_PORT))))
        return [int(door.getsockname()[1]) for door in doors]
    finally:
        for door in doors:
            door.close()
