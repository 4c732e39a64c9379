"""Files for the learning-to-rank plug-ins of Elasticsearch and OpenSearch: the body of a `_createmodel` request.

Trees are written as `model/xgboost+json`, linear functions as `model/linear`. The plug-ins test `threshold > x` in
single precision, so a threshold is the smallest number above LightGBM's. The direction of missing values depends on the
version of the server; a model is rejected if the server would send one to the other side than the model does, or if its
version is newer than the sources that these rules were read from.

OpenSearch 3.9 added `missing_as_zero`, an option of a model: missing values count as 0. It is off by default, as in our
models, so that the rule of 3.8 holds.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, dense_rows
from toprank.data.encoding import Level
from toprank.errors import DataError, Remedy, join_parts
from toprank.exporters.float32 import LARGEST_SINGLE, single_number, single_text, upper_single
from toprank.exporters.formats import Format, PreparedModel, compact_json, release
from toprank.exporters.interpreters import elastic
from toprank.exporters.interpreters.elastic import Missing
from toprank.exporters.levels import FEATURE_FILE, EngineModel, column_refusal, computed_features, level_columns
from toprank.exporters.splits import (
    Node,
    Split,
    filled_in,
    missing_is_zero,
    nodes,
    numbered_trees,
    unsupported_forest_reason,
)
from toprank.rankers.formula import Formula

_FEATURES = 10_000  # limit per model, in both plug-ins
# Testing for missing values first writes one side of a split twice: limit the growth in splits to this factor.
_GROWTH = 16
_LARGE = 10_000_000  # bytes: about the size of the caches of compiled models
_BLOCK_ROWS = 1 << 16  # rows of data checked at a time
_TITLES = {"elasticsearch": "Elasticsearch", "opensearch": "OpenSearch"}
Rules = frozenset[Missing]
_RULES: dict[str, tuple[tuple[tuple[int, int], Rules], ...]] = {
    # Possible treatment of missing values from each version on. Plug-ins for Elasticsearch 8.11 and 8.12 were built
    # before and after the change, and fixes of OpenSearch 3.8 may reach patch releases of 3.2 to 3.7.
    "elasticsearch": (((8, 13), Rules({"node"})), ((8, 11), Rules({"zero", "node"})), ((0, 0), Rules({"zero"}))),
    "opensearch": (((3, 8), Rules({"node"})), ((3, 2), Rules({"right", "node"})), ((0, 0), Rules({"zero"}))),
}
# The newest versions whose plug-ins' sources were read.
_NEWEST_KNOWN = {"elasticsearch": (9, 3), "opensearch": (3, 9)}
_WORDS: dict[Missing, str] = {
    "zero": "treats missing values as 0",
    "right": "sends every missing value to the right",
    "node": "sends missing values in the direction given by each split",
}


def missing_rules(engine: str, version: str | None) -> Rules:
    """Return the rules that a server of this version may apply to missing values; every known rule if it is None.

    Raises:
        DataError: the version is newer than the latest one with known rules.

    >>> sorted(missing_rules("opensearch", "3.5.0")), sorted(missing_rules("opensearch", None))
    (['node', 'right'], ['node', 'right', 'zero'])
    """
    if version is None:
        return frozenset().union(*(rules for _, rules in _RULES[engine]))
    number, newest = release(version), _NEWEST_KNOWN[engine]
    if number > newest:
        title, known = _TITLES[engine], ".".join(map(str, newest))
        raise DataError(
            f"{title} {version} is not supported: its rule for missing values is known up to {known}.",
            remedy=Remedy(
                f"If its plug-in still treats them like that of {known}, write the file for {{server_version}}.",
                server_version=known,
            ),
        )
    return next(rules for first, rules in _RULES[engine] if number >= first)


def _trees(formula: Formula, rules: Rules) -> list[Node] | None:
    """Return trees that are equivalent under all of these rules; None if no trees of reasonable size are."""
    trees = numbered_trees(formula)
    if "zero" in rules and not missing_is_zero(trees):
        return None
    if "right" not in rules:
        return trees
    room = count(_GROWTH * max(1, sum(1 for tree in trees for _ in nodes(tree))), -1)
    try:
        return [_missing_right(tree, frozenset(), frozenset(), room) for tree in trees]
    except OverflowError:
        return None


def _missing_right(node: Node, present: frozenset[int], missing: frozenset[int], room: count[int]) -> Node:
    """Return an equivalent tree whose splits all send missing values right, with a test for missing values if needed.

    Args:
        node: the original tree.
        present: features that have a value wherever this node is reached.
        missing: features that are missing.
        room: number of splits that may still be written.
    """
    if not isinstance(node, Split):
        return node
    feature = node.feature
    if feature in missing:
        return _missing_right(node.left if node.missing_left else node.right, present, missing, room)
    if next(room) <= 0:
        raise OverflowError
    left = _missing_right(node.left, present | {feature}, missing, room)
    if feature not in present and not node.missing_left:
        return node._replace(left=left, right=_missing_right(node.right, present, missing, room))
    right = _missing_right(node.right, present | {feature}, missing, room)
    with_value = node._replace(missing_left=False, left=left, right=right)
    if feature in present:
        return with_value
    without = _missing_right(node.left, present, missing | {feature}, room)
    return Split(feature, LARGEST_SINGLE, False, with_value, without)


def _what_servers_do(engine: str, server: str | None, anyone: str) -> str:
    """Describe how a server treats missing values; `anyone` names a server whose version is unknown."""
    does = " or ".join(_WORDS[rule] for rule in sorted(missing_rules(engine, server)))
    return f"{anyone if server is None else f'{_TITLES[engine]} {server}'} {does}"


def _refuses(engine: str, formula: Formula, server: str | None) -> str | None:
    rules, title = missing_rules(engine, server), _TITLES[engine]
    if formula.n_features > _FEATURES:
        return f"it has {formula.n_features:,} features, and {title} supports at most {_FEATURES:,}. Train on fewer."
    if formula.linear is not None:
        return None
    if (columns := level_columns(formula)) is not None:
        return column_refusal(columns) or _refuses(engine, columns.formula, server)
    if (reason := unsupported_forest_reason(formula, f"a model of {title}")) is not None:
        return reason
    if _trees(formula, rules) is not None:
        return None
    newest = ".".join(map(str, _RULES[engine][0][0]))
    remedy = (
        Remedy(
            "State its version, such as {server_version}: that and later versions support all of our trees.",
            server_version=newest,
        )
        if server is None
        else f"Use {title} {newest} or later, or train {filled_in(formula)} as in the index."
    )
    does = _what_servers_do(engine, server, "the server")
    return join_parts(f"its splits send missing values left and right, and {does}.", remedy)


def _files(model: EngineModel, rules: Rules) -> dict[str, bytes]:
    inner: dict[str, Any]
    formula = model.formula
    if model.linear is not None:
        pairs = zip(formula.features, model.linear.weights, strict=True)
        inner = {"type": "model/linear", "definition": compact_json({name: single_number(w) for name, w in pairs})}
        means = {name: mean for name, mean in zip(formula.features, model.linear.means, strict=True) if mean}
        if means:
            inner["feature_normalizers"] = {
                name: {"standard": {"mean": single_number(mean), "standard_deviation": 1.0}}
                for name, mean in means.items()
            }
    else:
        trees = _trees(formula, rules)
        assert trees is not None
        definition = (
            '{"objective":"rank:pairwise","splits":[' + ",".join(_tree(tree, formula.features) for tree in trees) + "]}"
        )
        inner = {"type": "model/xgboost+json", "definition": definition}
    body = {"model": {"name": formula.name, "model": inner}}
    return {
        "": compact_json(body).encode(),
        FEATURE_FILE: compact_json(_feature_set(model)).encode(),
        **model.levels.files,
    }


def _tree(tree: Node, names: tuple[str, ...]) -> str:
    quoted, numbers = [json.dumps(name, ensure_ascii=False) for name in names], count()

    def written(node: Node, number: int, depth: int) -> str:
        if not isinstance(node, Split):
            return f'{{"nodeid":{number},"leaf":{single_text(node)}}}'
        yes, no = next(numbers), next(numbers)
        children = f"{written(node.left, yes, depth + 1)},{written(node.right, no, depth + 1)}"
        return (
            f'{{"nodeid":{number},"depth":{depth},"split":{quoted[node.feature]},"split_condition":'
            f'{single_text(upper_single(node.threshold))},"yes":{yes},"no":{no},'
            f'"missing":{yes if node.missing_left else no},"children":[{children}]}}'
        )

    return written(tree, next(numbers), 0)


def _feature_set(model: EngineModel) -> dict[str, Any]:
    """Return a feature set: each feature reads the number in the field of its name, or the number of the level in it.

    A document without the field has no value; for a linear function it gets the number that replaces a missing value.
    """
    formula, linear = model.formula, model.linear

    def value_of(column: int, name: str) -> dict[str, Any]:
        if column in model.terms:
            return _number_of_term(*model.terms[column])
        factor: dict[str, Any] = {"field": name}
        query: dict[str, Any] = {"exists": {"field": name}}
        if linear is not None and linear.filled[column]:
            query, factor["missing"] = {"match_all": {}}, single_number(linear.filled[column])
        return {"function_score": {"query": query, "field_value_factor": factor, "boost_mode": "replace"}}

    features = [
        {"name": name, "params": [], "template_language": "mustache", "template": value_of(column, name)}
        for column, name in enumerate(formula.features)
    ]
    return {"featureset": {"name": formula.name, "features": features}}


def _number_of_term(field: str, numbers: dict[Level, int]) -> dict[str, Any]:
    """Return a query that matches all documents and scores them by the number of the term in a field, or by 0."""
    numbered = [{"filter": {"term": {field: term}}, "weight": number} for term, number in numbers.items()]
    score = {"functions": [*numbered, {"weight": 0}], "score_mode": "first", "boost_mode": "replace"}
    return {"function_score": {"query": {"match_all": {}}, **score}}


def _scores(rules: Rules, formula: Formula, path: Path, X: FloatArray, features: tuple[str, ...]) -> FloatArray:
    """Score rows as a server does with the files; NaN if the candidate servers differ."""
    text = path.read_text(encoding="utf-8")
    values, names = computed_features(elastic.feature_values, formula, path, X, features)
    first, *others = (elastic.score(text, values, names, rule).astype(np.float64) for rule in sorted(rules))
    agreed = np.logical_and.reduce([first == other for other in others] or [np.ones(len(first), dtype=bool)])
    return np.where(agreed, first, np.nan)


def _prepare(engine: str, formula: Formula, server: str | None, data: RankingData | None) -> PreparedModel:
    rules, title = missing_rules(engine, server), _TITLES[engine]
    model = EngineModel.of(formula)
    linear, files = model.linear, _files(model, rules)
    remarks = [
        f"{formula.name}{FEATURE_FILE} creates a feature set '{formula.name}' in which each feature reads the "
        "document field of the same name; replace features that are not fields with your own queries.",
        *model.feature_remarks(formula),
        *_negative(data, formula.features, title),
        *model.linear_remarks(),
    ]
    if linear is None:
        does = _what_servers_do(engine, server, f"{title} (any version)")
        remarks.append(f"{does}; the splits are written accordingly.")
    if (size := len(files[""])) > _LARGE:
        remarks.append(
            f"The model is {size / 1e6:.1f} MB; raise ltr.caches.max_mem, or it is compiled for every search."
        )
    return PreparedModel(
        formula=formula,
        files=files,
        score=partial(_scores, rules, formula),
        interpreter=f"the rules of {title}'s plug-in",
        remarks=tuple(remarks),
        # sums of huge terms exceed single precision
        excluded=frozenset() if linear is None else frozenset({"huge"}),
        single=True,
        texts=bool(formula.levels),
        constant=0.0 if linear is None else linear.constant,
    )


def _negative(data: RankingData | None, names: tuple[str, ...], title: str) -> list[str]:
    """Warn of negative features, which a query cannot return."""
    rule = f"{title} rejects negative query scores, so features must be 0 or more"
    if data is None:
        return [f"{rule}."]
    blocks = (
        dense_rows(data.X[first : first + _BLOCK_ROWS]) < 0.0 for first in range(0, data.n_documents, _BLOCK_ROWS)
    )
    rows = np.concatenate([block.any(axis=1) for block in blocks])
    if not rows.any():
        return []
    row = int(np.flatnonzero(rows)[0])
    column = names[int(np.flatnonzero(dense_rows(data.X[row : row + 1])[0] < 0.0)[0])]
    return [
        f"{rule}, but {int(rows.sum()):,} of {len(rows):,} rows of the data have negative features (the first is row "
        f"{row} from 0, '{column}'). Add a constant to such features before training, and in the feature set."
    ]


FORMATS = [
    Format(
        name=engine,
        title=f"the learning-to-rank plug-in of {title}: the body of a _createmodel request",
        suffix=".json",
        writer=partial(_prepare, engine),
        support_check=partial(_refuses, engine),
        versioned=True,
    )
    for engine, title in _TITLES.items()
]
