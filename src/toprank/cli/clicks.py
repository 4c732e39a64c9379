"""`toprank clicks`: check and simulate click logs, fit click models, train and evaluate rankers, analyze
online tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from toprank.cli import common, options, reading
from toprank.cli.click_training import Context, Log, LogColumns, context_of, evaluate, read_log, train

if TYPE_CHECKING:
    from toprank.clicks import ClickModel
    from toprank.data.dataset import RankingData
    from toprank.significance import Interval

_MODELS = "The click model: GlobalCTR, RankCTR, DocumentCTR, PBM, UBM, Cascade, DCM, SDBN, DBN or CCM."


@dataclass(frozen=True)
class CheckOptions:
    """Options of the check."""

    data: Annotated[
        Path | None, typer.Option(help="Data with document ids, to check that every shown document is in it.")
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a problem is found.")] = False
    context: Context = None
    n_resamples: Annotated[
        int, typer.Option(min=2, help="Number of bootstrap resamples of queries, for intervals.")
    ] = 100
    target_width: Annotated[
        float,
        typer.Option(help="Estimate the sessions needed for intervals of this width, relative to the propensities."),
    ] = 0.5


def check(
    log: Log,
    checked: CheckOptions,
    output: Annotated[options.Output, options.only("json", "html")],
    columns: LogColumns,
    read: Annotated[reading.ReadOptions, options.only("qid", "document_id")],
    seed: options.Seed = 0,
) -> None:
    """Check a click log: report problems, their remedies, and the propensities that it identifies.

    For example:

    \b
      toprank clicks check log.parquet
      toprank clicks check log.csv --query words --document sku --data products.parquet --strict
      toprank clicks check ubi_queries.jsonl ubi_events.jsonl --html log.html
      toprank clicks check log.parquet --context device
    """
    from toprank.clicks import check as report_on

    common.check_writable(output.html)
    crossed = context_of(checked.context)
    click_log = read_log(log, columns, crossed)
    features = None if checked.data is None else _known_documents(checked.data, options.keywords_of(read))
    further: dict[str, Any] = {"n_resamples": checked.n_resamples, "target_width": checked.target_width, "seed": seed}
    with common.progress("Examining …"):
        report = report_on(click_log, features, context=crossed, **further)
    findings = tuple(replace(finding, remedy=common.with_options(finding.remedy)) for finding in report.findings)
    report = replace(report, findings=findings)

    def write(html: Path) -> None:
        from toprank.report.clicks import clicks_page
        from toprank.report.page import write_page

        write_page(html, clicks_page(report, log[0].name))

    output.write(write)
    output.show(report)
    if checked.strict and any(finding.severity == "problem" for finding in report.findings):
        raise typer.Exit(1)


def _known_documents(data: Path, read: dict[str, Any]) -> RankingData:
    """Read the ids of data; labels are not needed."""
    unlabeled = {"label": False} if common.file_format(data) in common.TABLES else {}
    return common.read_judgments(data, {**unlabeled, **read})


@dataclass(frozen=True)
class Fitting:
    """The click model to fit, and its evaluation."""

    click_model: Annotated[str, typer.Option(help=_MODELS)] = "PBM"
    holdout: Annotated[float, typer.Option(help="Fraction of sessions to hold out for evaluation.")] = 0.2
    compare: Annotated[bool, typer.Option("--compare", help="Compare all models on held-out sessions.")] = False
    drop_duplicate_positions: Annotated[
        bool,
        typer.Option("--drop-duplicate-positions", help="Drop sessions with several documents at one position."),
    ] = False
    prior: Annotated[
        str | None,
        typer.Option(
            help="Prior of each probability, as clicks and skips. Default: two impressions at the log's click rate."
        ),
    ] = None
    jackknife_groups: Annotated[
        int,
        typer.Option(min=0, help="Number of groups of queries in the jackknife of the intervals; 0: no intervals."),
    ] = 20

    def check(self) -> None:
        """Check the fraction of held-out sessions and the number of groups."""
        if not 0 < self.holdout < 1:
            raise typer.BadParameter(f"--holdout must be between 0 and 1, not {self.holdout:g}.")
        if self.jackknife_groups == 1:
            raise typer.BadParameter("--jackknife-groups must be 2 or more, or 0 for no intervals.")


def fit(
    log: Log,
    fitting: Fitting,
    output: Annotated[options.Output, options.only("json", "html")],
    columns: LogColumns,
    running: Annotated[options.Running, options.only("threads", "seed")],
) -> None:
    """Fit a click model: its parameters with intervals, and its likelihood on held-out sessions.

    For example:

    \b
      toprank clicks fit log.parquet --click-model DBN
      toprank clicks fit log.parquet --compare --html models.html
    """
    from toprank.clicks import compare_models
    from toprank.clicks.model_comparison import MODELS, RATES, model_named

    common.check_writable(output.html)
    fitting.check()
    kind, seed = model_named(fitting.click_model), running.seed
    prior_counts = None if fitting.prior is None else _prior(fitting.prior)
    click_log = read_log(log, columns)
    if fitting.drop_duplicate_positions and click_log.has_duplicate_positions.any():
        dropped = int(click_log.has_duplicate_positions.sum())
        common.say(f"{dropped:,} sessions with several documents at one position are dropped.")
        click_log = click_log.select(~click_log.has_duplicate_positions)
    kinds = list(MODELS.values()) if fitting.compare else list(dict.fromkeys([kind, *RATES]))
    with common.progress("Fitting …"):
        models = [each(prior=prior_counts) for each in kinds]
        judged = compare_models(click_log, models, holdout=fitting.holdout, seed=seed)
        fitted = kind(prior=prior_counts).fit(click_log, threads=running.threads)
        with_intervals = kind.shared and fitting.jackknife_groups
        ends = fitted.intervals(click_log, groups=fitting.jackknife_groups, seed=seed) if with_intervals else {}

    def write(html: Path) -> None:
        from toprank.clicks import check as report_on
        from toprank.report.clicks import clicks_page
        from toprank.report.page import write_page

        write_page(html, clicks_page(report_on(click_log, seed=seed), log[0].name, judged))

    output.write(write)
    if output.json:
        common.print_json({**_parameters(fitted, ends), **judged.to_dict()})
        return
    typer.echo(_parameters_text(fitted, ends))
    typer.echo(f"\n{judged}")


def _prior(text: str) -> tuple[float, float]:
    wanted = "--prior takes two numbers, clicks and skips"
    numbers = _by_position(text, wanted)
    if len(numbers) != 2:
        raise typer.BadParameter(f"{wanted}, not '{text}'.")
    return numbers[0], numbers[1]


def _parameters(fitted: ClickModel, ends: dict[str, Interval[Any]]) -> dict[str, Any]:
    values = {
        name: ends[name].to_dict() if name in ends else {"value": value.tolist()}
        for name, value in fitted.parameters_.items()
    }
    return {"model": type(fitted).__name__, "prior": list(fitted.prior_), "parameters": values}


def _parameters_text(fitted: ClickModel, ends: dict[str, Interval[Any]]) -> str:
    """Return the shared parameters with intervals as text; for the browsing model only those without a click above."""
    from toprank.display.tables import Table, bracketed

    paragraphs = [str(fitted) if not ends else str(fitted).partition("\n")[0]]
    for name, interval in ends.items():
        columns = (interval.value, interval.low, interval.high)
        if interval.value.ndim == 2:
            columns = tuple(column[:, 0] for column in columns)
            paragraphs.append("Without a click above (--json has all):")
        rows = [(str(k + 1), f"{v:.3f}", bracketed(a, b)) for k, (v, a, b) in enumerate(zip(*columns, strict=True))]
        paragraphs.append(Table(("number", name, "95% interval"), rows, names=0).text())
    return "\n\n".join(paragraphs)


@dataclass(frozen=True)
class Users:
    """The simulated users, and the lists that they see."""

    click_model: Annotated[str, typer.Option(help="How users click: PBM, UBM, Cascade, DCM, SDBN, DBN or CCM.")] = "PBM"
    examination: Annotated[
        str | None,
        typer.Option(
            help="P(examined), such as 1,0.5,0.3; by position for PBM, by the distance to the last click for UBM. "
            "Default: 1 / position."
        ),
    ] = None
    continuation: Annotated[
        str | None,
        typer.Option(
            help="P(continue): one number for DBN; by position for DCM; after a skip, a click and a good click for CCM."
        ),
    ] = None
    sessions: Annotated[int, typer.Option(min=1, help="Number of lists to show.")] = 10_000
    k: Annotated[int, typer.Option(min=1, help="Documents in each list.")] = 10
    noise: Annotated[float, typer.Option(help="P(click | examined, irrelevant).")] = 0.1
    trust: Annotated[
        str | None,
        typer.Option(help="P(click | examined, irrelevant) by position, such as 0.4,0.3,0.2, instead of --noise."),
    ] = None
    exploration: Annotated[float, typer.Option(help="Fraction of sessions with a randomized list.")] = 0.0
    exploration_method: Annotated[
        str,
        typer.Option(help="Randomization of lists: shuffle; swap the first with another; or swap two neighbors."),
    ] = "shuffle"
    zipf_exponent: Annotated[float, typer.Option(help="Frequency of query i is 1 / i^zipf_exponent.")] = 0.0
    relevance_shuffle: Annotated[
        float, typer.Option(help="Fraction of the documents of a query whose relevance is shuffled.")
    ] = 0.0


def simulate(
    data: Annotated[Path, typer.Argument(help="Labeled data; labels determine clicks.")],
    scores: Annotated[
        list[Path],
        typer.Argument(metavar="SCORES...", help="Score files of the rankers; sessions alternate between them."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the log: .parquet, .arrow, .csv.")],
    users: Users,
    read: Annotated[reading.ReadOptions, options.only("label", "qid", "document_id", "features", "metadata")],
    seed: options.Seed = 0,
) -> None:
    """Simulate clicks on rankings by users who follow a click model, and write the log.

    For example:

    \b
      toprank clicks simulate test.txt bm25.scores model.scores -o log.parquet --examination 1,0.5,0.3 --k 3
      toprank clicks simulate test.txt bm25.scores -o log.csv --click-model DBN --continuation 0.8 --exploration 0.1
    """
    from toprank.clicks import simulate as simulated
    from toprank.clicks import write
    from toprank.clicks.files import written_as
    from toprank.data.scores import read_scores

    common.check_writable(output, "log.parquet")
    written_as(output)
    model = _simulated_users(users.click_model, users.examination, users.continuation, users.k)
    believed = _probabilities(users.trust, "--trust") if users.trust else None
    if believed is not None and len(believed) < users.k:
        raise typer.BadParameter(f"--trust has {len(believed)} numbers, but --k is {users.k}. Give one per position.")
    documents = common.read_data(data, options.keywords_of(read))
    names = [path.stem for path in scores]
    if len(set(names)) < len(names):
        raise typer.BadParameter("two score files have the same name, which is used for the ranker. Rename one.")
    rankings = {path.stem: read_scores(path, documents.n_documents) for path in scores}
    with common.progress("Simulating …"):
        log = simulated(
            documents, rankings, model, users.sessions, k=users.k, noise=users.noise, exploration=users.exploration,
            trust=None if believed is None else ([1.0] * len(believed), believed),
            exploration_method=cast(Any, users.exploration_method),
            zipf_exponent=users.zipf_exponent, relevance_shuffle=users.relevance_shuffle, seed=seed, order="source",
        )  # fmt: skip
    write(log, output)
    common.say(f"{output}: {log}")


def _simulated_users(name: str, examination: str | None, continuation: str | None, k: int) -> ClickModel:
    """Return the requested click model."""
    from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, UBM, Cascade
    from toprank.clicks.model_comparison import model_named

    kind, looks = model_named(name), (PBM, UBM)
    if (examination is not None and kind not in looks) or (continuation is not None and kind not in (DBN, DCM, CCM)):
        raise typer.BadParameter("--examination belongs to PBM and UBM, --continuation to DBN, DCM and CCM.")
    if kind in looks:
        by_rank = [1 / place for place in range(1, k + 1)]
        looked = _probabilities(examination, "--examination") if examination else by_rank
        if len(looked) < k:
            raise typer.BadParameter(f"--examination has {len(looked)} numbers, but --k is {k}. Give one per position.")
        below = [[looked[place - click] if click <= place else 0.0 for click in range(k + 1)] for place in range(k)]
        return PBM.from_parameters(looked) if kind is PBM else UBM.from_parameters(below)
    if kind is SDBN or kind is Cascade:
        return kind()
    numbers = _probabilities(continuation, "--continuation") if continuation else []
    if kind is DBN and len(numbers) <= 1:
        return DBN.from_parameters(*numbers)
    if kind is DCM and len(numbers) >= k:
        return DCM.from_parameters(numbers)
    if kind is CCM and len(numbers) == 3:
        return CCM.from_parameters(numbers)
    wanted = {DBN: "one number", DCM: f"{k} numbers, one for each position", CCM: "three numbers"}
    if kind not in wanted:
        raise typer.BadParameter(f"--click-model takes PBM, UBM, Cascade, DCM, SDBN, DBN or CCM, not {kind.__name__}.")
    raise typer.BadParameter(f"{kind.__name__} needs --continuation with {wanted[kind]}.")


def _probabilities(text: str, option: str) -> list[float]:
    wanted = f"{option} takes probabilities, separated by commas"
    numbers = _by_position(text, wanted)
    if not all(0 <= number <= 1 for number in numbers):
        raise typer.BadParameter(f"{wanted}, not '{text}'.")
    return numbers


def _by_position(text: str, wanted: str) -> list[float]:
    """Parse numbers whose position matters; reject empty items, which would shift the following ones."""
    numbers = options.numbers_of(text, float, wanted)
    if len(numbers) <= text.count(","):
        raise typer.BadParameter(f"{wanted}, not '{text}'.")
    return numbers


Confidence = Annotated[float, typer.Option(help="Confidence level of the interval, over all looks together.")]


def interleaving(
    log: Log,
    output: options.JsonOutput,
    columns: LogColumns,
    confidence: Confidence = 0.95,
) -> None:
    """Compare two interleaved models by clicks, with an always-valid interval.

    The unit is the query. The command also checks that both models began equally many lists.

    For example:

    \b
      toprank clicks interleaving log/
      toprank clicks interleaving log/ --json
    """
    from toprank.clicks import interleaving_test

    output.show(interleaving_test(read_log(log, columns), confidence=confidence))


@dataclass(frozen=True)
class Arms:
    """Options of the comparison of arms."""

    metric: Annotated[str, typer.Option(help="The reward per unit: click or value.")] = "click"
    arms: Annotated[
        str | None,
        typer.Option(help="The new and the current arm, such as new,old. Default: the larger arm is the current one."),
    ] = None
    confidence: Confidence = 0.95


def ab_test(
    log: Log,
    compared: Arms,
    output: options.JsonOutput,
    columns: LogColumns,
) -> None:
    """Compare the arms of an A/B test, with an always-valid interval and a check for sample ratio mismatch.

    The unit is the key of a request, such as a user.

    For example:

    \b
      toprank clicks ab-test log/
      toprank clicks ab-test log/ --metric value --values purchase=value
    """
    from toprank.clicks import ab_test as compare_arms

    names = None if compared.arms is None else options.words_of(compared.arms)
    if names is not None and len(names) != 2:
        raise typer.BadParameter(f"--arms takes two names, of the new and the current arm, not '{compared.arms}'.")
    output.show(compare_arms(read_log(log, columns), compared.metric, arms=names, confidence=compared.confidence))


COMMANDS: tuple[Callable[..., None], ...] = (check, fit, simulate, train, evaluate, interleaving, ab_test)
