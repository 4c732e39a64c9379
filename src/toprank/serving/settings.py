"""Settings of a service: its limits, and the options of both commands that start one.

`toprank serve` and `python -m toprank.serving` share the options of `Settings`. The command line reads them without the
packages of the extra, so this module imports only the declaration of an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from toprank.data.options import Option as Option
from toprank.errors import DataError, Remedy


@dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Attributes:
        body: maximum size of a body in bytes.
        documents: maximum number of documents.
        seconds: time limit for receiving a body, and for processing it.
        threads: number of threads for large requests and slow models.
        queue: maximum number of requests waiting for a thread; further ones are rejected with 503.
    """

    body: int = 8 << 20
    documents: int = 10_000
    seconds: float = 10.0
    threads: int = 2
    queue: int = 256


@dataclass(frozen=True)
class LogFiles:
    """Location and limits of the event log.

    Attributes:
        folder: folder of the files.
        days: files last written more than this many days ago are removed.
        bytes: maximum total size; the oldest files are removed beyond it.
        features: whether lists are logged with the feature values of their documents.
    """

    folder: Path
    days: float = 30.0
    bytes: float = 10e9
    features: bool = False


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of a service.

    Attributes:
        token: bearer token that clients must send; None if none is required.
        limits: limits of a request.
        shadows: models that also score the requests to the primary model, without affecting responses.
        interleave: two models whose rankings are interleaved at /v1/interleave; needs `files`.
        secret: secret that signs the ids of lists; services with the same secret accept each other's events.
        files: location of the event log; None for no log.
        max_event_age_days: maximum age of a list when an event arrives.
        explore: specification of the lists to perturb (`Exploration`); needs `files`.
        split: models that get a share of the keys instead of the primary one (`TrafficSplit`); needs `files`.

    Raises:
        DataError: if an experiment on users needs a log, but `files` is None.
    """

    token: str | None = None
    limits: Limits = Limits()
    shadows: Sequence[str] = ()
    interleave: tuple[str, str] | None = None
    secret: str | None = None
    files: LogFiles | None = None
    max_event_age_days: float = 30.0
    explore: str | None = None
    split: Sequence[str] = ()

    def __post_init__(self) -> None:
        for value, name in ((self.explore, "Exploring"), (self.split, "A split"), (self.interleave, "Interleaving")):
            if value and self.files is None:
                raise DataError(
                    f"{name} needs an event log to measure the result.",
                    remedy=Remedy("Give files=LogFiles(folder).", "Give a folder for it by {log}.", log=...),
                )


MODELS, LOG, LIMITS = "Several models", "Log", "Limits"
"""Groups of options in the help."""


@dataclass(frozen=True)
class Settings:
    """The options of a service."""

    host: Annotated[str, Option("Address to listen on; addresses other than loopback need a token.")] = "127.0.0.1"
    port: Annotated[int, Option("Port to listen on; 0 picks a free one.", 0, 65535)] = 8080
    token_file: Annotated[
        Path | None, Option("A file with the token that clients must present as Authorization: Bearer.")
    ] = None
    shadow: Annotated[
        list[str] | None,
        Option(
            "A model that scores the same requests without answering them. May be given several times.",
            metavar="NAME",
            group=MODELS,
        ),
    ] = None
    interleave: Annotated[
        tuple[str, str] | None,
        Option(
            "Two models to interleave at /v1/interleave, to compare them by clicks.",
            metavar="NAME NAME",
            group=MODELS,
        ),
    ] = None
    secret_file: Annotated[
        Path | None,
        Option("A file with a secret shared by replicas, so that each accepts events on lists of the others."),
    ] = None
    log: Annotated[
        Path | None,
        Option(
            "Folder for the log of served lists and user events, for `toprank clicks`.",
            metavar="FOLDER",
            group=LOG,
        ),
    ] = None
    log_retention_days: Annotated[float, Option("Delete files of the log after this many days.", 0.01, group=LOG)] = (
        LogFiles.days
    )
    log_megabytes: Annotated[
        float, Option("Maximum size of the log; the oldest files are deleted beyond it.", 10, group=LOG)
    ] = LogFiles.bytes / 1e6
    log_features: Annotated[bool, Option("Also log the feature values of the documents.", group=LOG)] = False
    max_event_age_days: Annotated[
        float,
        Option("Reject events on lists older than this many days; returns may arrive late.", 0, group=LOG),
    ] = 30.0
    explore: Annotated[
        str | None,
        Option(
            "swap-neighbors:SHARE swaps two random neighbors in this fraction of the lists, such as 0.05, so that the "
            "log identifies propensities; swap-neighbors:SHARE:DEPTH swaps within the first DEPTH documents only, 10 "
            "by default.",
            metavar="METHOD",
            group=LOG,
        ),
    ] = None
    split: Annotated[
        list[str] | None,
        Option(
            "Percentage of the keys that get this model, such as new=5. May be given several times.",
            metavar="NAME=PERCENT",
            group=MODELS,
        ),
    ] = None
    max_documents: Annotated[int, Option("Maximum number of documents in a request.", 1, group=LIMITS)] = (
        Limits.documents
    )
    max_body: Annotated[int, Option("Maximum size of a request in bytes.", 1024, group=LIMITS)] = Limits.body
    timeout: Annotated[
        float, Option("Seconds allowed for a body to arrive, and for the answer.", 0.1, group=LIMITS)
    ] = Limits.seconds
    threads: Annotated[int, Option("Threads for large requests and slow models.", 1, group=LIMITS)] = Limits.threads
    queue: Annotated[int, Option("Requests that may wait for a thread; further ones get 503.", 0, group=LIMITS)] = (
        Limits.queue
    )
    drain: Annotated[
        float, Option("Seconds to keep answering after SIGTERM, while connections close.", 0, group=LIMITS)
    ] = 1.0
    reload: Annotated[bool, Option("Reload a model file when it is replaced.")] = True

    def service_options(self, token: str | None, secret: str | None) -> ServiceOptions:
        """Return the options of the service itself; `token` and `secret` are the contents of the files."""
        files = None
        if self.log is not None:
            files = LogFiles(self.log, self.log_retention_days, self.log_megabytes * 1e6, self.log_features)
        return ServiceOptions(
            token=token,
            limits=Limits(self.max_body, self.max_documents, self.timeout, self.threads, self.queue),
            shadows=self.shadow or (),
            interleave=self.interleave,
            secret=secret,
            files=files,
            max_event_age_days=self.max_event_age_days,
            explore=self.explore,
            split=self.split or (),
        )
