"""The settings of a service: its limits, and the options of both commands that start one.

`toprank serve` and `python -m toprank.serving` have the options of `Settings`. The command line reads them whether the
packages of a service are installed or not, so nothing is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple


@dataclass(frozen=True)
class Limits:
    """What a request may ask of the service."""

    body: int = 8 << 20
    """Bytes."""
    documents: int = 10_000
    seconds: float = 10.0
    """For a body to arrive, and for the work on it."""
    threads: int = 2
    """On which large requests are worked on, and those to slow models."""
    queue: int = 256
    """Requests that may wait for one of these threads; the next are told to come back."""


@dataclass(frozen=True)
class LogFiles:
    """Where a service writes what it served and what users did, and what is kept of it."""

    folder: Path
    days: float = 30.0
    """Files that were last written to so long ago are removed."""
    bytes: float = 10e9
    """And the oldest, where all together are larger."""
    features: bool = False
    """Whether lists are written with the values of their documents."""


MODELS, LOG, LIMITS = "Several models", "Log", "Limits"
"""Groups of options in the help."""


class Option(NamedTuple):
    """What the help says of an option, and the bounds of its value."""

    help: str
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    group: str | None = None


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
            "Two models whose rankings /v1/interleave mixes, to compare their clicks.",
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
    log_days: Annotated[float, Option("Delete files of the log after this many days.", 0.01, group=LOG)] = LogFiles.days
    log_megabytes: Annotated[
        float, Option("Delete the oldest files of the log once it is larger than this.", 10, group=LOG)
    ] = LogFiles.bytes / 1e6
    log_features: Annotated[bool, Option("Also log the feature values of the documents.", group=LOG)] = False
    event_days: Annotated[
        float,
        Option("Refuse events about a list that is older than this many days; returns may come late.", 0, group=LOG),
    ] = 30.0
    explore: Annotated[
        str | None,
        Option(
            "swap-neighbours:SHARE swaps two random neighbours in this share of the lists, such as 0.05, so that the "
            "log can tell positions from documents; swap-neighbours:SHARE:DEPTH swaps within the first DEPTH "
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
        int, Option("Threads for large requests and slow models; small requests need none.", 1, group=LIMITS)
    ] = Limits.threads
    queue: Annotated[int, Option("Requests that may wait for a thread; any more get 503.", 0, group=LIMITS)] = (
        Limits.queue
    )
    drain: Annotated[
        float, Option("Seconds to keep answering after SIGTERM while connections close.", 0, group=LIMITS)
    ] = 1.0
    reload: Annotated[bool, Option("Reload a model file when it is replaced.")] = True
