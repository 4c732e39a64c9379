"""The service as an ASGI application: who may ask, how much, for how long, and what is answered.

There are a dozen endpoints and no router: a path is a key of a dictionary. Small requests are answered on the loop
itself, which takes a fraction of a millisecond; large ones and slow models work on threads, with a limit to the time.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from toprank.errors import DataError, ToprankError
from toprank.serving import answers, openapi, page
from toprank.serving.counting import Counters
from toprank.serving.interleaving import Interleaving
from toprank.serving.logs import Log
from toprank.serving.models import Models
from toprank.serving.requests import Clicks, ExplainRequest, RankRequest, RefusedError, understood
from toprank.serving.shadowing import Shadow

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.watching import Watch

__all__ = ["Limits", "Service"]

_LARGE = 1 << 18  # bytes of a body whose scoring should not keep others waiting
_THREADS = 2
_WAITING = 64  # requests that may wait for a thread
_DISCARDED = 8  # so many times the limit of a body is read and thrown away, so that the client hears why
_JSON = b"application/json"
_PLAIN = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """What a request may ask of the service."""

    body: int = 8 << 20
    """Bytes."""
    documents: int = 10_000
    seconds: float = 10.0
    """For a body to arrive, and for the work on it."""


class Answer(NamedTuple):
    """What is sent back, and what the log and the counters are told of it."""

    status: int
    body: bytes
    kind: bytes = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    told: Mapping[str, Any] = {}


class _GoneError(Exception):
    """The client has left."""


class _Threads:
    """Threads for what would keep others waiting; how much waits for them has a limit, and so has the time it takes."""

    def __init__(self, count: int, name: str) -> None:
        self._pool, self._waiting = ThreadPoolExecutor(count, thread_name_prefix=name), 0

    async def result(self, function: Callable[[], Result], seconds: float) -> Result:
        """What the function gives, within so many seconds."""
        if self._waiting >= _WAITING:
            raise RefusedError(503, "There is more to do than this service can; ask again later.")
        self._waiting += 1
        work = asyncio.get_running_loop().run_in_executor(self._pool, function)
        work.add_done_callback(self._worked)
        try:
            return await asyncio.wait_for(asyncio.shield(work), seconds)
        except TimeoutError:
            raise RefusedError(503, f"The answer took longer than {seconds:g} s; ask for fewer documents.") from None

    def _worked(self, work: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not work.cancelled():
            work.exception()  # asked for, so that nobody is told of one that nobody waits for any more

    def close(self) -> None:
        """Let them go."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Service:
    """An ASGI application that ranks with some models.

    Args:
        models: the models; the first is the primary one.
        token: what clients must present as a bearer token; None: nothing.
        limits: of a request.
        shadows: models that score the requests to the primary one, too, without being answered with.
        interleave: two models whose rankings are interleaved at /v1/interleave.
        reference: queries as the primary model was trained for; drift from them is told at /metrics.
        log: where lines are written.
    """

    def __init__(
        self,
        models: Models,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        shadows: tuple[str, ...] = (),
        interleave: tuple[str, str] | None = None,
        reference: RankingData | None = None,
        log: Log | None = None,
    ) -> None:
        self.models, self.limits, self.log = models, limits or Limits(), log or Log()
        self.counters = Counters()
        self.draining = False
        self._token = None if token is None else b"Bearer " + token.encode()
        # An estimate for a long query may go on for minutes after its client was told that it takes too long.
        self._threads, self._explaining = _Threads(_THREADS, "serving"), _Threads(1, "explaining")
        self._check_roles(shadows, interleave)
        self._shadows = [Shadow(name, models, self.counters) for name in dict.fromkeys(shadows)]
        self._interleaving = None if interleave is None else Interleaving(*interleave)
        self._watch = None if reference is None else _watch(reference, models, self.counters)
        self.counters.gauge("toprank_model_info", "Models that serve.", ("model", "version", "kind"), self._infos)
        self._routes: dict[str, tuple[str, Callable[..., Awaitable[Answer]]]] = {
            "/v1/rank": ("POST", partial(self._ranked, ordered=True)),
            "/v1/score": ("POST", partial(self._ranked, ordered=False)),
            "/v1/explain": ("POST", self._explained),
            "/v1/interleave": ("POST", self._interleaved),
            "/v1/clicks": ("POST", self._clicked),
            "/v1/interleaving": ("GET", self._analysed),
            "/v1/models": ("GET", self._listed),
            "/metrics": ("GET", self._counted),
            "/openapi.json": ("GET", self._described),
            "/healthz": ("GET", self._healthy),
            "/readyz": ("GET", self._ready),
            **{path: ("GET", partial(self._shown, path)) for path in page.PARTS},
        }
        self._open = {"/healthz", "/readyz", *page.PARTS}

    def _check_roles(self, shadows: tuple[str, ...], interleave: tuple[str, str] | None) -> None:
        for name in (*shadows, *(interleave or ())):
            try:
                self.models.get(name)
            except RefusedError as problem:
                raise DataError(str(problem)) from None
        if self.models.primary in shadows:
            raise DataError(f"'{self.models.primary}' is the primary model and cannot be its own shadow; name another.")
        if interleave is not None and interleave[0] == interleave[1]:
            raise DataError(f"Interleaving compares two models, but '{interleave[0]}' was named twice.")

    def _infos(self) -> dict[tuple[str, ...], float]:
        return {(one.name, one.version, type(one.ranker).__name__): 1.0 for one in self.models}

    # ---- a request and its answer ----

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI's call."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        start = time.perf_counter()
        endpoint = scope["path"] if scope["path"] in self._routes else "other"
        try:
            answer = await self._answer(scope, receive)
        except _GoneError:
            self.counters.requests.add(endpoint, "gone")
            return
        except RefusedError as problem:
            answer = _refused(problem.status, str(problem))
        except ToprankError as problem:
            answer = _refused(422, str(problem))
        except Exception as problem:  # noqa: BLE001 - a client gets a sentence, whatever is wrong with us
            self.log("failure", endpoint=endpoint, error=type(problem).__name__, where=_where(problem))
            answer = _refused(500, "The service failed at this request; its log says where.")
        length = (b"content-length", str(len(answer.body)).encode())
        headers = [(b"content-type", answer.kind), length, *_PLAIN, *answer.headers, *(_LEAVE if self.draining else ())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
        took = time.perf_counter() - start
        self.counters.requests.add(endpoint, str(answer.status))
        self.counters.seconds.add(took, endpoint)
        self.log.request(endpoint, answer.status, took, **answer.told)

    async def _answer(self, scope: Message, receive: Receive) -> Answer:
        path = scope["path"]
        if path not in self._routes:
            raise RefusedError(404, f"There is nothing at {path[:200]}; /openapi.json tells what there is.")
        method, answer = self._routes[path]
        headers = dict(scope["headers"])
        if self._token is not None and path not in self._open:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._token):
                return _refused(401, "This service asks for a token: Authorization: Bearer ….", _BEARER)
        if scope["method"] != method and (method, scope["method"]) != ("GET", "HEAD"):
            return _refused(405, f"{path} takes {method}.", ((b"allow", method.encode()),))
        if method == "GET":
            return await answer()
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != _JSON:
            raise RefusedError(415, "The body must be JSON, and say so: Content-Type: application/json.")
        return await answer(await self._body(headers, receive))

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limit, parts, size = self.limits.body, list[bytes](), 0
        announced = headers.get(b"content-length", b"")
        huge = announced.isdigit() and (len(announced) > 15 or int(announced) > _DISCARDED * limit)
        try:
            async with asyncio.timeout(self.limits.seconds):
                while not huge:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    part = message.get("body", b"")
                    size += len(part)
                    huge = size > _DISCARDED * limit
                    if size <= limit:
                        parts.append(part)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise RefusedError(408, f"The body did not arrive within {self.limits.seconds:g} s.") from None
        if huge or size > limit:
            raise RefusedError(413, f"The body is larger than {limit:,} bytes, which is all that this service reads.")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _work(self, function: Callable[[], Result], aside: bool) -> Result:
        """The result of a function, made here and now or on a thread with a limit to its time."""
        return await self._threads.result(function, self.limits.seconds) if aside else function()

    # ---- endpoints ----

    async def _ranked(self, body: bytes, *, ordered: bool) -> Answer:
        asked = understood(RankRequest, body)
        model = self.models.get(asked.model)
        aside = model.slow or len(body) > _LARGE
        done = await self._work(partial(answers.ranked, model, asked, self.limits.documents, ordered), aside)
        name, n = model.name, len(done.scores)
        self.counters.documents.add(n, name)
        if missing := int(np.isnan(done.X).sum()):
            self.counters.missing.add(name, by=missing)
        for feature, times in done.unseen.items():
            self.counters.unseen.add(name, feature, by=times)
        if n and name == self.models.primary:
            for shadow in self._shadows:
                shadow.look(model, asked, done.X, done.scores)
            if self._watch is not None:
                self._watch.look(model, done.X)
        return Answer(200, done.written, told={"model": name, "version": model.version, "documents": n})

    async def _explained(self, body: bytes) -> Answer:
        asked = understood(ExplainRequest, body)
        model = self.models.get(asked.model)
        explained = partial(answers.explained, model, asked, self.limits.documents)
        told = await self._explaining.result(explained, self.limits.seconds)
        return Answer(
            200, told, told={"model": model.name, "version": model.version, "documents": len(asked.documents)}
        )

    async def _interleaved(self, body: bytes) -> Answer:
        interleaving = self._known_interleaving()
        asked = understood(RankRequest, body)
        if asked.model is not None:
            raise RefusedError(422, "An interleaved list is of two models that the service was told; leave model out.")
        models = (self.models.get(interleaving.names[0]), self.models.get(interleaving.names[1]))
        aside = any(model.slow for model in models) or len(body) > _LARGE
        ids, *rankings = await self._work(partial(answers.both, models, asked, self.limits.documents), aside)
        impression, listed = interleaving.shown(models, (rankings[0], rankings[1]), ids, asked.top or len(ids))
        self.counters.impressions.add()
        ranking = [{"id": one, "rank": rank} for rank, one in enumerate(listed, start=1)]
        return Answer(200, _json({"impression": impression, "ranking": ranking}), told={"documents": len(ids)})

    async def _clicked(self, body: bytes) -> Answer:
        interleaving = self._known_interleaving()
        asked = understood(Clicks, body)
        for name in interleaving.click(asked.impression, asked.clicked):
            self.counters.clicks.add(name)
        return Answer(200, _json({"counted": True}))

    async def _analysed(self) -> Answer:
        return Answer(200, _json(await self._work(self._known_interleaving().analysis, aside=True)))

    def _known_interleaving(self) -> Interleaving:
        if self._interleaving is None:
            raise RefusedError(
                404, "This service interleaves nothing; start it with --interleave A B to compare two models."
            )
        return self._interleaving

    async def _listed(self) -> Answer:
        return Answer(200, _json({"primary": self.models.primary, "models": [one.described() for one in self.models]}))

    async def _counted(self) -> Answer:
        text = await self._work(self.counters.text, aside=True)
        return Answer(200, text, b"text/plain; version=0.0.4; charset=utf-8")

    async def _described(self) -> Answer:
        return Answer(200, _json(openapi.document(token=self._token is not None)))

    async def _healthy(self) -> Answer:
        return Answer(200, _json({"status": "alive"}))

    async def _ready(self) -> Answer:
        if self.draining:
            raise RefusedError(503, "The service is stopping.")
        return Answer(200, _json({"status": "ready"}))

    async def _shown(self, path: str) -> Answer:
        kind, content = page.part(path)
        return Answer(200, content, kind, page.HEADERS)

    # ---- models that change ----

    async def reload(self, *, everything: bool = False) -> None:
        """Read models again whose files were replaced, or all; one that cannot serve is told of, and the old stays."""
        names = [one.name for one in self.models] if everything else self.models.changed()
        for name in names:
            try:
                new = await asyncio.to_thread(self.models.reload, name)
            except (ToprankError, OSError, MemoryError) as problem:
                self.counters.reloads.add(name, "refused")
                self.log("reload refused", model=name, why=str(problem), serving=self.models.get(name).version)
            else:
                self.counters.reloads.add(name, "loaded")
                self.log("reloaded", model=name, version=new.version)

    def close(self) -> None:
        """Let the threads go."""
        for threads in (self._threads, self._explaining):
            threads.close()
        for shadow in self._shadows:
            shadow.close()


_BEARER = ((b"www-authenticate", b"Bearer"),)
_LEAVE = ((b"connection", b"close"),)


def _watch(reference: RankingData, models: Models, counters: Counters) -> Watch:
    from toprank.serving.watching import Watch  # which only some services need, and statistics with it

    return Watch(reference, models, counters)


def _refused(status: int, sentence: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    more = _LEAVE if status in (408, 413) else ()  # the rest of the body may still be under way
    return Answer(status, _json({"error": sentence}), headers=(*headers, *more))


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _where(problem: BaseException) -> str:
    """File and line of the innermost place; the message may hold what a client sent, and is not told."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


async def _live(receive: Receive, send: Send) -> None:
    """ASGI's start and end."""
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": message["type"] + ".complete"})
    await send({"type": "lifespan.shutdown.complete"})
