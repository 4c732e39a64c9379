"""Startup of a service, shared by both commands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toprank.errors import reword
from toprank.serving.logs import Log
from toprank.serving.models import Models, named_files
from toprank.serving.server import listening, read_secret, read_token, serve
from toprank.serving.service import Service
from toprank.serving.settings import Settings

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.extension import Extension


def start(
    models: Sequence[str],
    settings: Settings,
    *,
    requests: bool = True,
    reference: Callable[[Models], RankingData] | None = None,
    extension: Callable[[], Extension] | None = None,
) -> None:
    """Run a service until SIGTERM or Ctrl-C.

    Args:
        models: model files, or NAME=FILE; the first is the primary one.
        settings: all other options.
        requests: whether each request is logged.
        reference: function that returns data like the training data of the primary model.
        extension: function that returns further endpoints and pages; a model is then optional.
    """
    log = Log(requests=requests)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: log("warning", says=warning_text(message))
        _start(models, settings, log, reference, extension)


def for_service(sentence: str) -> str:
    """Return a message with the names of arguments in it as they are called by a service."""
    return reword(sentence, lambda name, _: name, lambda _: False)


def _start(
    models: Sequence[str],
    settings: Settings,
    log: Log,
    reference: Callable[[Models], RankingData] | None,
    extension: Callable[[], Extension] | None,
) -> None:
    files, token = named_files(models), read_token(settings.token_file, settings.host)
    secret = read_secret(settings.secret_file)
    with listening(settings.host, settings.port) as bound:
        known = Models(files, may_be_none=extension is not None)
        service = Service(
            known,
            settings.service_options(token, secret),
            reference=None if reference is None else reference(known),
            extension=None if extension is None else extension(),
            log=log,
        )
        serve(service, bound, watch=settings.reload, drain=settings.drain)


def warning_text(message: Any) -> str:
    """Return the text of a warning for the log of a service."""
    sentence = message.args[0] if isinstance(message, Warning) and message.args else message
    return for_service(sentence) if isinstance(sentence, str) else str(message)
