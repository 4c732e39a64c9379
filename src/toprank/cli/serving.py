"""`toprank serve`: models behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toprank.cli import common, options
from toprank.showing.progress import step

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.models import Models


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Model files, or NAME=FILE; the first is primary.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that clients must present as Authorization: Bearer.")
    ] = None,
    shadow: Annotated[
        list[str] | None, typer.Option(help="A model that scores what the primary is asked, unseen; repeat for more.")
    ] = None,
    interleave: Annotated[
        tuple[str, str] | None, typer.Option(help="Two models whose rankings /v1/interleave mixes, for clicks to tell.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Data as the primary was trained for: drift from them is told at /metrics.")
    ] = None,
    max_documents: Annotated[int, typer.Option(min=1, help="Documents of a request at most.")] = 10_000,
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes of a request at most.")] = 8 << 20,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a body to arrive, and for the answer.")] = 10.0,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds after SIGTERM in which requests are welcome, but told to leave.")
    ] = 1.0,
    reload: Annotated[bool, typer.Option("--reload/--no-reload", help="Load model files that are replaced.")] = True,
    quiet: options.Quiet = False,
) -> None:
    """Answer HTTP requests with models, until SIGTERM or Ctrl-C.

    Rankings come from POST /v1/rank; a page to try it is at /, the other endpoints are in /openapi.json. SIGHUP reads
    the model files again. Lines about requests go to standard error as JSON, without --quiet.

    For example:

    \b
      toprank serve m.toprank
      toprank serve live=m.toprank next=n.toprank --shadow next
      toprank serve m.toprank --reference vali.txt
      toprank serve m.toprank --host 0.0.0.0 --token-file token.txt
    """
    from toprank.serving import check_installed

    check_installed()
    from toprank.serving.logs import Log
    from toprank.serving.models import Models, named_files
    from toprank.serving.running import listening, read_token
    from toprank.serving.running import serve as run
    from toprank.serving.service import Limits, Service

    files, token = named_files(models), read_token(token_file, host)
    with listening(host, port) as bound:
        known = Models(files)
        service = Service(
            known,
            token=token,
            limits=Limits(max_body, max_documents, timeout),
            shadows=tuple(shadow or ()),
            interleave=interleave,
            reference=None if reference is None else _reference(reference, known, quiet),
            log=Log(requests=not quiet),
        )
        with step(None, quiet):  # its lines speak for themselves
            run(service, bound, watch=reload, drain=drain)


def _reference(path: Path, models: Models, quiet: bool) -> RankingData:
    reading: options.Reading = {"label": False} if common.format_told(path) in common.TABLES else {}
    return common.read_alike(path, quiet, reading, like=models.get(None).ranker)
