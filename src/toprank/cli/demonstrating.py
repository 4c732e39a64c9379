"""`toprank demo`: the main job, on data that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common
from toprank.cli.evaluating import side_by_side


def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the files in this folder. Default: nothing is kept.")] = None,
    seed: common.Seed = 0,
    threads: common.Threads = None,
    quiet: common.Quiet = False,
) -> None:
    """Make data whose truth is known, examine them, score three rankings under every convention, and compare them.

    For example:

    \b
      toprank demo --out demo
    """
    import tempfile

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _demonstrate(out, seed, threads, quiet)
        common.say(f"\nThe files are in {out}; try: toprank evaluate {out}/data.txt {out}/optimal.scores -c all", quiet)
        return
    with tempfile.TemporaryDirectory() as folder:
        _demonstrate(Path(folder), seed, threads, quiet)


def _demonstrate(folder: Path, seed: int, threads: int | None, quiet: bool) -> None:
    import numpy as np

    import toprank as tr
    from toprank.metrics.evaluation import evaluate_under_all

    def title(text: str) -> None:
        typer.echo(f"\n== {text}")

    title("Data with a known truth: P(grade | x) is given, so the best possible ranking is, too")
    truth = tr.synthetic(n_queries=300, n_documents=(5, 40), n_features=10, seed=seed)
    tr.write(truth, folder / "data.txt")
    data = tr.read(folder / "data.txt", threads=threads)
    typer.echo(f"{data}, written as LETOR text and read back")

    title("The data doctor")
    typer.echo(str(tr.check(data)))

    rng = np.random.default_rng(seed)
    optimal = truth.expected_gain()
    systems = {
        "optimal": optimal,  # E[gain | x]: no ranker can expect a higher DCG
        "noisy": optimal + rng.normal(0, optimal.std(), len(optimal)),
        "coarse": np.round(optimal / optimal.std()),  # few distinct scores: many ties
    }
    for name, scores in systems.items():
        tr.write_scores(scores, folder / f"{name}.scores")

    title("One ranking, every convention: the same scores, and not the same number")
    metrics = ["ndcg@1", "ndcg@10", "map", "err@10"]
    with common.progress("Evaluating …", quiet):
        results = evaluate_under_all(systems["coarse"], data, metrics, threads=threads)
    typer.echo(side_by_side(results))

    title("Three rankings compared, with statistics")
    typer.echo(str(tr.compare(systems, data, ["ndcg@10"], baseline="optimal", seed=seed, threads=threads)))
