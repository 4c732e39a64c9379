"""What a service is told: its limits, and the options that both of its commands are made of.

`toprank serve` and `python -m toprank.serving` have the options of `Settings`. The command line reads them whether the
packages of a service are installed or not, so nothing is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

__all__ = ["Limits", "LogFiles", "Option", "Settings"]


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


class Option(NamedTuple):
    """What an option is told as, and between which values it must be."""

    help: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Settings:
    """The options of a service."""

    host: Annotated[str, Option("Address to listen on; any but loopback needs a token.")] = "127.0.0.1"
    port: Annotated[int, Option("Port to listen on; 0 picks a free one.", 0, 65535)] = 8080
    token_file: Annotated[
        Path | None, Option("A file with the token that clients must present as Authorization: Bearer.")
    ] = None
    shadow: Annotated[list[str] | None, Option("A model that scores the same requests unseen; repeat for more.")] = None
    interleave: Annotated[
        tuple[str, str] | None, Option("Two models whose rankings /v1/interleave mixes, to compare their clicks.")
    ] = None
    secret_file: Annotated[
        Path | None,
        Option("A file with a secret that replicas share, so that each accepts events on the others' lists."),
    ] = None
    log: Annotated[
        Path | None, Option("A folder for what was served and what users did with it, for `toprank clicks`.")
    ] = None
    log_days: Annotated[float, Option("Days after which files of the log are removed.", 0.01)] = LogFiles.days
    log_megabytes: Annotated[float, Option("Size of the log at which its oldest files are removed.", 10)] = (
        LogFiles.bytes / 1e6
    )
    log_features: Annotated[bool, Option("Log the values of the documents, too.")] = False
    event_days: Annotated[float, Option("Days after which events of a list are refused; returns may come late.", 0)] = (
        30.0
    )
    explore: Annotated[
        str | None,
        Option(
            "swap-neighbours:SHARE: exchange two random neighbours of so many lists, such as 0.05, so that the log "
            "can tell positions from documents; swap-neighbours:SHARE:DEPTH does so in the first DEPTH, 10 by default."
        ),
    ] = None
    split: Annotated[
        list[str] | None,
        Option("NAME=PERCENT: rank for so many percent of the keys by this model, such as new=5; repeat for more."),
    ] = None
    max_documents: Annotated[int, Option("Maximum number of documents in a request.", 1)] = Limits.documents
    max_body: Annotated[int, Option("Maximum size of a request in bytes.", 1024)] = Limits.body
    timeout: Annotated[float, Option("Seconds allowed for a body to arrive, and for the answer.", 0.1)] = Limits.seconds
    threads: Annotated[int, Option("Threads for large requests and slow models; small requests need none.", 1)] = (
        Limits.threads
    )
    queue: Annotated[int, Option("Requests that may wait for a thread; any more get 503.", 0)] = Limits.queue
    drain: Annotated[float, Option("Seconds to keep answering after SIGTERM while connections close.", 0)] = 1.0
    reload: Annotated[bool, Option("Reload a model file when it is replaced.")] = True
