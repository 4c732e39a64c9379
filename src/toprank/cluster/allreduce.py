"""Sums of a few numbers over all trainers, in the middle of a round of boosting.

LightGBM's trainers exchange histograms among themselves, but an objective of ours sees only its own trainer's rows.
What must be the same everywhere (the floor of the curvature, the metric, whether to stop) is a sum: each trainer
sends its numbers to the first one, which adds them in the order of the ranks and answers. A trainer that ends closes
its connection, which ends the sum for all: nobody waits for the dead. For one that neither answers nor ends, the client
gives the training up, which the waiting trainers look out for.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

import numpy as np

from toprank.compute import FloatArray

_FIRST_PORT, _LAST_PORT = 12_000, 32_768
"""Above what services commonly use, below what Linux, macOS and Windows give to outgoing connections."""
# Seconds for a trainer to say who it is, which it does at once.
_GREETING = 2.0
# Seconds that a trainer may let the others wait: all have about the same to do.
_ANSWER = 900.0
# Seconds between two looks at whether anybody still wants the trainers to meet.
_LOOK = 1.0
# Seconds for one attempt to connect.
_TRY = 5.0


class LeftAloneError(Exception):
    """Another trainer is gone, or the client gave the training up."""


class AllReduce:
    """The connections of one trainer: the first has one to each of the others, they have one to the first.

    The first one listens at `address`; only these trainers know `token`; all must meet within `patience` seconds.
    `wanted` says whether to go on waiting, and is called about once a second while this trainer waits: a process that
    is stopped keeps its connections, so only somebody outside can tell that it will not answer.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        address: tuple[str, int],
        token: bytes,
        patience: float = _ANSWER,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.rank, self.size, self.wanted = rank, size, wanted
        self.peers: list[socket.socket] = []
        if size == 1:
            return
        deadline = time.monotonic() + patience
        try:
            self.peers = (
                self._welcome(address, token, deadline) if rank == 0 else [self._call(address, token, deadline)]
            )
        except OSError as problem:
            raise LeftAloneError(f"not all trainers met: {problem}") from None

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over all trainers, in the order of their ranks; all must call this at the same point."""
        own = np.ascontiguousarray(numbers, dtype=np.float64)
        deadline = time.monotonic() + _ANSWER
        try:
            if self.rank == 0:
                for peer in self.peers:
                    own = own + np.frombuffer(self._received(peer, own.nbytes, deadline))
                for peer in self.peers:
                    _send(peer, own.tobytes())
                return own
            _send(self.peers[0], own.tobytes())
            return np.frombuffer(self._received(self.peers[0], own.nbytes, deadline)).copy()
        except OSError as problem:
            raise LeftAloneError(f"a trainer is gone: {problem}") from None

    def close(self) -> None:
        """Hang up."""
        _hang_up(self.peers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _welcome(self, address: tuple[str, int], token: bytes, deadline: float) -> list[socket.socket]:
        """Accept every other trainer, in any order; a stranger is sent away."""
        sockets: dict[int, socket.socket] = {}
        try:
            with socket.create_server(address, backlog=self.size) as door:
                door.settimeout(_LOOK)
                while len(sockets) < self.size - 1:
                    self._check(deadline)
                    with suppress(TimeoutError):
                        guest, _ = door.accept()
                        rank = self._introduced(guest, token)
                        if rank is not None:
                            sockets[rank] = guest
        except BaseException:
            _hang_up(sockets.values())  # so that those who are here do not wait for the rest
            raise
        return [sockets[rank] for rank in sorted(sockets)]

    def _introduced(self, guest: socket.socket, token: bytes) -> int | None:
        """Return the rank of a trainer; None for a stranger, who hangs up, or sends nothing or something else."""
        rank = None
        try:
            guest.settimeout(_LOOK)
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting = self._received(guest, len(token) + 4, time.monotonic() + _GREETING)
            if hmac.compare_digest(greeting[:-4], token):
                rank = int.from_bytes(greeting[-4:], "little")
        except OSError:
            pass
        finally:
            if rank is None:
                guest.close()
        return rank

    def _call(self, address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
        """Connect to the first trainer, which may not be there yet."""
        while True:
            try:
                line = socket.create_connection(address, timeout=max(0.01, min(_TRY, deadline - time.monotonic())))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
            self._check(deadline)
            time.sleep(0.05)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(line, token + self.rank.to_bytes(4, "little"))
        return line

    def _check(self, deadline: float) -> None:
        """Raise if there is no reason to go on waiting."""
        if not self.wanted():
            raise LeftAloneError("the training was given up")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")

    def _received(self, line: socket.socket, length: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            try:
                piece = line.recv(length - len(parts))
            except TimeoutError:
                self._check(deadline)
                continue
            if not piece:
                raise OSError("the connection was closed")
            parts += piece
        return bytes(parts)


def _send(line: socket.socket, content: bytes) -> None:
    """Send a few numbers; a long timeout for sending, and a short one again for the next answer."""
    line.settimeout(_ANSWER)
    line.sendall(content)
    line.settimeout(_LOOK)


def _hang_up(lines: Iterable[socket.socket]) -> None:
    for line in lines:
        with suppress(OSError):
            line.close()


def free_port(count: int = 1) -> list[int]:
    """Draw ports that LightGBM can listen on, from those that systems do not hand out themselves.

    A port that the system may give to any outgoing connection can be taken before we listen on it, even by a trainer
    that calls it too early and is then connected with itself. Nor can LightGBM listen on a port whose connection was
    closed within the last minute: it does not set the option to reuse one, so the sockets here do not set it either.
    """
    chance = secrets.SystemRandom()
    doors: list[socket.socket] = []
    try:
        while len(doors) < count:
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                door.bind(("", chance.randrange(_FIRST_PORT, _LAST_PORT)))
            except OSError:  # in use
                door.close()
            else:
                doors.append(door)
        return [int(door.getsockname()[1]) for door in doors]
    finally:
        for door in doors:
            door.close()
