"""Simulation of sessions and clicks from click models, to test estimators against known users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import ClickLog, unclicked
from toprank.clicks.models import ClickModel
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData, check_data
from toprank.data.queries import Queries, positions_within
from toprank.data.row_order import Order
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.sorting import ranking

_EXPLORATION_METHODS = ("shuffle", "swap", "neighbors")


def simulate(
    data: RankingData,
    scores: npt.ArrayLike | Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike],
    model: ClickModel | Mapping[str, ClickModel],
    sessions: int = 10_000,
    *,
    k: int = 10,
    relevance: npt.ArrayLike | None = None,
    satisfaction: npt.ArrayLike | None = None,
    noise: float = 0.1,
    trust: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    relevance_shuffle: float = 0.0,
    exploration: float = 0.0,
    exploration_method: Literal["shuffle", "swap", "neighbors"] = "shuffle",
    zipf_exponent: float = 0.0,
    context: str = "context",
    shares: npt.ArrayLike | None = None,
    layout: Sequence[tuple[str, int]] | None = None,
    seed: int = 0,
    order: Order | None = None,
) -> ClickLog:
    """Simulate a click log: show the top of rankings to users who follow a click model.

    Args:
        data: queries. Labels determine the relevance unless `relevance` is given.
        scores: scores to rank by. With several rankers, as a mapping or a list, each session draws one.
        model: a click model with given shared parameters (``PBM.from_parameters([1, 0.5, 0.3])``), a fitted one, or a
            mapping from contexts to models, such as ``{"phone": …, "desktop": …}``; each session draws one.
        sessions: number of lists to show.
        k: number of documents in a list.
        relevance: P(relevant) of each document, in the order of `scores`. Default: (2^y - 1) / (2^max - 1).
        satisfaction: P(satisfied | clicked) of each document, in the same order. Default: the relevance.
        noise: P(click | examined, not relevant), so that attraction is noise + (1 - noise) × relevance.
        trust: P(click | examined, relevant) and P(click | examined, not relevant) at each position, instead of `noise`,
            for users with trust bias.
        relevance_shuffle: weight, between 0 and 1, of a random permutation of the relevance within each query, for
            users who disagree with the labels.
        exploration: fraction of sessions whose list is randomized.
        exploration_method: how these lists are randomized: ``shuffle`` shows the top k in random order, ``swap``
            exchanges the first document with a random other one, ``neighbors`` exchanges two random neighbors.
        zipf_exponent: exponent of the query frequencies 1 / (i + 1)^zipf_exponent, with queries in random order.
        context: column of the log for the name of the drawn model, or for the context of a place in `layout`.
        shares: probabilities of several models, as one row or one row per query. Default: equal.
        layout: places of the documents of a list, as pairs of a context and a position: the rows and columns of a grid,
            or modules of a page. The model sees ranks in the list.
        seed: seed of all random draws.
        order: row order of scores, relevance and satisfaction; see `RankingData.aligned`.

    Returns:
        a log with the columns ``ranker`` (its name or number) and ``explored``.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=20, seed=0)
    >>> users = tr.clicks.PBM.from_parameters([1, 0.5, 0.25])
    >>> tr.clicks.simulate(data, data.X[:, 0], users, sessions=100, k=3).n_impressions
    300
    """
    check_data("simulate", data)
    check_whole("sessions", sessions, 1)
    check_whole("k", k, 1)
    for name, value in (("noise", noise), ("relevance_shuffle", relevance_shuffle), ("exploration", exploration)):
        check_number(name, value, least=0, most=1)
    check_number("zipf_exponent", zipf_exponent, least=0)
    if exploration_method not in _EXPLORATION_METHODS:
        raise UnknownNameError("exploration method", exploration_method, _EXPLORATION_METHODS)
    if isinstance(model, Mapping) and layout is not None:
        raise DataError("Pass either several models or a layout, not both: each needs the context column.")
    rng = np.random.default_rng(seed)
    names, lists = _rankings(scores, data, k, order)
    liked = _of_rows(relevance, data, "relevance", order) if relevance is not None else relevance_of(data)
    liked = _shuffle_relevance(liked, data.queries, relevance_shuffle, rng)
    enough = liked if satisfaction is None else _of_rows(satisfaction, data, "satisfaction", order)
    log = _lists(data, (names, lists), sessions, k, zipf_exponent, (exploration, exploration_method), rng)
    rows = log.pair
    attraction = _attraction(liked[rows], log.position - 1, noise, trust)
    if isinstance(model, Mapping):
        log = _clicked_by_several(log, model, (context, shares), attraction, enough[rows], rng)
    else:
        _check_users(model, log.depth)
        log = replace(log, clicks=model.sample_clicks(log, attraction, enough[rows], rng))
    return log if layout is None else _laid_out(log, context, layout)


def _lists(
    data: RankingData, rankings: tuple[list[str], list[IntArray]], sessions: int, k: int, zipf_exponent: float,
    exploration: tuple[float, str], rng: np.random.Generator,
) -> ClickLog:  # fmt: skip
    """Draw the query and the ranker of each session, and show the ranker's top k or a randomized list."""
    (names, lists), (share, exploration_method) = rankings, exploration
    chance = 1 / np.arange(1, data.n_queries + 1) ** zipf_exponent
    query = rng.choice(rng.permutation(data.n_queries), sessions, p=chance / chance.sum())
    ranker, explored = rng.integers(0, len(lists), sessions), rng.random(sessions) < share
    sizes = np.minimum(data.queries.sizes, k)
    session, place = np.repeat(np.arange(sessions), sizes[query]), positions_within(sizes[query])
    shown = _explored(place, session, sizes[query], explored, exploration_method, rng)
    rows = np.stack(lists)[ranker[session], (np.cumsum(sizes) - sizes)[query][session] + shown]
    columns = {"ranker": np.array(names)[ranker[session]], "explored": explored[session]}
    return unclicked(data, query, sizes[query], rows, columns)


