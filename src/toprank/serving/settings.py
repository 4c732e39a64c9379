"""The settings of a service: its limits, and the options of both commands that start one.

`toprank serve` and `python -m toprank.serving` have the options of `Settings`. The command line reads them whether the
packages of a service are installed or not, so nothing is imported here but the declaration of an option.
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
    """What a request may ask of the service.

    Attributes:
        body: Bytes.
        seconds: For a body to arrive, and for the work on it.
        threads: On which large requests are worked on, and those to slow models.
        queue: Requests that may wait for one of these threads; the next are told to come back.
    """

    body: int = 8 << 20
    documents: int = 10_000
    seconds: float = 10.0
    threads: int = 2
    queue: int = 256


@dataclass(frozen=True)
class LogFiles:
    """Where a service writes what it served and what users did, and what is kept of it.

    Attributes:
        days: Files that were last written to so long ago are removed.
        bytes: And the oldest, where all together are larger.
        features: Whether lists are written with the values of their documents.
    """

    folder: Path
    days: float = 30.0
    bytes: float = 10e9
    features: bool = False


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """What a service does besides ranking by its primary model.

    Attributes:
        token: what clients must present as a bearer token; None: nothing.
        limits: limits of a request.
        shadows: models that score the requests to the primary one, too, without being answered with.
        interleave: two models whose rankings are interleaved at /v1/interleave; needs `files`.
        secret: signs the ids of lists; services that share it take each other's events.
        files: where lists and events are written; None: nowhere.
        max_event_age_days: how old a list may be when an event on it arrives.
        explore: which lists are randomized for exploration (`Exploration`); needs `files`.
        split: models that some keys get instead of the primary one (`TrafficSplit`); needs `files`.

    Raises:
        DataError: an experiment on users needs a log, but `files` is None.
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
                    f"{name} needs a log: without one nobody learns what came of it.",
                    remedy=Remedy("Give files=LogFiles(folder).", "Give a folder for it by {log}.", log=...),
                )


MODELS, LOG, LIMITS = "Several models", "Log", "Limits"
"""Groups of options in the help."""


@dataclass(frozen=True)
class Settings:
    """The options of a service."""

    host: Annotated[str, Option("Address to listen on; any but loopback needs a token.")] = "127.0.0.1"
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
            "Two models whose rankings /v1/interleave mixes, to compare their clicks by the log.",
            metavar="NAME NAME",
            group=MODELS,
        ),
    ] = None
    secret_file: Annotated[
        Path | None,
        Option("A file with a secret that replicas share, so that each accepts events on the others' lists."),
    ] = None
    log: Annotated[
        Path | None,
        Option(
            "Keep what was served and what users did with it in this folder, for `toprank clicks`.",
            metavar="FOLDER",
            group=LOG,
        ),
    ] = None
    log_retention_days: Annotated[float, Option("Delete files of the log after this many days.", 0.01, group=LOG)] = (
        LogFiles.days
    )
    log_megabytes: Annotated[
        float, Option("Delete the oldest files of the log so that it never grows larger than this.", 10, group=LOG)
    ] = LogFiles.bytes / 1e6
    log_features: Annotated[bool, Option("Also log the feature values of the documents.", group=LOG)] = False
    max_event_age_days: Annotated[
        float,
        Option("Refuse events about a list that is older than this many days; returns may come late.", 0, group=LOG),
    ] = 30.0
    explore: Annotated[
        str | None,
        Option(
            "swap-neighbors:SHARE swaps two random neighbors in this share of the lists, such as 0.05, so that the "
            "log can tell positions from documents; swap-neighbors:SHARE:DEPTH swaps within the first DEPTH "
            "documents only, 10 by default.",
            metavar="HOW",
            group=LOG,
        ),
    ] = None
    split: Annotated[
        list[str] | None,
        Option(
            "Rank for this percentage of the keys by this model, such as new=5. May be given several times.",
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
    threads: Annotated[
        int, Option("WorkerPool for large requests and slow models; small requests need none.", 1, group=LIMITS)
    ] = Limits.threads
    queue: Annotated[int, Option("Requests that may wait for a thread; any more get 503.", 0, group=LIMITS)] = (
        Limits.queue
    )
    drain: Annotated[
        float, Option("Seconds to keep answering after SIGTERM while connections close.", 0, group=LIMITS)
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
