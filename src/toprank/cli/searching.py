"""`toprank search`: index a collection, train and evaluate the order of what it finds, and ask it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from toprank.cli import common, options, serving
from toprank.cli.vectors import QueryVectors, vectors_of_documents, vectors_of_queries
from toprank.errors import count_of
from toprank.serving.settings import Settings

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="A folder that `toprank search index` made.")]
Queries = Annotated[
    Path | None,
    typer.Option(
        help="Queries: JSON lines, SMART, TREC topics, or lines of id, tab, words. Default: the collection's own."
    ),
]
Qrels = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Judgments: TREC, BEIR or Cranfield; or the name of a part of the collection's own, such as test.",
    ),
]
Candidates = Annotated[
    int | None, typer.Option("--n-candidates", min=1, help="Candidates per query. Default: as the index was made.")
]
_OF_MODELS = ("shadow", "interleave", "split", "log_features", "max_documents")
"""Settings of a service that do nothing here, where requests bring no documents to be ranked by a model."""


@dataclass(frozen=True)
class Indexing:
    """What is indexed, and how candidates are found."""

    fields: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Fields to index. Default: all text fields.")
    ] = None
    weights: Annotated[
        str | None, typer.Option(metavar="FIELD=N,...", help="How much a word counts in these fields; 1 in all others.")
    ] = None
    first_stage: Annotated[
        str, typer.Option(help="The engine that finds candidates: sqlite, or tantivy (needs toprank[search]).")
    ] = "sqlite"
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Use a run of another engine as the first stage instead. May be given several times."),
    ] = None
    n_candidates: Annotated[int, typer.Option(min=1, help="Candidates per query, which the learned order ranks.")] = 200
    vectors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Vectors of the documents, from any model: .npy with one row per document, in order, or .npz with ids "
            "and vectors. NAME is the file's name by default. May be given several times.",
        ),
    ] = None
    language: Annotated[
        str | None,
        typer.Option(help="Language for stemming and stop words, by its Snowball name, or none. Default: detected."),
    ] = None


def index(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of text, Markdown or HTML; JSON lines; a collection in the layout of BEIR, SMART or TREC; "
            "or python-docs: the documentation of this Python. Default: python-docs.",
            show_default=False,
        ),
    ] = "python-docs",
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="INDEX", help="The folder to write; an index that is there is replaced."
        ),
    ] = Path("search-index"),
    *,
    indexing: Indexing,
    seed: options.Seed = 0,
) -> None:
    """Index a collection of documents: one folder that can be searched, trained and evaluated.

    For example:

    \b
      toprank search index -o python.index
      toprank search index notes/ -o notes.index
      toprank search index scifact/ -o scifact.index --weights title=2
      toprank search index corpus.jsonl -o corpus.index --run bm25.run --run dense.run
      toprank search index corpus.jsonl -o corpus.index --vectors minilm=documents.npy
    """
    from toprank.search import index as make
    from toprank.search.storage import MODEL

    runs = None
    if indexing.run:
        from toprank.data.trec import read_run

        common.refuse_twice(indexing.run)
        runs = options.runs_by_name({path: read_run(path) for path in indexing.run})
    trained = (output / MODEL).exists()
    with common.progress(f"Indexing {source} …"):
        made = make(
            source,
            output,
            fields=options.words_of(indexing.fields) if indexing.fields else None,
            weights=dict(map(_weight_of, options.words_of(indexing.weights or ""))),
            first_stage=indexing.first_stage if runs is None else runs,
            n_candidates=indexing.n_candidates,
            vectors=vectors_of_documents(indexing.vectors),
            language=indexing.language,
            seed=seed,
        )
    typer.echo(
        f"{output}: {count_of(len(made), 'document')} of {made.name}, fields {', '.join(made.documents.fields)}."
    )
    for note in made.notes:
        common.say(note)
    if trained:
        common.say("The model of the index that was there is gone with it, since it knew other documents. Train again.")
    if made.topics is not None and made.judgments:
        common.say(f"It brings {len(made.topics):,} queries and their judgments: toprank search train {output}")


def _weight_of(part: str) -> tuple[str, float]:
    """Split FIELD=N."""
    name, _, number = part.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise typer.BadParameter(f"--weights takes FIELD=N, not '{part}'.") from None


@dataclass(frozen=True)
class QueryOptions:
    """Queries and their judgments."""

    queries: Queries = None
    qrels: Qrels = None


@dataclass(frozen=True)
class Learned:
    """The system that learns, and the clicks that may take the place of judgments."""

    clicks: Annotated[
        Path | None,
        typer.Option(help="Learn from a log of clicks instead, whose queries are words, or ids of --queries."),
    ] = None
    values: Annotated[
        str | None,
        typer.Option(
            help="What each kind of event of --clicks counts, such as click=1,like=3,dislike=-1. Default: clicks alone."
        ),
    ] = None
    system: Annotated[
        str,
        typer.Option(
            help="What to train: blend (a linear ranker and small trees; ListNet with --clicks), or any of `toprank "
            "systems`."
        ),
    ] = "blend"
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to choose hyper-parameters by; not with --clicks. Default: ndcg@10."),
    ] = None
    n_candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Candidates per query, now and in every later search. Default: as the index was made; with "
            "--clicks, as deep as the log's lists reach.",
        ),
    ] = None
    query_vectors: QueryVectors = None
    settings: options.Settings = None

    def check(self, qrels: str | None) -> None:
        """Refuse options of judgments beside clicks."""
        if self.clicks is not None:
            given = (("--qrels", qrels), ("--metric", self.metric), ("--query-vectors", self.query_vectors))
            for name, value in given:
                if value is not None:
                    raise typer.BadParameter(
                        f"{name} goes with judgments, and --clicks are none; leave one of them out."
                    )
        elif self.values is not None:
            raise typer.BadParameter("--values say what the events of a log count; give the log by --clicks.")


def train(
    folder: Folder,
    judgments: QueryOptions,
    learned: Learned,
    output: options.JsonOutput,
    running: options.Training,
) -> None:
    """Learn the order of candidates from judgments or clicks; the model is kept in the index.

    For example:

    \b
      toprank search train python.index
      toprank search train cran.index --queries cran.qry --qrels cranqrel --system LambdaMART
      toprank search train shop.index --clicks clicks.parquet
      toprank search train python.index --clicks used/ --values click=1,like=3,dislike=-1
      toprank search train corpus.index --queries q.jsonl --qrels q.qrels --query-vectors queries.npy
    """
    learned.check(judgments.qrels)
    opened = _opened(folder)
    with common.progress("Training …"):
        trained = (_train if learned.clicks is None else _train_on_clicks)(opened, judgments, learned, running)
    output.show(trained)
    common.say(f"{folder}: the model is in the index; toprank search query {folder} WORDS")


def _train(opened: Any, judgments: QueryOptions, learned: Learned, running: options.Running) -> Any:
    return opened.train(
        judgments.queries,
        judgments.qrels,
        learned.system,
        metric=learned.metric or "ndcg@10",
        n_candidates=learned.n_candidates,
        vectors=vectors_of_queries(opened, learned.query_vectors),
        seed=running.seed,
        threads=running.threads,
        **options.settings_of(learned.settings),
    )


def _train_on_clicks(opened: Any, judgments: QueryOptions, learned: Learned, running: options.Running) -> Any:
    from toprank.clicks import read

    fixed = options.settings_of(learned.settings)
    ranker = _for_clicks("ListNet" if learned.system == "blend" else learned.system, fixed, running)
    log, reward = read(learned.clicks, values=learned.values), "click" if learned.values is None else "value"
    return opened.train_on_clicks(
        log, judgments.queries, system=ranker, n_candidates=learned.n_candidates, reward=reward
    )


@dataclass(frozen=True)
class ComparedSystems:
    """The systems that are compared, and how."""

    systems: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="bm25 (the first stage), lsa, rrf, blend, model, the name of a run, or any of `toprank systems`. "
            "Default: bm25,lsa,rrf,blend.",
        ),
    ] = None
    metrics: options.Metrics = "ndcg@10,map"
    convention: options.ConventionName = "trec_eval"
    baseline: Annotated[
        str | None, typer.Option(help="Compare the others with this one. Default: the last system with all others.")
    ] = None
    n_candidates: Candidates = None
    query_vectors: QueryVectors = None
    folds: Annotated[int, typer.Option(min=3, help="Number of folds of queries, for learned systems.")] = 5
    runs: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write the run of each system here.")
    ] = None


def evaluate(
    folder: Folder,
    judgments: QueryOptions,
    compared: ComparedSystems,
    output: options.JsonOutput,
    running: options.Training,
) -> None:
    """Compare systems on judged queries, with statistics; learned systems rank queries that they have not seen.

    For example:

    \b
      toprank search evaluate python.index
      toprank search evaluate cran.index --queries cran.qry --qrels cranqrel --systems bm25,lsa,rrf,LambdaMART --json
    """
    opened = _opened(folder)
    with common.progress("Evaluating …"):
        evaluation = opened.evaluate(
            judgments.queries,
            judgments.qrels,
            None if compared.systems is None else options.words_of(compared.systems),
            metrics=compared.metrics,
            convention=compared.convention,
            baseline=compared.baseline,
            n_candidates=compared.n_candidates,
            vectors=vectors_of_queries(opened, compared.query_vectors),
            folds=compared.folds,
            seed=running.seed,
            threads=running.threads,
        )
    if compared.runs is not None:
        from toprank.data.trec import write_run

        compared.runs.mkdir(parents=True, exist_ok=True)
        for name, run in evaluation.runs.items():
            write_run(run, compared.runs / f"{name}.run")
    output.show(evaluation)


def query(
    folder: Folder,
    words: Annotated[list[str], typer.Argument(help="The query, in plain words: there is no query syntax.")],
    k: Annotated[int, typer.Option("-k", "--top", min=1, help="Number of documents.")] = 10,
    no_rerank: Annotated[
        bool, typer.Option("--no-rerank", help="Keep the order of the first stage, even if a model is trained.")
    ] = False,
    query_vectors: QueryVectors = None,
    *,
    output: options.JsonOutput,
) -> None:
    """Search an index: the best documents for a query, with the passage that says why.

    For example:

    \b
      toprank search query python.index read a csv file
    """
    opened = _opened(folder)
    vectors = vectors_of_queries(opened, query_vectors)
    output.show(opened.search(" ".join(words), k, rerank=not no_rerank, vectors=vectors))


def serve(
    folder: Folder,
    settings: Annotated[Settings, options.without(*_OF_MODELS)],
    quiet: serving.Quiet = False,
) -> None:
    """Open the search page of an index on this machine, until SIGTERM or Ctrl-C.

    The page shows the learned order beside the first stage's, and says how far each document moved and why. With --log,
    the documents that people open or judge on the page are logged, and the index can be trained on that log. When the
    index is rebuilt or retrained, the page picks up the new one by itself.

    For example:

    \b
      toprank search serve python.index
      toprank search serve python.index --log used/ --explore swap-neighbors:0.1
      toprank search train python.index --clicks used/
    """
    from toprank.serving import check_installed

    check_installed()
    from toprank.search.serving import SearchService
    from toprank.serving.startup import start

    start([], settings, requests=not quiet, extension=lambda: SearchService(folder))


def _for_clicks(name: str, fixed: dict[str, Any], running: options.Running) -> Any:
    """Return a system that learns from clicks, with seed and threads if it has these parameters."""
    from toprank import systems

    known = systems.get(name).kind().get_params(deep=False)
    shared = {"seed": running.seed, "threads": running.threads}
    return systems.make(name, **{option: value for option, value in shared.items() if option in known} | fixed)


def _opened(folder: Path) -> Any:
    from toprank.search import open as open_index

    return open_index(folder)


COMMANDS: tuple[Callable[..., None], ...] = (index, train, evaluate, query, serve)
