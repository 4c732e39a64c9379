"""Forms with one mistake each, as a writer of files that is wrong in one place would write them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from toprank.exporters import get_format
from toprank.exporters.float32 import next_single, single_below
from toprank.exporters.formats import Format, PreparedModel
from toprank.exporters.parity import ComparedRows, Parity, measure_parity, rows_to_compare
from toprank.rankers.formula import Blend, ExpandedFeatures, GradeGains, LinearFunction, Network, Part, formula_of
from toprank.rankers.trees.forest import MISSING_NAN, Forest, Tree

Change = tuple[str, Part, float]
"""What was changed, the part with the change, and how far a score can move by it at most."""


def changes(part: Part, rng: np.random.Generator, each: int, single: bool) -> Iterator[Change]:
    """Some changes of each kind, one at a time, in each member of a blend."""
    if isinstance(part, Blend):
        for place, (factor, term) in enumerate(part.terms):

            def blended(new: Part, factor: float = factor, place: int = place) -> Blend:
                return Blend((*part.terms[:place], (factor, new), *part.terms[place + 1 :]))

            yield f"member {place} is left out", blended(term, 0.0), np.inf
            yield f"member {place} turned round", blended(term, -factor), np.inf
            for what, new, bound in changes(term, rng, each, single):
                yield f"member {place}: {what}", blended(new), abs(factor) * bound
    elif isinstance(part, ExpandedFeatures | GradeGains):
        for what, inner, _ in changes(part.part, rng, each, single):
            if isinstance(part, ExpandedFeatures) and "missing side" in what:
                continue  # a column of zeros and ones is never missing
            yield what, replace(part, part=inner), np.inf
        if isinstance(part, GradeGains):
            yield (
                "gain doubled",
                replace(part, gains=part.gains * np.where(np.arange(len(part.gains)), 2.0, 1.0)),
                np.inf,
            )
    elif isinstance(part, Forest):
        yield from of_forest(part, rng, each, single)
    elif isinstance(part, LinearFunction):
        for what, weights in of_weights(part.weights, rng, each):
            yield what, replace(part, weights=weights), np.inf
        yield "scale", replace(part, scale=part.scale * 1.01), np.inf
    else:
        yield from of_network(part, rng, each)


def of_network(part: Network, rng: np.random.Generator, each: int) -> Iterator[Change]:
    for place, layer in enumerate(part.layers):
        for what, weights in of_weights(layer.weights, rng, each):
            layers = (*part.layers[:place], replace(layer, weights=weights), *part.layers[place + 1 :])
            yield f"layer {place}: {what}", replace(part, layers=layers), np.inf
    yield "scale", replace(part, spread=part.spread * 1.01), np.inf


def of_weights(weights: Any, rng: np.random.Generator, each: int) -> Iterator[tuple[str, Any]]:
    """Single weights: zero, of the other sign, in each other's place; those that count for anything."""
    large = np.argwhere(np.abs(weights) > 1e-3 * np.abs(weights).max())
    for row, column in large[rng.permutation(len(large))[:each]].tolist():
        for what, value in (("zeroed", 0.0), ("sign", -weights[row, column]), ("scaled", 1.01 * weights[row, column])):
            new = weights.copy()
            new[row, column] = value
            yield f"weight {what}", new
        other = int(np.argmax(np.abs(weights[row] - weights[row, column])))
        new = weights.copy()
        new[row, [column, other]] = new[row, [other, column]]
        yield "inputs swapped", new


# ---- trees ----


def of_trees(forest: Forest, trees: Sequence[Tree]) -> Forest:
    """Other trees under the same rules."""
    return Forest.from_trees(
        trees, forest.n_features, forest.intercepts, flushes=forest.flushes, single_sums=forest.single_sums
    )


def of_forest(forest: Forest, rng: np.random.Generator, each: int, single: bool) -> Iterator[Change]:
    places = [(t, n) for t, tree in enumerate(forest.trees) for n in range(len(tree.feature))]
    ways: tuple[tuple[str, Callable[..., Tree | None]], ...] = (
        ("threshold up", lambda tree, n: _moved(tree, n, float(next_single(tree.threshold[n])))),
        ("threshold down", lambda tree, n: _moved(tree, n, _below(tree.threshold[n]))),
        ("comparison", lambda tree, n: _moved(tree, n, _strict(tree.threshold[n], single))),
        ("missing side", _other_missing),
        ("children swapped", _swapped),
        ("feature", lambda tree, n: _other_feature(tree, n, forest, rng)),
        ("category left out", lambda tree, n: _fewer(tree, n, rng)),
        ("category more", lambda tree, n: _more(tree, n, forest, rng)),
    )
    for what, change in ways:
        made = 0
        for t, n in rng.permutation(np.array(places).reshape(-1, 2)).tolist():
            tree = forest.trees[t]
            if made == each or (new := change(tree, n)) is None:
                continue
            made += 1
            yield what, of_trees(forest, [*forest.trees[:t], new, *forest.trees[t + 1 :]]), _apart(tree, n)
    for t in rng.permutation(len(forest.trees))[:each].tolist():
        tree = forest.trees[t]
        leaf = int(np.argmax(np.abs(tree.values)))
        values = tree.values.copy()
        values[leaf] *= 1.01
        new = replace(tree, values=values)
        yield "leaf", of_trees(forest, [*forest.trees[:t], new, *forest.trees[t + 1 :]]), abs(values[leaf]) * 0.01


def _below(threshold: float) -> float:
    return float(np.nextafter(single_below(threshold), np.float32(-np.inf)))


def _strict(threshold: float, single: bool) -> float:
    return _below(threshold) if single else float(np.nextafter(threshold, -np.inf))