def _clicked_by_several(
    log: ClickLog, models: Mapping[str, ClickModel], drawn: tuple[str, npt.ArrayLike | None], attraction: FloatArray,
    enough: FloatArray, rng: np.random.Generator,
) -> ClickLog:  # fmt: skip
    """Draw a model for each session, sample its clicks, and record the model in a column."""
    context, names = drawn[0], np.array([str(name) for name in models])
    chances = np.ones(len(names)) if drawn[1] is None else np.asarray(drawn[1], dtype=np.float64)
    if chances.shape not in ((len(names),), (log.n_queries, len(names))) or not (
        np.isfinite(chances).all() and (chances >= 0).all() and (chances.sum(axis=-1) > 0).all()
    ):
        raise DataError(
            f"shares must be a nonnegative number for each of the {len(names)} models, or a row of them for each of "
            f"the {log.n_queries:,} queries, with a positive sum."
        )
    ends = np.broadcast_to(np.cumsum(chances, axis=-1), (log.n_queries, len(names)))[log.session_query]
    kind = (rng.random(log.n_sessions)[:, None] * ends[:, -1:] >= ends[:, :-1]).sum(axis=1)
    clicks = np.zeros(log.n_impressions, dtype=bool)
    for number, model in enumerate(models.values()):
        of_model = kind == number
        if of_model.any():
            _check_users(model, log.depth)
            rows = of_model[log.session]
            clicks[rows] = model.sample_clicks(log.select(of_model), attraction[rows], enough[rows], rng)
    return replace(log, clicks=clicks, columns={**log.columns, context: names[kind][log.session]})


def _laid_out(log: ClickLog, context: str, layout: Sequence[tuple[str, int]]) -> ClickLog:
    """Replace the rank of each document by its place in the layout: a context and a position."""
    if len(layout) < log.depth or len(set(layout)) < len(layout):
        raise DataError(f"layout needs a different place for each of the {log.depth} documents of a list.")
    names = np.array([str(name) for name, _ in layout])
    position = np.array([place for _, place in layout], dtype=np.int64)
    if (position < 1).any():
        raise DataError("Positions of a layout must be 1 or larger.")
    place = log.position - 1
    order = np.lexsort((log.pair, position[place], log.session))
    laid_out = replace(log, columns={**log.columns, context: names[place]})
    return laid_out.take(order, position=position[place][order])


