"""The service as an ASGI application: who may ask, how much, for how long, and what is answered.

There are a dozen endpoints and no router: a path is a key of a dictionary. Small requests are answered on the loop
itself, which takes a fraction of a millisecond. Large ones, slow models and models that see the whole set, whose time
grows with its square, work on threads, with a limit to the time.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from toprank.errors import DataError, Remedy, ToprankError
from toprank.serving import answers, openapi
from toprank.serving.aside import Threads
from toprank.serving.counting import Counters
from toprank.serving.extension import Endpoint, Extension
from toprank.serving.impressions import Seal
from toprank.serving.journal import Journal
from toprank.serving.logs import Log
from toprank.serving.models import Models, Served
from toprank.serving.page import HEADERS, PARTS, read_pages
from toprank.serving.recording import Recorder
from toprank.serving.requests import (
    Clicks,
    Event,
    Events,
    ExplainRequest,
    InterleaveRequest,
    RankRequest,
    RefusedError,
    ScoreRequest,
    understood,
)
from toprank.serving.settings import Limits, LogFiles
from toprank.serving.shadowing import Shadow
from toprank.serving.trials import Arm, Exploration, Swap, TrafficSplit

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.interleaving import InterleavedModels
    from toprank.serving.watching import DriftWatch

_LARGE = 1 << 18  # bytes of a body from which on it is scored on a thread, to keep nobody else waiting
_MANY = 200  # documents likewise, however small: twice those that a model was found quick with
_SCRAPES = 8  # requests for numbers that may wait for each other
_NAMED = re.compile(rb"[\w.:+/=@-]{1,128}")  # ids of requests that are taken over: one word, that fits a line
_QUOTED = 1000  # characters of a long refusal that are kept, of its beginning and of its end
_DISCARDED = 8  # so many times the limit of a body is read and thrown away, so that the client hears why
_JSON = b"application/json"
_PLAIN = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Result = TypeVar("Result")


class Answer(NamedTuple):
    """What is sent back, and facts about it for the log."""

    status: int
    body: bytes
    kind: bytes = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    facts: Mapping[str, Any] = {}


class _GoneError(Exception):
    """The client has left."""


class Service:
    """An ASGI application that ranks with some models.

    Args:
        models: the models; the first is the primary one.
        token: what clients must present as a bearer token; None: nothing.
        limits: of a request.
        shadows: models that score the requests to the primary one, too, without being answered with.
        interleave: two models whose rankings are interleaved at /v1/interleave.
        secret: signs the ids of lists; services that share it take each other's events.
        files: where lists and events are written; None: nowhere.
        event_days: how old a list may be when an event on it arrives.
        explore: which lists are changed a little (`Exploration`).
        split: models that some keys get instead of the primary one (`TrafficSplit`).
        reference: data like those that the primary model was trained on; /metrics shows the drift from them.
        extension: further endpoints and pages, of a room above; a service that has them needs no models.
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
        secret: str | None = None,
        files: LogFiles | None = None,
        event_days: float = 30.0,
        explore: str | None = None,
        split: Sequence[str] = (),
        reference: RankingData | None = None,
        extension: Extension | None = None,
        log: Log | None = None,
    ) -> None:
        self.models, self.limits, self.log = models, limits or Limits(), log or Log()
        self.counters = Counters()
        self.draining = False
        self._token = None if token is None else token.encode()
        # What takes too long goes on for minutes after its client was told so; it must not keep others waiting.
        self._threads = Threads(self.limits.threads, self.limits.queue, "serving")
        self._explaining, self._telling = Threads(1, self.limits.queue, "explaining"), Threads(1, _SCRAPES, "telling")
        self._split = TrafficSplit(models.primary, split) if split else None
        exploration = None if explore is None else Exploration(explore)
        self._check_roles(shadows, interleave)
        self._check_trials(files, exploration)
        self._shadows = [Shadow(name, models, self.counters) for name in dict.fromkeys(shadows)]
        word = (secret or secrets.token_hex(32)).encode()
        self._interleaving = None if interleave is None else _interleaved(interleave, word)
        journal = None if files is None else Journal(files, self.counters, self.log)
        self._recorder = Recorder(journal, Seal((), word), self.counters, event_days, exploration)
        if secret is None and (interleave is not None or files is not None):
            self.log("remark", says=_ONE_PROCESS)
        self._watch = None if reference is None else _watch(reference, models, self.counters)
        self.counters.gauge("toprank_model_info", "Models that serve.", ("model", "version", "kind"), self._infos)
        self._routes: dict[str, tuple[str, Callable[..., Awaitable[Answer]]]] = {
            "/v1/rank": ("POST", self._ranked),
            "/v1/score": ("POST", self._scored),
            "/v1/explain": ("POST", self._explained),
            "/v1/interleave": ("POST", self._interleaved),
            "/v1/clicks": ("POST", self._clicked),
            "/v1/events": ("POST", self._noted),
            "/v1/interleaving": ("GET", self._analysed),
            "/v1/models": ("GET", self._listed),
            "/metrics": ("GET", self._counted),
            "/openapi.json": ("GET", self._described),
            "/healthz": ("GET", self._healthy),
            "/readyz": ("GET", self._ready),
        }
        self._open = {"/healthz", "/readyz"}
        self._add_pages(read_pages("toprank.serving", PARTS))
        self.extension, self._endpoints = extension, dict[str, Endpoint]()
        if extension is not None:
            self._extend(extension)

    def _extend(self, extension: Extension) -> None:
        """Add endpoints and pages; a page of the extension at / moves ours to /models."""
        self._endpoints = dict(extension.endpoints(self._recorder))
        self._routes |= {
            path: ("POST", partial(self._extended, endpoint)) for path, endpoint in self._endpoints.items()
        }
        if "/" in extension.pages:
            self._routes["/models"] = self._routes["/"]
            self._open.add("/models")
        self._add_pages(extension.pages)

    def _add_pages(self, pages: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Add pages, which everybody may see."""
        self._routes |= {path: ("GET", partial(_static, kind, content)) for path, (kind, content) in pages.items()}
        self._open |= set(pages)

    def _named(self, name: str) -> Served:
        """Return the model that an option names."""
        try:
            return self.models.get(name)
        except RefusedError as problem:
            raise DataError(str(problem)) from None

    def _check_roles(self, shadows: tuple[str, ...], interleave: tuple[str, str] | None) -> None:
        for name in (*shadows, *(interleave or ())):
            self._named(name)
        if self.models.primary in shadows:
            raise DataError(f"'{self.models.primary}' is the primary model and cannot be its own shadow; name another.")
        if interleave is not None and interleave[0] == interleave[1]:
            raise DataError(f"Interleaving compares two models, but '{interleave[0]}' was named twice.")

    def _check_trials(self, files: LogFiles | None, exploration: Exploration | None) -> None:
        for name in () if self._split is None else self._split.names:
            if not self._named(name).columns.take_the_same(self.models.get(None).columns):
                raise DataError(f"'{name}' and '{self.models.primary}' take different columns and cannot share users.")
        for trial, name in ((exploration, "Exploring"), (self._split, "A split")):
            if trial is not None and files is None:
                raise DataError(
                    f"{name} needs a log: without one nobody learns what came of it.",
                    remedy=Remedy("Give files=LogFiles(folder).", "Give a folder for it by {log}.", log=...),
                )

    def _infos(self) -> dict[tuple[str, ...], float]:
        return {(model.name, model.version, type(model.ranker).__name__): 1.0 for model in self.models}

    # ---- a request and its answer ----

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI's call."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        start, name = time.perf_counter(), _name_of(scope["headers"])
        endpoint = scope["path"] if scope["path"] in self._routes else "other"
        try:
            answer = await self._answer(scope, receive)
        except _GoneError:
            self.counters.requests.labels(endpoint, "gone").inc()
            return
        except RefusedError as problem:
            answer = _refused(problem.status, str(problem))
        except ToprankError as problem:
            answer = _refused(422, str(problem))
        except ModuleNotFoundError as problem:  # of a small installation
            answer = _refused(501, f"This needs {problem.name}, which is not installed where the service runs.")
        except Exception as problem:  # noqa: BLE001 - a client gets a sentence, whatever is wrong with us
            self.log("failure", request=name, endpoint=endpoint, error=type(problem).__name__, where=_where(problem))
            answer = _refused(500, "The service failed at this request; its log says where.")
        own = (
            (b"content-type", answer.kind),
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-request-id", name.encode()),
        )
        headers = [*own, *_PLAIN, *answer.headers, *(_LEAVE if self.draining else ())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
        took = time.perf_counter() - start
        self.counters.requests.labels(endpoint, str(answer.status)).inc()
        self.counters.seconds.labels(endpoint).observe(took)
        self.log.request(endpoint, answer.status, took, request=name, **answer.facts)

    async def _answer(self, scope: Message, receive: Receive) -> Answer:
        path, headers = scope["path"], dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # Where the body ends is told twice; a proxy may believe the other one, and take the rest for a request.
            return _refused(400, "Give the length of the body or send it in chunks, but not both.", _LEAVE)
        if path not in self._routes:
            raise RefusedError(404, f"There is nothing at {path[:200]}; /openapi.json lists what there is.")
        method, answer = self._routes[path]
        if path not in self._open and not self._may_ask(headers.get(b"authorization", b"")):
            return _refused(401, "This service asks for a token: Authorization: Bearer ….", _BEARER)
        if scope["method"] != method and (method, scope["method"]) != ("GET", "HEAD"):
            return _refused(405, f"{path} takes {method}.", ((b"allow", method.encode()),))
        if method == "GET":
            return await answer()
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != _JSON:
            raise RefusedError(415, "The body must be JSON, and say so: Content-Type: application/json.")
        return await answer(await self._body(headers, receive))

    def _may_ask(self, authorization: bytes) -> bool:
        scheme, _, token = authorization.partition(b" ")
        return self._token is None or (scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token))

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

    async def _work(
        self, function: Callable[[], Result], request: ScoreRequest | InterleaveRequest, size: int, *models: Served
    ) -> Result:
        """The result of a function, made here and now, or on a thread where that may take long."""
        aside = size > _LARGE or len(request.documents) > _MANY or any(model.slow for model in models)
        return await self._threads.result(function, self.limits.seconds) if aside else function()

    # ---- endpoints ----

    async def _ranked(self, body: bytes) -> Answer:
        request = understood(RankRequest, body)
        arm = self._arm(request)
        model = self.models.get(request.model if arm is None else arm.model)
        kept = self._recorder.journal is not None and request.documents
        list_id = self._recorder.new_list(model.version) if kept else None
        n = len(request.documents)
        swap = self._recorder.swap(min(request.top or n, n)) if kept else Swap()
        answer = partial(answers.ranked, model, request, self.limits.documents, list_id, swap.place)
        done = await self._work(answer, request, len(body), model)
        if list_id is not None:
            self._recorder.ranked(list_id, model, request, done, swap, arm)
        return self._noticed(model, request, done)

    async def _scored(self, body: bytes) -> Answer:
        request = understood(ScoreRequest, body)
        model = self.models.get(request.model)
        scored = partial(answers.scored, model, request, self.limits.documents)
        return self._noticed(model, request, await self._work(scored, request, len(body), model))

    def _arm(self, request: RankRequest) -> Arm | None:
        """Return the arm of a split that a request belongs to; None for a request that names a model or has no key."""
        if self._split is None or request.key is None or request.model is not None:
            return None
        arm = self._split.arm(request.key)
        self.counters.split.labels(arm.model).inc()
        return arm

    def _noticed(self, model: Served, request: ScoreRequest, done: answers.Done) -> Answer:
        """Return the answer, after counting it and passing it to shadows and the drift watch."""
        name, n = model.name, len(done.scores)
        self.counters.documents.labels(name).observe(n)
        if done.missing:
            self.counters.missing.labels(name).inc(done.missing)
        for feature, times in done.unseen.items():
            self.counters.unseen.labels(name, feature).inc(times)
        if n and name == self.models.primary:
            for shadow in self._shadows:
                shadow.look(model, request, done.X, done.scores)
            if self._watch is not None:
                self._watch.look(model, done.X)
        return Answer(200, done.written, facts={"model": name, "version": model.version, "documents": n})

    async def _extended(self, endpoint: Endpoint, body: bytes) -> Answer:
        request = understood(endpoint.request, body)
        threads = self._explaining if endpoint.rare else self._threads
        return Answer(200, _json(await threads.result(partial(endpoint.work, request), self.limits.seconds)))

    async def _explained(self, body: bytes) -> Answer:
        request = understood(ExplainRequest, body)
        model = self.models.get(request.model)
        explained = partial(answers.explained, model, request, self.limits.documents)
        explanation = await self._explaining.result(explained, self.limits.seconds)
        return Answer(
            200, explanation, facts={"model": model.name, "version": model.version, "documents": len(request.documents)}
        )

    async def _interleaved(self, body: bytes) -> Answer:
        interleaving = self._known_interleaving()
        request = understood(InterleaveRequest, body)
        models = (self.models.get(interleaving.names[0]), self.models.get(interleaving.names[1]))
        both = partial(answers.both, models, request, self.limits.documents)
        ids, *rankings = await self._work(both, request, len(body), *models)
        impression, listed = interleaving.shown(
            models, (rankings[0], rankings[1]), ids, request.top or len(ids), request.query
        )
        self.counters.impressions.inc()
        if listed:
            self._recorder.interleaved(impression, models, request, listed)
        ranking = [answers.PlacedDocument(document, rank) for rank, document in enumerate(listed, start=1)]
        return Answer(200, _json(answers.InterleavedList(impression, ranking)), facts={"documents": len(ids)})

    async def _clicked(self, body: bytes) -> Answer:
        interleaving = self._known_interleaving()
        request = understood(Clicks, body)
        for name in interleaving.click(request.impression, request.clicked):
            self.counters.clicks.labels(name).inc()
        if self._recorder.journal is not None:
            clicks = [Event(kind="click", document=document) for document in dict.fromkeys(request.clicked)]
            self._recorder.done(Events(request.impression, clicks))
        return Answer(200, _json(answers.Counted(True)))

    async def _noted(self, body: bytes) -> Answer:
        if self._recorder.journal is None and self._interleaving is None:
            raise RefusedError(404, "This service keeps no log of what users do; start it with a folder for one.")
        events = understood(Events, body)
        shown = self._recorder.opened(events)
        new = self._recorder.done(events)
        if self._interleaving is not None and self._interleaving.made(shown):
            # All of them, which the tally counts once each: where the log was full, those before have not come to it.
            clicked = [event.document for event in events.events if event.kind == "click"]
            with suppress(RefusedError):  # so old that its tally was closed; the log has its clicks
                for name in self._interleaving.click(events.request, clicked):
                    self.counters.clicks.labels(name).inc()
        return Answer(200, _json(answers.CountedEvents(len(new), len(events.events) - len(new))))

    async def _analysed(self) -> Answer:
        analysis = self._known_interleaving().analysis
        return Answer(200, _json(await self._telling.result(analysis, self.limits.seconds)))

    def _known_interleaving(self) -> InterleavedModels:
        if self._interleaving is None:
            raise RefusedError(
                404,
                "This service does not interleave; start it with two models to interleave.",
            )
        return self._interleaving

    async def _listed(self) -> Answer:
        return Answer(200, _json(answers.ModelList(self.models.primary, [model.described() for model in self.models])))

    async def _counted(self) -> Answer:
        text = await self._telling.result(self.counters.text, self.limits.seconds)
        return Answer(200, text, b"text/plain; version=0.0.4; charset=utf-8")

    async def _described(self) -> Answer:
        return Answer(200, _json(openapi.document(token=self._token is not None, more=self._endpoints)))

    async def _healthy(self) -> Answer:
        return Answer(200, _json(answers.Status("alive")))

    async def _ready(self) -> Answer:
        if self.draining:
            raise RefusedError(503, "The service is stopping.")
        return Answer(200, _json(answers.Status("ready")))

    # ---- models that change ----

    async def reload(self, *, everything: bool = False) -> None:
        """Read models again whose files were replaced, or all; if a new one cannot serve, log why and keep the old."""
        names = [model.name for model in self.models] if everything else self.models.changed()
        for name in names:
            try:
                new = await asyncio.to_thread(self.models.reload, name)
            except (ToprankError, OSError, MemoryError) as problem:
                self.counters.reloads.labels(name, "refused").inc()
                self.log("reload refused", model=name, why=str(problem), serving=self.models.get(name).version)
            else:
                self.counters.reloads.labels(name, "loaded").inc()
                self.log("reloaded", model=name, version=new.version)
        if self.extension is not None:
            await self._reload_extension(self.extension)

    async def _reload_extension(self, extension: Extension) -> None:
        try:
            new = await asyncio.to_thread(extension.reload)
        except (ToprankError, OSError, MemoryError) as problem:
            self.log("reload refused", why=str(problem), serving=dict(extension.versions()))
            return
        for name in new:
            self.log("reloaded", model=name, version=extension.versions()[name])

    def close(self) -> None:
        """Stop the threads."""
        others = (*self._shadows, *(() if self._watch is None else (self._watch,)))
        for threads in (self._threads, self._explaining, self._telling, self._recorder, *others):
            threads.close()


_ONE_PROCESS = (
    "Ids of lists hold for this process alone: what is told of them to another one, or to this one after a restart, is "
    "refused. Give all replicas the same secret file."
)
_BEARER = ((b"www-authenticate", b"Bearer"),)
_LEAVE = ((b"connection", b"close"),)
_AGAIN = ((b"retry-after", b"1"),)


def _interleaved(names: tuple[str, str], secret: bytes) -> InterleavedModels:
    from toprank.serving.interleaving import InterleavedModels  # which only some services need, and statistics with it

    return InterleavedModels(*names, secret=secret)


def _watch(reference: RankingData, models: Models, counters: Counters) -> DriftWatch:
    from toprank.serving.watching import DriftWatch  # which only some services need, and statistics with it

    return DriftWatch(reference, models, counters)


def _refused(status: int, sentence: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    # After 408 and 413 the rest of the body may still be under way.
    more = _LEAVE if status in (408, 413) else _AGAIN if status == 503 else ()
    if len(sentence) > 2 * _QUOTED:  # an id or a word may be as long as the body
        sentence = f"{sentence[:_QUOTED]} … {sentence[-_QUOTED:]}"
    return Answer(status, _json(answers.Refusal(sentence)), headers=(*headers, *more))


def _name_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """The id of a request: the client's, or that of a proxy before us, where it is one; else a new one."""
    name = next((value for key, value in headers if key == b"x-request-id"), b"")
    return name.decode() if _NAMED.fullmatch(name) else secrets.token_hex(8)


async def _static(kind: bytes, content: bytes) -> Answer:
    return Answer(200, content, kind, HEADERS)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _where(problem: BaseException) -> str:
    """Return file and line of the innermost frame; the message stays out of the log: it may quote a client."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


async def _live(receive: Receive, send: Send) -> None:
    """ASGI's start and end."""
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": message["type"] + ".complete"})
    await send({"type": "lifespan.shutdown.complete"})
