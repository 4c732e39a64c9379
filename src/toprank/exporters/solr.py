"""Files for Solr's learning-to-rank module: a model, its feature store, and a wrapper if the model is large.

Solr adds 1e-6 to every threshold that it reads, so thresholds are written such that this sum, rounded to single
precision, restores LightGBM's threshold. Dense networks are supported as well.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.encoding import Level
from toprank.exporters.float32 import single_below, single_number, single_text
from toprank.exporters.formats import OTHER_FORMATS, Format, PreparedModel, compact_json, release
from toprank.exporters.interpreters import solr
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
from toprank.rankers.formula import Formula, GradeGains, LinearFunction, Network

_MODEL, _NORM = "org.apache.solr.ltr.model.", "org.apache.solr.ltr.norm.StandardNormalizer"
_FIELD = "org.apache.solr.ltr.feature.FieldValueFeature"
_QUERY = "org.apache.solr.ltr.feature.SolrFeature"
_WRAPPER_FILE = ".wrapper.json"
_ZOOKEEPER = 1_000_000  # bytes: slightly below ZooKeeper's default limit
_MISSING = (9, 2)  # first version with `missing`
_ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "none": "identity"}


def before_slack(threshold: float) -> np.float32:
    """Return the threshold to write so that Solr, after adding 1e-6, splits like x <= threshold for x in single
    precision.

    Within 1e-6 of zero the sum cannot reach every single; Solr then splits at the next lower one that it reaches, at
    most 1.2e-13 away and on the same side of zero. Some negative powers of two cannot be reached either, below which
    singles are further apart; Solr then splits at the next higher one, since a value is more often -1 than beside it.

    >>> float(before_slack(0.5) + np.float32(1e-6)) == 0.5
    True
    """
    target = single_below(threshold)[()]
    with np.errstate(over="ignore"):
        # The difference and Solr's sum are both rounded, so the number to write may be a few singles off.
        written = np.float32(target - solr.SLACK)
        while written + solr.SLACK <= target:
            above = np.nextafter(written, np.float32(np.inf))
            if above + solr.SLACK > target or written == above:
                break
            written = above
        while written + solr.SLACK > target:
            written = np.nextafter(written, np.float32(-np.inf))
        if written + solr.SLACK < target < -solr.SLACK:
            written = np.nextafter(written, np.float32(np.inf))
    return np.float32(written)


class _Network(NamedTuple):
    """A network in Solr's terms: (x − average) / deviation, then layers with their activations.

    Attributes:
        filled: The value that replaces a missing value with the same score.
    """

    average: FloatArray
    deviation: FloatArray
    filled: FloatArray
    layers: list[tuple[FloatArray, FloatArray, str]]


def _network(formula: Formula) -> _Network | str:
    """Return the network of a formula, or the reason why Solr does not support it."""
    part = formula.part
    inner = part.part if isinstance(part, GradeGains) else part
    if isinstance(inner, Network):
        if inner.transform != "identity":
            return (
                f"its network transforms features by {inner.transform}, but Solr takes them as they are. "
                f"{OTHER_FORMATS}, or train with input_transform='standard'."
            )
        if any(layer.norm is not None for layer in inner.layers):
            return (
                f"its network has layer norms, which Solr does not support. {OTHER_FORMATS}, or train with norm='none' "
                "or 'batch'."
            )
        if unknown := sorted({layer.activation for layer in inner.layers} - _ACTIVATIONS.keys()):
            return f"Solr has no activation '{unknown[0]}'. {OTHER_FORMATS}, or train with activation='relu' or 'tanh'."
        layers = [(layer.weights, layer.bias, _ACTIVATIONS[layer.activation]) for layer in inner.layers]
        network = _Network(inner.center, inner.spread, inner.center + inner.spread * inner.missing, layers)
    elif isinstance(inner, LinearFunction) and not inner.missing.any():
        layers = [(inner.weights, inner.intercepts, "identity")]
        network = _Network(inner.center, 1.0 / inner.scale, inner.center, layers)
    else:
        return (
            "its score is computed from the probabilities of several grades, and a Solr model has a single sum. "
            f"{OTHER_FORMATS}."
        )
    return _with_grades(network, part) if isinstance(part, GradeGains) else network


def _with_grades(network: _Network, part: GradeGains) -> _Network | str:
    """Append expected gains as layers: sums of sigmoids, to which a softmax reduces for two grades only."""
    weights, bias, _ = network.layers[-1]
    if part.steps is not None:
        return f"its probabilities are calibrated, and a Solr model has no suitable layer. {OTHER_FORMATS}."
    if part.link == "cumulative":
        steps = np.diff(part.gains)
    elif len(bias) == 2:
        weights, bias, steps = weights[1:] - weights[:1], bias[1:] - bias[:1], np.diff(part.gains)
    else:
        return (
            f"its score is computed from the probabilities of {len(bias)} grades, and Solr has no softmax. "
            f"{OTHER_FORMATS}."
        )
    last = (steps[None, :], part.gains[:1], "identity")
    return network._replace(layers=[*network.layers[:-1], (weights, bias, "sigmoid"), last])


def _refuses(formula: Formula, server: str | None) -> str | None:
    version = None if server is None else release(server)
    if formula.linear is not None:
        return None
    if (columns := level_columns(formula)) is not None:
        return column_refusal(columns)
    forest = formula.forest
    if forest is None and isinstance(formula.part, GradeGains | Network):
        network = _network(formula)
        return network if isinstance(network, str) else None
    if (reason := unsupported_forest_reason(formula, "a model of Solr")) is not None:
        return reason
    if version is not None and version < _MISSING and not missing_is_zero(numbered_trees(formula)):
        return (
            f"its splits send missing values left and right, but Solr {server} treats them as 0. Use Solr 9.2 or "
            f"later, or train {filled_in(formula)} as in the index."
        )
    return None


def _files(model: EngineModel) -> dict[str, bytes]:
    formula, levels = model.formula, model.levels
    kind, params, norms, defaults = _contents(model)
    features = [{"name": name, **norm} for name, norm in zip(formula.features, norms, strict=True)]
    head = {"class": _MODEL + kind, "name": formula.name, "store": formula.name, "features": features}
    text = f'{compact_json(head)[:-1]},"params":{params}}}'
    store = [
        {
            "store": formula.name,
            "name": name,
            **_value(name, {} if column in levels.columns else default, model.terms.get(column)),
        }
        for column, (name, default) in enumerate(zip(formula.features, defaults, strict=True))
    ]
    files = {"": text.encode(), FEATURE_FILE: compact_json(store).encode(), **levels.files}
    if len(files[""]) > _ZOOKEEPER:
        wrapper = {"class": _MODEL + "DefaultWrapperModel", "name": f"{formula.name}_wrapper", "store": formula.name}
        files[_WRAPPER_FILE] = compact_json({**wrapper, "params": {"resource": f"{formula.name}.json"}}).encode()
    return files


def _value(name: str, default: dict[str, str], terms: tuple[str, dict[Level, int]] | None) -> dict[str, Any]:
    """Return the definition of a feature: the number in the field of its name, or the number of a term."""
    if terms is not None:
        return {"class": _QUERY, "params": {"q": _number_of_term(*terms)}}
    return {"class": _FIELD, "params": {"field": name, **default}}


def _number_of_term(field: str, numbers: dict[Level, int]) -> str:
    r"""Return a query that scores a document by the number of the term in a field.

    >>> print(_number_of_term("brand", {"Acme": 1, 'Big "B"': 2}))
    brand:"Acme"^=1 brand:"Big \"B\""^=2
    """
    name = re.sub(r"(\W)", r"\\\1", field)
    # Escape braces, since Solr expands ${…} as a parameter.
    terms = ((re.sub(r'(["\\{])', r"\\\1", str(term)), number) for term, number in numbers.items())
    return " ".join(f'{name}:"{term}"^={number}' for term, number in terms)


def _contents(model: EngineModel) -> tuple[str, str, list[dict[str, Any]], list[dict[str, str]]]:
    """Return the class of a model, its params as JSON, and the normalizer and the default of each feature."""
    formula, linear = model.formula, model.linear
    nothing: list[dict[str, Any]] = [{} for _ in formula.features]
    if linear is not None:
        pairs = zip(formula.features, linear.weights, strict=True)
        weights = {name: single_number(weight) for name, weight in pairs}
        norms = [_norm(mean, 1.0) for mean in linear.means]
        return "LinearModel", compact_json({"weights": weights}), norms, [_default(value) for value in linear.filled]
    if formula.forest is not None:
        trees = numbered_trees(formula)
        directed = not missing_is_zero(trees)
        written = ",".join(f'{{"weight":"1","root":{_tree(tree, formula.features, directed)}}}' for tree in trees)
        null = '"isNullSameAsZero":false,' if directed else ""
        defaults = [_default(np.nan) for _ in formula.features] if directed else nothing
        return "MultipleAdditiveTreesModel", f'{{{null}"trees":[{written}]}}', nothing, defaults
    network = _network(formula)
    assert isinstance(network, _Network)
    layers = [
        {"matrix": _floats(weights), "bias": _floats(bias), "activation": activation}
        for weights, bias, activation in network.layers
    ]
    norms = [_norm(mean, spread) for mean, spread in zip(network.average, network.deviation, strict=True)]
    return "NeuralNetworkModel", compact_json({"layers": layers}), norms, [_default(value) for value in network.filled]


def _norm(average: float, deviation: float) -> dict[str, Any]:
    if average == 0.0 and deviation == 1.0:
        return {}
    return {"norm": {"class": _NORM, "params": {"avg": single_text(average), "std": single_text(deviation)}}}


def _default(value: float) -> dict[str, str]:
    if np.isnan(value):
        return {"defaultValue": "NaN"}
    return {"defaultValue": single_text(value)} if value else {}


def _floats(values: FloatArray) -> Any:
    """Write numbers with a decimal point, as Solr requires."""
    if values.ndim > 1:
        return [_floats(row) for row in values]
    return [single_number(value) for value in values]


def _tree(tree: Node, names: tuple[str, ...], directed: bool) -> str:
    if not isinstance(tree, Split):
        return f'{{"value":"{single_text(tree)}"}}'
    missing = f',"missing":"{"left" if tree.missing_left else "right"}"' if directed else ""
    left, right = (_tree(side, names, directed) for side in (tree.left, tree.right))
    feature = json.dumps(names[tree.feature], ensure_ascii=False)
    threshold = single_text(before_slack(tree.threshold))
    return f'{{"feature":{feature},"threshold":"{threshold}"{missing},"left":{left},"right":{right}}}'


def _scores(formula: Formula, path: Path, X: FloatArray, features: tuple[str, ...]) -> FloatArray:
    values, names = computed_features(solr.feature_values, formula, path, X, features)
    return solr.score(path.read_text(encoding="utf-8"), values, names).astype(np.float64)


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    model, forest = EngineModel.of(formula), formula.forest
    linear, files, feature_file = model.linear, _files(model), formula.name + FEATURE_FILE
    remarks = [
        f"{feature_file} creates a feature store '{formula.name}' in which each feature reads the document field of "
        "the same name; replace features that are not fields with your own.",
        *model.feature_remarks(formula),
        *model.linear_remarks(),
    ]
    if forest is not None:
        remarks += _tree_remarks(numbered_trees(formula))
    elif linear is None:
        remarks.append(f"A missing value counts as its mean, which is the default of the feature in {feature_file}.")
    if _WRAPPER_FILE in files:
        remarks.append(
            f"The model is {len(files['']) / 1e6:.1f} MB, and ZooKeeper's limit is 1 MB: put it into a resource "
            f"folder of each node as {formula.name}.json, and upload {formula.name}{_WRAPPER_FILE} instead."
        )
    return PreparedModel(
        formula=formula,
        files=files,
        score=partial(_scores, formula),
        interpreter="the rules of Solr's module",
        remarks=tuple(remarks),
        # Sums of huge terms exceed single precision; closer to zero than `tiny`, Solr's slack cannot be undone.
        excluded=frozenset({"huge" if forest is None else "tiny"}),
        single=True,
        texts=bool(formula.levels),
        tiny=2e-13,
        constant=0.0 if linear is None else linear.constant,
    )


def _tree_remarks(trees: list[Node]) -> list[str]:
    remarks = []
    if not missing_is_zero(trees):
        remarks.append(
            "Missing values need Solr 9.2 or later, and features whose default is NaN, as in the feature store."
        )
    cuts = {node.threshold for tree in trees for node in nodes(tree)}
    coarse = sum(1 for cut in cuts if before_slack(cut) + solr.SLACK != single_below(cut))
    if coarse:
        remarks.append(
            "Solr adds 1e-6 to thresholds, which cannot be undone exactly within 1e-6 of zero or at a negative power "
            f"of two: this affects {coarse:,} of {len(cuts):,}. Values exactly at them may go to the other side."
        )
    return remarks


FORMATS = [
    Format(
        name="solr",
        title="Solr's learning-to-rank module: a model for its model store",
        suffix=".json",
        writer=_prepare,
        support_check=_refuses,
        versioned=True,
    )
]
