"""`toprank search`: index a collection, train and evaluate reranking models, and run queries."""

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

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="Index folder created by `toprank search index`.")]
Queries = Annotated[
    Path | None,
    typer.Option(
        help="Query file: JSON lines, SMART, TREC topics, or lines of id, tab and text. Default: queries of the "
        "collection."
    ),
]
Qrels = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Judgments: a TREC, BEIR or Cranfield file, or a split of the collection, such as test.",
    ),
]
Candidates = Annotated[
    int | None,
    typer.Option("--n-candidates", min=1, help="Candidates per query. Default: the number set for the index."),
]
_MODEL_SETTINGS = ("shadow", "interleave", "split", "log_features", "max_documents")
"""Service settings without effect on search, since requests contain no documents to score."""


@dataclass(frozen=True)
class IndexOptions:
    """Options of the index and its first stage."""

    fields: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Fields to index. Default: all text fields.")
    ] = None
    weights: Annotated[
        str | None, typer.Option(metavar="FIELD=N,...", help="BM25 weights of fields. Default: 1 for every field.")
    ] = None
    first_stage: Annotated[
        str, typer.Option(help="First-stage engine: sqlite, or tantivy (needs toprank[search]).")
    ] = "sqlite"
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Use a run of another engine as first stage instead. May be repeated."),
    ] = None
    n_candidates: Annotated[int, typer.Option(min=1, help="First-stage candidates per query.")] = 200
    vectors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Document vectors of any embedding model: .npy with one row per document in order, or .npz with ids "
            "and vectors. Default NAME: the file name. May be repeated.",
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
            help="A folder of text, Markdown or HTML files; JSON lines; a collection in BEIR, SMART or TREC layout; or "
            "python-docs, the documentation of the running Python. Default: python-docs.",
            show_default=False,
        ),
    ] = "python-docs",
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="INDEX", help="Index folder to write; an existing index is replaced."),
    ] = Path("search-index"),
    *,
    indexing: IndexOptions,
    seed: options.Seed = 0,
) -> None:
    """Build a search index from a collection of documents.

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
    with common.progress(f"IndexOptions {source} …"):
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
        common.say("The replaced index had a model, which was removed with it. Train the new index.")
    if made.topics is not None and made.judgments:
        common.say(f"The collection has {len(made.topics):,} judged queries. Next: toprank search train {output}")


def _weight_of(part: str) -> tuple[str, float]:
    """Parse FIELD=N."""
    name, _, number = part.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise typer.BadParameter(f"--weights must be FIELD=N, not '{part}'.") from None


@dataclass(frozen=True)
class QueryOptions:
    """Options for queries and judgments."""

    queries: Queries = None
    qrels: Qrels = None


@dataclass(frozen=True)
class SearchTrainingOptions:
    """Options of the training."""

    clicks: Annotated[
        Path | None,
        typer.Option(help="Train on a click log instead of judgments. Its queries are texts, or ids of --queries."),
    ] = None
    values: Annotated[
        str | None,
        typer.Option(
            help="Values of event types in --clicks, such as click=1,like=3,dislike=-1. Default: clicks only."
        ),
    ] = None
    system: Annotated[
        str,
        typer.Option(
            help="System to train: blend (linear ranker and small trees; ListNet with --clicks), or any of `toprank "
            "systems`."
        ),
    ] = "blend"
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to choose hyperparameters by; not with --clicks. Default: ndcg@10."),
    ] = None
    n_candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Candidates per query, for training and every later search. Default: the number set for the index; "
            "with --clicks, down to the last candidate in the log.",
        ),
    ] = None
    query_vectors: QueryVectors = None
    settings: options.Settings = None

    def check(self, qrels: str | None) -> None:
        """Raise an error for options that need judgments if --clicks is given, and vice versa."""
        if self.clicks is not None:
            given = (("--qrels", qrels), ("--metric", self.metric), ("--query-vectors", self.query_vectors))
            for name, value in given:
                if value is not None:
                    raise typer.BadParameter(f"{name} cannot be combined with --clicks. Leave out one of the two.")
        elif self.values is not None:
            raise typer.BadParameter("--values needs a click log. Pass the log with --clicks.")


def train(
    folder: IndexFolder,
    judgments: QueryOptions,
    learned: SearchTrainingOptions,
    output: options.JsonOutput,
    running: options.Training,
) -> None:
    """Train a reranking model on judgments or clicks, and store it in the index.

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
    common.say(f"{folder}: model stored. Next: toprank search query {folder} WORDS")


def _train(opened: Any, judgments: QueryOptions, learned: SearchTrainingOptions, running: options.Running) -> Any:
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


def _train_on_clicks(
    opened: Any, judgments: QueryOptions, learned: SearchTrainingOptions, running: options.Running
) -> Any:
    from toprank.clicks import read

    fixed = options.settings_of(learned.settings)
    ranker = _for_clicks("ListNet" if learned.system == "blend" else learned.system, fixed, running)
    log, reward = read(learned.clicks, values=learned.values), "click" if learned.values is None else "value"
    return opened.train_on_clicks(
        log, judgments.queries, system=ranker, n_candidates=learned.n_candidates, reward=reward
    )


@dataclass(frozen=True)
class SearchEvaluationOptions:
    """Options of the evaluation."""

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
        str | None,
        typer.Option(
            help="System to compare all others with. Default: the last system is compared with each of the others."
        ),
    ] = None
    n_candidates: Candidates = None
    query_vectors: QueryVectors = None
    folds: Annotated[int, typer.Option(min=3, help="Number of cross-validation folds for trained systems.")] = 5
    runs: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the run of each system.")
    ] = None


def evaluate(
    folder: IndexFolder,
    judgments: QueryOptions,
    compared: SearchEvaluationOptions,
    output: options.JsonOutput,
    running: options.Training,
) -> None:
    """Compare systems on judged queries with significance tests; trained systems are cross-validated.

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
    folder: IndexFolder,
    words: Annotated[list[str], typer.Argument(help="Query text without operators.")],
    k: Annotated[int, typer.Option("-k", "--top", min=1, help="Number of documents.")] = 10,
    no_rerank: Annotated[
        bool, typer.Option("--no-rerank", help="Keep first-stage order, even if a model is trained.")
    ] = False,
    query_vectors: QueryVectors = None,
    *,
    output: options.JsonOutput,
) -> None:
    """Search an index; show the top documents with a matching passage.

    For example:

    \b
      toprank search query python.index read a csv file
    """
    opened = _opened(folder)
    vectors = vectors_of_queries(opened, query_vectors)
    output.show(opened.search(" ".join(words), k, rerank=not no_rerank, vectors=vectors))


def serve(
    folder: IndexFolder,
    settings: Annotated[Settings, options.without(*_MODEL_SETTINGS)],
    quiet: serving.Quiet = False,
) -> None:
    """Serve the search page of an index on this machine, until SIGTERM or Ctrl-C.

    The page shows the reranked list next to the first-stage list, with movements and explanations. With --log, opened
    and rated documents are logged, and the index can be trained on that log. A rebuilt or retrained index is reloaded
    automatically.

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
    """Create a system to train on clicks, with seed and threads if it has these parameters."""
    from toprank import systems

    known = systems.get(name).kind().get_params(deep=False)
    shared = {"seed": running.seed, "threads": running.threads}
    return systems.make(name, **{option: value for option, value in shared.items() if option in known} | fixed)


def _opened(folder: Path) -> Any:
    from toprank.search import open as open_index

    return open_index(folder)


COMMANDS: tuple[Callable[..., None], ...] = (index, train, evaluate, query, serve)
