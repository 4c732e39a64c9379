"""A service on a socket: startup, watching of files, and graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from typing_extensions import override

from toprank.errors import DataError, FileError, Remedy, join_parts
from toprank.serving.service import Service

_SHORTEST = 16  # Minimum length of a token or secret.
_LOOK = 1.0  # Seconds between checks of the files and the connections.
_KEEP_ALIVE = 30
_BACKLOG = 2048
_GIVE_TOKEN = "and give the service this token file."


def read_token(path: Path | None, host: str) -> str | None:
    """Return the token in a file; require one if the service is reachable from other machines."""
    if path is None:
        if not _is_loopback(host):
            raise DataError(
                f"On {host} the service is reachable from other machines and needs a token. Write a long random word "
                "to a file,",
                remedy=join_parts(
                    Remedy(_GIVE_TOKEN, "and start with {token_file}.", _GIVE_TOKEN, token_file="FILE"),
                    "(127.0.0.1, the default, is only reachable from this machine.)",
                ),
            )
        return None
    return _word(path, "token")


def read_secret(path: Path | None) -> str | None:
    """Return the secret in a file, which signs the ids of lists."""
    return None if path is None else _word(path, "secret")


def _word(path: Path, kind: str) -> str:
    try:
        word = path.read_text(encoding="ascii").strip()
    except OSError as problem:
        raise FileError(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: a {kind} must consist of ASCII characters.") from None
    if len(word) < _SHORTEST or not word.isprintable() or " " in word:
        raise DataError(
            f"{path}: a {kind} must be a word of at least {_SHORTEST} characters, such as from `openssl rand -hex 32`."
        )
    return word


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is TCP; otherwise a response takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
        return bound
    except (OSError, OverflowError) as problem:
        bound.close()
        why = getattr(problem, "strerror", None) or problem
        raise FileError(f"Cannot listen on port {port} of {host}: {why}. Choose another port.") from None


class _Server(uvicorn.Server):
    """A server whose signals are handled here."""

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(service: Service, bound: socket.socket, *, watch: bool = True, drain: float = 1.0) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish the requests in progress.

    Args:
        service: the application.
        bound: the listening socket.
        watch: whether to reload files that are replaced.
        drain: seconds after SIGTERM during which requests are still accepted, while /readyz and response headers tell
            clients to leave.
    """
    service.log.capture_warnings("uvicorn.error")
    config = uvicorn.Config(
        service,
        log_config=None,
        access_log=False,
        http="h11",  # httptools, used if installed, has no limit for headers
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(2 * service.limits.seconds)),
    )
    server = _Server(config)
    gc.collect()
    gc.freeze()  # Existing objects stay alive; exclude them from garbage collection.
    try:
        asyncio.run(_serve(server, service, bound, watch, drain))
    finally:
        service.close()
        bound.close()


async def _serve(server: _Server, service: Service, bound: socket.socket, watch: bool, drain: float) -> None:
    loop, again = asyncio.get_running_loop(), asyncio.Event()

    def leave() -> None:
        server.should_exit = True

    def stop(name: str) -> None:
        if service.draining:  # second signal
            server.should_exit = server.force_exit = True
            return
        service.log("stopping", signal=name)
        service.draining = True
        loop.call_later(drain if name == "SIGTERM" else 0, leave)  # Ctrl-C skips the drain.

    for number in (signal.SIGTERM, signal.SIGINT):
        _on_signal(loop, number, partial(stop, number.name))
    if hasattr(signal, "SIGHUP"):
        _on_signal(loop, signal.SIGHUP, again.set)
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    tasks = [loop.create_task(_look_after(server, service, again, watch))]
    tasks.append(loop.create_task(_tell_ready(server, service, f"http://{shown}:{port}")))
    try:
        await server.serve(sockets=[bound])
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        service.log("stopped")


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, act: Callable[[], None]) -> None:
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))


async def _tell_ready(server: _Server, service: Service, url: str) -> None:
    while not server.started:
        await asyncio.sleep(0.001)
    models = {model.name: model.version for model in service.models}
    models |= {} if service.extension is None else service.extension.versions()
    service.log("ready", url=url, primary=service.models.primary, models=models)


async def _look_after(server: _Server, service: Service, again: asyncio.Event, watch: bool) -> None:
    """Reload replaced files (all on SIGHUP), and close connections without a request."""
    idle: dict[Any, float] = {}
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(again.wait(), _LOOK)
        everything = again.is_set()
        again.clear()
        try:
            if watch or everything:
                await service.reload(everything=everything)
            _close_idle(server, idle, service.limits.seconds)
        except Exception as problem:  # noqa: BLE001 - keep serving with the old models
            service.log("failure", endpoint="watch", error=type(problem).__name__)


def _close_idle(server: _Server, idle: dict[Any, float], seconds: float) -> None:
    """Close connections on which the head of a request did not arrive in time; the server itself has no such limit."""
    now = time.monotonic()
    waiting = {connection for connection in server.server_state.connections if _waits_for_head(connection)}
    for gone in [connection for connection in idle if connection not in waiting]:
        del idle[gone]
    for connection in waiting:
        if now - idle.setdefault(connection, now) > seconds:
            connection.transport.close()


def _waits_for_head(connection: Any) -> bool:
    """Return whether a connection has no request in progress and no keep-alive timer, which runs between
    two requests.
    """
    cycle = getattr(connection, "cycle", None)
    answered = cycle is None or cycle.response_complete
    return answered and getattr(connection, "timeout_keep_alive_task", None) is None
