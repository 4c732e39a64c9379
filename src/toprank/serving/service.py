"""The service as an ASGI application: routes, authentication, limits and responses.

Routing is a dictionary of paths. Small requests are processed on the event loop, which takes a fraction of a
millisecond. Large requests, slow models and models that use the whole query, whose time grows with its square, run on
threads with a time limit.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from toprank.errors import DataError, ToprankError
from toprank.serving import answers, openapi
from toprank.serving.answers import JSON, LEAVE, PLAIN, HttpAnswer, refused
from toprank.serving.counters import Counters
from toprank.serving.event_log import EventLog
from toprank.serving.experiments import Arm, Exploration, Swap, TrafficSplit
from toprank.serving.extension import Endpoint, Extension
from toprank.serving.impressions import ListIdSigner
from toprank.serving.logs import Log, where
from toprank.serving.models import LoadedModel, Models
from toprank.serving.page import HEADERS, PARTS, read_pages
from toprank.serving.recorder import Recorder
from toprank.serving.requests import (
    Events,
    ExplainRequest,
    GoneError,
    InterleaveRequest,
    Message,
    RankRequest,
    Receive,
    RefusedError,
    ScoreRequest,
    parse_request,
    read_body,
)
from toprank.serving.settings import ServiceOptions
from toprank.serving.shadow import Shadow
from toprank.serving.worker_pool import WorkerPool

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.drift_watch import DriftWatch
    from toprank.serving.interleaving import InterleavedModels

_LARGE = 1 << 18  # Size of a body in bytes from which it is scored on a thread, to keep the event loop responsive.
_MANY = 200  # Number of documents from which a request is scored on a thread: twice the number of the self-test.
_SCRAPES = 8  # Maximum number of waiting requests for metrics.
_NAMED = re.compile(rb"[\w.:+/=@-]{1,128}")  # Request ids that are accepted: one word that fits on a line.

Send = Callable[[Message], Awaitable[None]]
Result = TypeVar("Result")


class Service:
    """An ASGI application that ranks with models.

    Args:
        models: the models; the first is the primary one.
        options: authentication, limits, experiments and logs. Default: ``ServiceOptions()``.
        reference: data like the training data of the primary model; /metrics then reports drift from them.
        extension: further endpoints and pages of a higher room; a service with an extension needs no models.
        log: log of the service.
    """

    def __init__(
        self,
        models: Models,
        options: ServiceOptions | None = None,
        *,
        reference: RankingData | None = None,
        extension: Extension | None = None,
        log: Log | None = None,
    ) -> None:
        options = options or ServiceOptions()
        self.models, self.limits, self.log = models, options.limits, log or Log()
        self.counters = Counters()
        self.draining = False
        self._token = None if options.token is None else options.token.encode()
        # Work continues after its request timed out; separate pools keep it from blocking other requests.
        self._pool = WorkerPool(self.limits.threads, self.limits.queue, "serving")
        self._explain_pool, self._metrics_pool = (
            WorkerPool(1, self.limits.queue, "explaining"),
            WorkerPool(1, _SCRAPES, "metrics"),
        )
        self._split = TrafficSplit(models.primary, options.split) if options.split else None
        exploration = None if options.explore is None else Exploration(options.explore)
        self._check_roles(options)
        self._shadows = [Shadow(name, models, self.counters) for name in dict.fromkeys(options.shadows)]
        word = (options.secret or secrets.token_hex(32)).encode()
        self._interleaving = None if options.interleave is None else _interleaved_models(options.interleave, word)
        event_log = None if options.files is None else EventLog(options.files, self.counters, self.log)
        self._recorder = Recorder(
            event_log, ListIdSigner((), word), self.counters, options.max_event_age_days, exploration
        )
        if options.secret is None and event_log is not None:
            self.log("remark", says=_NO_SECRET_REMARK)
        self._watch = None if reference is None else _drift_watch(reference, models, self.counters)
        self.counters.gauge("toprank_model_info", "Models that serve.", ("model", "version", "kind"), self._model_infos)
        self._routes: dict[str, tuple[str, Callable[..., Awaitable[HttpAnswer]]]] = {
            "/v1/rank": ("POST", self._rank),
            "/v1/score": ("POST", self._score),
            "/v1/explain": ("POST", self._explain),
            "/v1/interleave": ("POST", self._interleave),
            "/v1/events": ("POST", self._take_events),
            "/v1/models": ("GET", self._list_models),
            "/metrics": ("GET", self._metrics),
            "/openapi.json": ("GET", self._openapi),
            "/healthz": ("GET", self._health),
            "/readyz": ("GET", self._readiness),
        }
        self._open = {"/healthz", "/readyz"}
        self._add_pages(read_pages("toprank.serving", PARTS))
        self.extension, self._endpoints = extension, dict[str, Endpoint]()
        if extension is not None:
            self._extend(extension)

    def _extend(self, extension: Extension) -> None:
        """Add endpoints and pages; if the extension has a page at /, ours moves to /models."""
        self._endpoints = dict(extension.endpoints(self._recorder))
        self._routes |= {
            path: ("POST", partial(self._call_extension, endpoint)) for path, endpoint in self._endpoints.items()
        }
        if "/" in extension.pages:
            self._routes["/models"] = self._routes["/"]
            self._open.add("/models")
        self._add_pages(extension.pages)

    def _add_pages(self, pages: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Add public pages."""
        self._routes |= {path: ("GET", partial(_static, kind, content)) for path, (kind, content) in pages.items()}
        self._open |= set(pages)

    def _model_of_option(self, name: str) -> LoadedModel:
        """Return the model named by an option."""
        try:
            return self.models.get(name)
        except RefusedError as problem:
            raise DataError(str(problem)) from None

    def _check_roles(self, options: ServiceOptions) -> None:
        """Reject unknown models, and models that cannot have the roles given by the options."""
        primary, pair = self.models.primary, tuple[str, ...](options.interleave or ())
        for name in (*options.shadows, *pair):
            self._model_of_option(name)
        if primary in options.shadows:
            raise DataError(f"'{primary}' is the primary model and cannot be its own shadow. Name another model.")
        if len(set(pair)) < len(pair):
            raise DataError(f"Interleaving needs two models, but '{pair[0]}' was given twice.")
        for name in () if self._split is None else self._split.names:
            if not self._model_of_option(name).columns.accepts_same_requests(self.models.get(None).columns):
                raise DataError(f"'{name}' and '{primary}' use different columns and cannot share a split.")

    def _model_infos(self) -> dict[tuple[str, ...], float]:
        return {(model.name, model.version, type(model.ranker).__name__): 1.0 for model in self.models}

    # ---- requests and responses ----

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
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
        except GoneError:
            self.counters.requests.labels(endpoint, "gone").inc()
            return
        except RefusedError as problem:
            answer = refused(problem.status, str(problem))
        except ToprankError as problem:
            answer = refused(422, str(problem))
        except ModuleNotFoundError as problem:  # a minimal installation lacks optional packages
            answer = refused(501, f"This request needs {problem.name}, which is not installed on the server.")
        except Exception as problem:  # noqa: BLE001 - every failure becomes a response
            self.log("failure", request=name, endpoint=endpoint, error=type(problem).__name__, where=where(problem))
            answer = refused(500, "Internal error. The log of the service contains the location.")
        own = (
            (b"content-type", answer.kind),
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-request-id", name.encode()),
        )
        headers = [*own, *PLAIN, *answer.headers, *(LEAVE if self.draining else ())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
        took = time.perf_counter() - start
        self.counters.requests.labels(endpoint, str(answer.status)).inc()
        self.counters.seconds.labels(endpoint).observe(took)
        self.log.request(endpoint, answer.status, took, request=name, **answer.facts)

    async def _answer(self, scope: Message, receive: Receive) -> HttpAnswer:
        path, headers = scope["path"], dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # The end of the body is ambiguous, which enables request smuggling through a proxy.
            return refused(400, "Send either Content-Length or Transfer-Encoding, not both.", LEAVE)
        if path not in self._routes:
            raise RefusedError(404, f"Unknown path {path[:200]}. /openapi.json lists the endpoints.")
        method, answer = self._routes[path]
        if path not in self._open and not self._may_ask(headers.get(b"authorization", b"")):
            return refused(401, "This service requires a token: Authorization: Bearer ….", _BEARER)
        if scope["method"] != method and (method, scope["method"]) != ("GET", "HEAD"):
            return refused(405, f"{path} requires {method}.", ((b"allow", method.encode()),))
        if method == "GET":
            return await answer()
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != JSON:
            raise RefusedError(415, "The body must be JSON with Content-Type: application/json.")
        announced = headers.get(b"content-length", b"")
        return await answer(await read_body(receive, announced, self.limits.body, self.limits.seconds))

    def _may_ask(self, authorization: bytes) -> bool:
        scheme, _, token = authorization.partition(b" ")
        return self._token is None or (scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token))

    async def _work(
        self, function: Callable[[], Result], request: ScoreRequest | InterleaveRequest, size: int, *models: LoadedModel
    ) -> Result:
        """Run a function on the event loop, or on a thread if it may take long."""
        aside = size > _LARGE or len(request.documents) > _MANY or any(model.slow for model in models)
        return await self._pool.run(function, self.limits.seconds) if aside else function()

    # ---- endpoints ----

    async def _rank(self, body: bytes) -> HttpAnswer:
        request = parse_request(RankRequest, body)
        arm = self._arm(request)
        model = self.models.get(request.model if arm is None else arm.model)
        kept = self._recorder.event_log is not None and request.documents
        list_id = self._recorder.new_list_id(model.version) if kept else None
        n = len(request.documents)
        swap = self._recorder.draw_swap(min(request.top or n, n)) if kept else Swap()
        answer = partial(answers.rank, model, request, self.limits.documents, list_id, swap.place)
        scored = await self._work(answer, request, len(body), model)
        if list_id is not None:
            self._recorder.record_ranking(list_id, model, request, scored, swap, arm)
        return self._observed(model, request, scored)

    async def _score(self, body: bytes) -> HttpAnswer:
        request = parse_request(ScoreRequest, body)
        model = self.models.get(request.model)
        scored = partial(answers.score, model, request, self.limits.documents)
        return self._observed(model, request, await self._work(scored, request, len(body), model))

    def _arm(self, request: RankRequest) -> Arm | None:
        """Return the arm of a request in the split; None if the request names a model or has no key."""
        if self._split is None or request.key is None or request.model is not None:
            return None
        arm = self._split.arm(request.key)
        self.counters.split.labels(arm.model).inc()
        return arm

    def _observed(self, model: LoadedModel, request: ScoreRequest, scored: answers.ScoredRequest) -> HttpAnswer:
        """Count a request and pass it to the shadows and the drift watch; return its response."""
        name, n = model.name, len(scored.scores)
        self.counters.documents.labels(name).observe(n)
        if scored.missing:
            self.counters.missing.labels(name).inc(scored.missing)
        for feature, times in scored.unseen.items():
            self.counters.unseen.labels(name, feature).inc(times)
        if n and name == self.models.primary:
            for shadow in self._shadows:
                shadow.observe(model, request, scored.X, scored.scores)
            if self._watch is not None:
                self._watch.observe(model, scored.X)
        return HttpAnswer(200, scored.written, facts={"model": name, "version": model.version, "documents": n})

    async def _call_extension(self, endpoint: Endpoint, body: bytes) -> HttpAnswer:
        request = parse_request(endpoint.request, body)
        threads = self._explain_pool if endpoint.rare else self._pool
        return HttpAnswer.from_value(await threads.run(partial(endpoint.work, request), self.limits.seconds))

    async def _explain(self, body: bytes) -> HttpAnswer:
        request = parse_request(ExplainRequest, body)
        model = self.models.get(request.model)
        explained = partial(answers.explain, model, request, self.limits.documents)
        explanation = await self._explain_pool.run(explained, self.limits.seconds)
        return HttpAnswer(
            200, explanation, facts={"model": model.name, "version": model.version, "documents": len(request.documents)}
        )

    async def _interleave(self, body: bytes) -> HttpAnswer:
        interleaving = self._interleaving
        if interleaving is None:
            raise RefusedError(404, "This service does not interleave; start it with two models to interleave.")
        request = parse_request(InterleaveRequest, body)
        models = (self.models.get(interleaving.names[0]), self.models.get(interleaving.names[1]))
        both = partial(answers.rank_by_both, models, request, self.limits.documents)
        ids, *rankings = await self._work(both, request, len(body), *models)
        impression, listed = interleaving.draft(models, (rankings[0], rankings[1]), ids, request.top or len(ids))
        self.counters.impressions.inc()
        if listed:
            self._recorder.record_interleaving(impression, models, request, listed)
        ranking = [answers.InterleavedDocument(document, rank) for rank, document in enumerate(listed, start=1)]
        return HttpAnswer.from_value(answers.InterleavedList(impression, ranking), facts={"documents": len(ids)})

    async def _take_events(self, body: bytes) -> HttpAnswer:
        if self._recorder.event_log is None:
            raise RefusedError(404, "This service has no event log; start it with a folder for one.")
        events = parse_request(Events, body)
        shown = self._recorder.open_list(events)
        new = self._recorder.record_events(events)
        if self._interleaving is not None:
            clicked = [event.document for event in new if event.kind == "click"]
            for name in filter(None, (self._interleaving.model_of(shown, document) for document in clicked)):
                self.counters.clicks.labels(name).inc()
        return HttpAnswer.from_value(answers.CountedEvents(len(new), len(events.events) - len(new)))

    async def _list_models(self) -> HttpAnswer:
        described = [model.described() for model in self.models]
        return HttpAnswer.from_value(answers.ModelList(self.models.primary, described))

    async def _metrics(self) -> HttpAnswer:
        text = await self._metrics_pool.run(self.counters.text, self.limits.seconds)
        return HttpAnswer(200, text, b"text/plain; version=0.0.4; charset=utf-8")

    async def _openapi(self) -> HttpAnswer:
        return HttpAnswer.from_value(openapi.document(token=self._token is not None, more=self._endpoints))

    async def _health(self) -> HttpAnswer:
        return HttpAnswer.from_value(answers.Status("alive"))

    async def _readiness(self) -> HttpAnswer:
        if self.draining:
            raise RefusedError(503, "The service is stopping.")
        return HttpAnswer.from_value(answers.Status("ready"))

    # ---- reloading ----

    async def reload(self, *, everything: bool = False) -> None:
        """Reload models whose files were replaced, or all; if a new one is rejected, log the reason and keep the old
        one.
        """
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
        for threads in (self._pool, self._explain_pool, self._metrics_pool, self._recorder, *others):
            threads.close()


_NO_SECRET_REMARK = (
    "Ids of lists are valid in this process only: other replicas, and this one after a restart, reject events on them. "
    "Give all replicas the same secret file."
)
_BEARER = ((b"www-authenticate", b"Bearer"),)


def _interleaved_models(names: tuple[str, str], secret: bytes) -> InterleavedModels:
    from toprank.serving.interleaving import InterleavedModels  # imports statistics, which few services need

    return InterleavedModels(*names, secret=secret)


def _drift_watch(reference: RankingData, models: Models, counters: Counters) -> DriftWatch:
    from toprank.serving.drift_watch import DriftWatch  # imports statistics, which few services need

    return DriftWatch(reference, models, counters)


def _name_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return the request id of the client or a proxy, if valid, otherwise a new one."""
    name = next((value for key, value in headers if key == b"x-request-id"), b"")
    return name.decode() if _NAMED.fullmatch(name) else secrets.token_hex(8)


async def _static(kind: bytes, content: bytes) -> HttpAnswer:
    return HttpAnswer(200, content, kind, HEADERS)


async def _live(receive: Receive, send: Send) -> None:
    """Handle the lifespan events of ASGI."""
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": message["type"] + ".complete"})
    await send({"type": "lifespan.shutdown.complete"})
