"""`toprank demo`: the whole workflow on data that need no download."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options
from toprank.cli import demonstrating_search as searching
from toprank.cli.demonstrating_search import title
from toprank.cli.evaluating import side_by_side

if TYPE_CHECKING:
    from toprank.compute import FloatArray
    from toprank.data.dataset import RankingData

_SYSTEMS = ("LeastSquares", "RankSVM", "ListNet", "cs-RgList", "PlugIn", "LambdaMART")
_REPORT = "toprank-demo.html"


def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help=f"Folder for all files. Default: only the report, {_REPORT}."
        ),
    ] = None,
    synthetic: Annotated[
        bool,
        typer.Option("--synthetic", help="Use synthetic data with a known optimal ranking."),
    ] = False,
    *,
    running: options.Running,
) -> None:
    """Run the whole workflow on the documentation of this Python: index, train, compare, report.

    With --synthetic, train systems on synthetic data and compare them with the optimal ranking.

    For example:

    \b
      toprank demo -o demo
      toprank demo --synthetic -o demo
    """
    import tempfile

    demonstrate, advice = (_demonstrate, _advice) if synthetic else (searching.demonstrate, searching.advice)
    if output is None:
        with tempfile.TemporaryDirectory() as folder:
            demonstrate(Path(folder), Path(_REPORT), running.seed, running.threads)
        return
    output.mkdir(parents=True, exist_ok=True)
    demonstrate(output, output / "report.html", running.seed, running.threads)
    command = "toprank" if shutil.which("toprank") else sys.argv[0]  # with `make demo`, the command is only in .venv
    common.say(f"\n{advice(output, command)}")


def _advice(folder: Path, command: str) -> str:
    return f"The files are in {folder}; try: {command} evaluate {folder}/test.txt {folder}/ListNet.scores -c all"


def _demonstrate(folder: Path, report: Path, seed: int, threads: int | None) -> None:
    import toprank as tr
    from toprank.data.command_line import command_line
    from toprank.evaluation.scores import evaluate_all_conventions

    title("Synthetic data with known P(grade | x), and therefore a known optimal ranking")
    truth = tr.synthetic(n_queries=600, n_documents=(5, 40), n_features=30, n_irrelevant=20, noise=1.0, seed=seed)
    for name, part in zip(("train", "vali", "test"), tr.split(truth, (0.1, 0.2, 0.7), seed=seed), strict=True):
        tr.write(part, folder / f"{name}.txt")
    train, valid, test = (tr.read(folder / f"{name}.txt", threads=threads) for name in ("train", "vali", "test"))
    typer.echo(f"test: {test}, written as LETOR text and read back")

    title("The data doctor")
    typer.echo(str(tr.check(train, valid, test, names=("train", "vali", "test"))))

    title("Training, with hyper-parameters selected on validation data")
    optimal, probabilities = _optimal(truth, test)
    scores, rankers = {"Bayes-optimal": optimal}, {}
    for name in _SYSTEMS:
        with common.progress(f"Training {name} …"):
            chosen = tr.grid_search(name, train, valid, threads=threads)
        chosen.ranker.save(folder / f"{name}.toprank")
        rankers[name], scores[name] = chosen.ranker, chosen.ranker.predict(test)
        options = ", ".join(f"{key}={value:g}" for key, value in chosen.options.items())
        typer.echo(f"{name:<13} {options:<20} {chosen.metric} on validation data {chosen.value:.4f}")
    for name, values in scores.items():
        tr.write_scores(values, folder / f"{name}.scores")

    title("One ranking under every convention: the same scores, different values")
    typer.echo(
        side_by_side(evaluate_all_conventions(scores["ListNet"].round(1), test, ["ndcg@1", "ndcg@10", "map", "err@10"]))
    )

    title("All systems against the optimal ranking by E[gain | x], on the test data")
    result = tr.compare(scores, test, ["ndcg@10"], baseline="Bayes-optimal", seed=seed, threads=threads)
    typer.echo(str(result))
    title("Verdict")
    typer.echo(_verdict(result))

    title("The report")
    content = tr.report.from_comparison(
        result,
        rankers=rankers,
        probabilities={"Bayes-optimal": probabilities},
        name="test.txt of the demo",
        title="toprank demo: six systems and the best possible ranking",
        command=command_line(),
        sources={"train.txt": train, "vali.txt": valid},
        threads=threads,
    )
    tr.report.write_html(report, content)
    typer.echo(f"Open it in a browser: {report.resolve()}")


def _optimal(truth: Any, test: RankingData) -> tuple[FloatArray, FloatArray]:
    """Return E[gain | x] and P(grade | x) of the test documents."""
    import numpy as np

    rows = truth.queries.broadcast(np.isin(truth.qids, test.qids))
    return truth.expected_gain()[rows], truth.probabilities[rows]


def _verdict(result: Any) -> str:
    means = {name: values["ndcg@10"] for name, values in result.means.items() if name != "Bayes-optimal"}
    best = max(means, key=means.__getitem__)
    ceiling = result.means["Bayes-optimal"]["ndcg@10"]
    behind = [difference.a for difference in result.differences if difference.significant]
    return (
        f"The optimal ranking, by the known E[gain | x], has an NDCG@10 of {ceiling:.4f}. {best} is closest with "
        f"{means[best]:.4f}, {means[best] / ceiling:.1%} of it. Significantly below the optimum: "
        f"{', '.join(behind) or 'none'}."
    )