def _moved(tree: Tree, node: int, threshold: float) -> Tree | None:
    if tree.categories[node] is not None or not 1e-5 < abs(tree.threshold[node]) < 1e30:
        return None
    thresholds = tree.threshold.copy()
    thresholds[node] = threshold
    return replace(tree, threshold=thresholds)


def _other_missing(tree: Tree, node: int) -> Tree | None:
    if tree.categories[node] is not None or tree.threshold[node] > 1e30 or not _arrives(tree, node, np.nan):
        return None
    side, kind = tree.default_left.copy(), tree.missing.copy()
    side[node], kind[node] = not tree.nan_left[node], MISSING_NAN
    return replace(tree, default_left=side, missing=kind)


def _swapped(tree: Tree, node: int) -> Tree:
    left, right = tree.left.copy(), tree.right.copy()
    left[node], right[node] = right[node], left[node]
    return replace(tree, left=left, right=right)


def _other_feature(tree: Tree, node: int, forest: Forest, rng: np.random.Generator) -> Tree | None:
    if tree.categories[node] is not None:
        return None
    others = np.unique(np.concatenate([one.feature for one in forest.trees]))
    others = others[others != tree.feature[node]]
    if not len(others):
        return None
    feature = tree.feature.copy()
    feature[node] = rng.choice(others)
    return replace(tree, feature=feature)


def _fewer(tree: Tree, node: int, rng: np.random.Generator) -> Tree | None:
    wanted = tree.categories[node]
    if wanted is None:
        return None
    here = [place for place, one in enumerate(wanted) if _arrives(tree, node, float(one))]
    return _assigned(tree, node, np.delete(wanted, rng.choice(here))) if here and len(wanted) > 1 else None


def _more(tree: Tree, node: int, forest: Forest, rng: np.random.Generator) -> Tree | None:
    wanted = tree.categories[node]
    if wanted is None:
        return None
    known = {
        int(one)
        for other in forest.trees
        for feature, found in zip(other.feature, other.categories, strict=True)
        if found is not None and feature == tree.feature[node]
        for one in found
    }
    more = sorted(one for one in known - set(wanted.tolist()) if _arrives(tree, node, float(one)))
    return _assigned(tree, node, np.sort(np.append(wanted, rng.choice(more)))) if more else None


def _arrives(tree: Tree, node: int, value: float) -> bool:
    """Whether a value of the feature that a split asks for passes the splits above it that ask for the same one."""
    at, feature = node, tree.feature[node]
    while at:
        parent = int(np.flatnonzero((tree.left == at) | (tree.right == at))[0])
        if tree.feature[parent] == feature:
            wanted = tree.categories[parent]
            left = tree.nan_left[parent] if wanted is None else np.isin(value, wanted)
            if left != (tree.left[parent] == at):
                return False
        at = parent
    return True


def _assigned(tree: Tree, node: int, wanted: Any) -> Tree:
    return replace(tree, categories=(*tree.categories[:node], wanted, *tree.categories[node + 1 :]))


def _apart(tree: Tree, node: int) -> float:
    """The largest difference between leaves on both sides of a split."""
    left, right = (_leaves(tree, int(side[node])) for side in (tree.left, tree.right))
    return float(max(left.max() - right.min(), right.max() - left.min()))


def _leaves(tree: Tree, node: int) -> Any:
    found, ahead = [], [node]
    while ahead:
        node = ahead.pop()
        if node < 0:
            found.append(tree.values[-1 - node])
        else:
            ahead += [int(tree.left[node]), int(tree.right[node])]
    return np.array(found)


# ---- the check ----


@dataclass
class Check:
    """The check of an export, on the rows that it makes for the right model."""

    format: Format
    server: str | None
    right: PreparedModel
    rows: ComparedRows

    @classmethod
    def of(cls, ranker: Any, to: str, server: str | None = None, data: Any = None) -> Check:
        format = get_format(to)
        right = format.prepare(formula_of(ranker, "m"), server, data)
        return cls(format, server, right, rows_to_compare(ranker, right, data))

    def parity(self, part: Part) -> Parity | None:
        """What the check finds in the file of another part; None where that is the same file, or none."""
        files = self._files(part)
        if files is None or files[""] == self.right.files[""]:
            return None
        with tempfile.TemporaryDirectory() as folder:
            return measure_parity(self.format.name, self.right, self._written(files, folder), self.rows)

    def moved(self, before: Part, after: Part) -> bool | None:
        """Whether the check would tell one tree of the model from another: its sum moves beyond the tolerance.

        None where both have the same file, or none. A model of one tree is scored in no time.
        """
        files = [self._files(part) for part in (before, after)]
        if files[0] is None or files[1] is None or files[0][""] == files[1][""]:
            return None
        scores = [self._scores(one) for one in files]
        counted = ~np.isin(self.rows.kinds, list(self.right.excluded))
        limit = self.right.tolerance * np.maximum(1.0, np.abs(self.rows.expected))
        return bool((np.abs(scores[0] - scores[1]) > limit)[counted].any())

    def _files(self, part: Part) -> Any:
        formula = replace(self.right.formula, part=part)
        refused = self.format.unsupported_reason(formula, self.server) is not None
        return None if refused else self.format.prepare(formula, self.server).files

    def _written(self, files: Any, folder: str) -> Path:
        for beside, content in files.items():
            (Path(folder) / (f"m{beside}" if beside else f"m{self.format.suffix}")).write_bytes(content)
        return Path(folder) / f"m{self.format.suffix}"

    def _scores(self, files: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path, features = self._written(files, folder), self.right.formula.features
            assert self.right.score is not None
            return np.concatenate([self.right.score(path, X, features) for X in self.rows.blocks() if len(X)])
