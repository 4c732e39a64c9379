"""All-reduce: sums of a few numbers over all trainers, within a round of boosting.

LightGBM's trainers exchange histograms, but a custom objective sees only the rows of its own trainer. Quantities that
must be equal everywhere (the floor of the curvature, the metric, whether to stop) are sums: each trainer sends its
numbers to the first one, which adds them in rank order and replies. A trainer that ends closes its connection, which
ends the sum for all. If a trainer neither replies nor ends, the client cancels the training, for which waiting trainers
poll.
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
"""Above the common ports of services, below those that Linux, macOS and Windows assign to outgoing connections."""
# Seconds within which a trainer must identify itself.
_GREETING_SECONDS = 2.0
# Seconds that a trainer may keep the others waiting: all have about the same work.
_REPLY_SECONDS = 900.0
# Seconds between two checks whether the training is still wanted.
_POLL_SECONDS = 1.0
# Seconds for one connection attempt.
_CONNECT_SECONDS = 5.0


class PeerLostError(Exception):
    """Another trainer is lost, or the client canceled the training."""


class AllReduce:
    """Connections of one trainer: a star with the first trainer in the center.

    The first trainer listens at `address`; only these trainers know `token`; all must connect within `timeout` seconds.
    `wanted` returns whether to keep waiting, and is called about once a second: a process that is stopped keeps its
    connections, so only the client can detect that it will not reply.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        address: tuple[str, int],
        token: bytes,
        timeout: float = _REPLY_SECONDS,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.rank, self.size, self.wanted = rank, size, wanted
        self.peers: list[socket.socket] = []
        if size == 1:
            return
        deadline = time.monotonic() + timeout
        try:
            self.peers = (
                self._accept_peers(address, token, deadline) if rank == 0 else [self._call(address, token, deadline)]
            )
        except OSError as problem:
            raise PeerLostError(f"not all trainers met: {problem}") from None

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over all trainers, in rank order; all must call this at the same point."""
        own = np.ascontiguousarray(numbers, dtype=np.float64)
        deadline = time.monotonic() + _REPLY_SECONDS
        try:
            if self.rank == 0:
                for peer in self.peers:
                    own = own + np.frombuffer(self._receive(peer, own.nbytes, deadline))
                for peer in self.peers:
                    _send(peer, own.tobytes())
                return own
            _send(self.peers[0], own.tobytes())
            return np.frombuffer(self._receive(self.peers[0], own.nbytes, deadline)).copy()
        except OSError as problem:
            raise PeerLostError(f"a trainer is gone: {problem}") from None

    def close(self) -> None:
        """Close the connections."""
        _close_all(self.peers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept_peers(self, address: tuple[str, int], token: bytes, deadline: float) -> list[socket.socket]:
        """Accept all other trainers, in any order; reject other connections."""
        sockets: dict[int, socket.socket] = {}
        try:
            with socket.create_server(address, backlog=self.size) as door:
                door.settimeout(_POLL_SECONDS)
                while len(sockets) < self.size - 1:
                    self._check(deadline)
                    with suppress(TimeoutError):
                        guest, _ = door.accept()
                        rank = self._read_rank(guest, token)
                        if rank is not None:
                            sockets[rank] = guest
        except BaseException:
            _close_all(sockets.values())  # so that connected trainers do not wait for the rest
            raise
        return [sockets[rank] for rank in sorted(sockets)]

    def _read_rank(self, guest: socket.socket, token: bytes) -> int | None:
        """Return the rank of a trainer; None if the connection is not from a trainer."""
        rank = None
        try:
            guest.settimeout(_POLL_SECONDS)
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting = self._receive(guest, len(token) + 4, time.monotonic() + _GREETING_SECONDS)
            if hmac.compare_digest(greeting[:-4], token):
                rank = int.from_bytes(greeting[-4:], "little")
        except OSError:
            pass
        finally:
            if rank is None:
                guest.close()
        return rank

    def _call(self, address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
        """Connect to the first trainer, which may not be listening yet."""
        while True:
            try:
                line = socket.create_connection(
                    address, timeout=max(0.01, min(_CONNECT_SECONDS, deadline - time.monotonic()))
                )
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
        """Raise an error if there is no reason to keep waiting."""
        if not self.wanted():
            raise PeerLostError("the training was given up")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")

    def _receive(self, line: socket.socket, length: int, deadline: float) -> bytes:
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
    """Send a few numbers, with a long timeout; restore the short timeout for the next reply."""
    line.settimeout(_REPLY_SECONDS)
    line.sendall(content)
    line.settimeout(_POLL_SECONDS)


def _close_all(lines: Iterable[socket.socket]) -> None:
    for line in lines:
        with suppress(OSError):
            line.close()


def free_port(count: int = 1) -> list[int]:
    """Choose ports for LightGBM to listen on, outside the range that systems assign to outgoing connections.

    A port of that range may be assigned to any outgoing connection before we listen on it, even to a trainer that
    connects too early and is then connected to itself. LightGBM cannot listen on a port whose connection was closed
    within the last minute either: it does not set the option to reuse one, so the sockets here do not set it either.
    """
    chance = secrets.SystemRandom()
    doors: list[socket.socket] = []
    try:
        while len(doors) < count:
            door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                door.bind(("", chance.randrange(_FIRST_PORT, _LAST_PORT)))
            except OSError:  # The port is in use.
                door.close()
            else:
                doors.append(door)
        return [int(door.getsockname()[1]) for door in doors]
    finally:
        for door in doors:
            door.close()