def _check_users(model: ClickModel, depth: int) -> None:
    """Raise an error unless the shared parameters of the model are known for all positions."""
    if not isinstance(model, ClickModel):
        raise DataError(
            f"model must be a click model, such as tr.clicks.PBM.from_parameters([1, 0.5, 0.3]), not {model!r:.60}."
        )
    name = type(model).__name__
    for parameter in model.shared:
        values = np.atleast_1d(np.asarray(getattr(model, f"{parameter}_", np.nan), dtype=np.float64))
        known = np.isfinite(values) & (values >= 0) & ((values <= 1) | hasattr(model, "attraction_"))
        if not known.all():
            raise DataError(
                f"The {parameter} of this {name} must be probabilities; pass them to {name}.from_parameters(…), or fit "
                "the model."
            )
        needed = {"GlobalCTR": 1, "DBN": 1, "CCM": 3}.get(name, depth)
        if len(values) < needed:
            raise DataError(f"The {parameter} of this {name} has {len(values)} numbers; {needed} are needed.")


def relevance_of(data: RankingData) -> FloatArray:
    """Return the relevance of each document to users who agree with the labels, (2^y - 1) / (2^max - 1)."""
    if not data.judged.all():
        raise DataError("Some documents have no labels to simulate users from; pass relevance=.")
    gain = 2.0**data.labels - 1
    return gain / max(float(gain.max()), 1e-300)


def _rankings(scores: Any, data: RankingData, k: int, order: Order | None) -> tuple[list[str], list[IntArray]]:
    """Return the names of the rankers, and the top k of all queries by each ranker, concatenated."""
    if isinstance(scores, Mapping):
        names, columns = [str(name) for name in scores], list(scores.values())
    else:
        columns = (
            list(scores)
            if isinstance(scores, list | tuple) and all(np.ndim(column) == 1 for column in scores)
            else [scores]
        )
        names = [str(number) for number in range(len(columns))]
    if not columns:
        raise DataError("scores is empty; pass the scores of at least one ranker.")
    lists = []
    for column in columns:
        ranked = ranking(np.asarray(data.aligned(column, order), dtype=np.float64), data.queries, k)
        lists.append(ranked.order[positions_within(np.diff(ranked.starts)) < k])
    return names, lists


def _of_rows(values: npt.ArrayLike, data: RankingData, name: str, order: Order | None) -> FloatArray:
    array = np.asarray(data.aligned(values, order), dtype=np.float64)
    if array.shape != (data.n_documents,) or not ((array >= 0) & (array <= 1)).all():
        raise DataError(f"{name} must be a probability for each of the {data.n_documents:,} documents.")
    return array


def _shuffle_relevance(relevance: FloatArray, queries: Queries, share: float, rng: np.random.Generator) -> FloatArray:
    if share == 0:
        return relevance
    mixed = np.lexsort((rng.random(len(relevance)), queries.document_query))
    return (1 - share) * relevance + share * relevance[mixed]


def _explored(
    place: IntArray, session: IntArray, sizes: IntArray, explored: npt.NDArray[np.bool_], exploration_method: str,
    rng: np.random.Generator,
) -> IntArray:  # fmt: skip
    """Return the rank of the document that is shown at each place."""
    if not explored.any():
        return place
    if exploration_method == "shuffle":
        key = np.where(explored[session], rng.random(len(place)), place)
        order = np.lexsort((key, session))
        return place[order]
    other = np.where(explored & (sizes > 1), 1 + rng.integers(0, np.maximum(sizes - 1, 1)), 0)[session]
    first = np.maximum(other - 1, 0) if exploration_method == "neighbors" else np.zeros_like(other)
    return np.where(place == first, other, np.where(place == other, first, place))


def _attraction(
    liked: FloatArray, place: IntArray, noise: float, trust: tuple[npt.ArrayLike, npt.ArrayLike] | None
) -> FloatArray:
    if trust is None:
        return noise + (1 - noise) * liked
    right, wrong = (np.asarray(side, dtype=np.float64) for side in trust)
    for side in (right, wrong):
        if side.ndim != 1 or len(side) <= place.max() or not ((side >= 0) & (side <= 1)).all():
            raise DataError(f"trust must be two rows of {place.max() + 1} probabilities, one per position.")
    return np.asarray(right[place] * liked + wrong[place] * (1 - liked))
