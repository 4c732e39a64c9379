"""Reader of RankLib's model files: tree ensembles in XML below comments, and linear models as `feature:weight` pairs.

RankLib tests x <= threshold in single precision, treats missing values as 0, and adds output × weight, rounded to
single precision after each tree. Features are numbered from 1. It identifies the parts of a split by their order:
feature, threshold, left branch, right branch; other orders are refused. Trees are numbered from 1 within an ensemble.
The comments state the exact number of bags and, since training may stop early, the maximum number of trees. The parser
accepts only the tags that RankLib writes: document types, entities and everything else that could expand are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from toprank.errors import DataError, refuse_if
from toprank.rankers.foreign import building
from toprank.rankers.foreign.building import MAX_FEATURES, ZERO_FOR_NAN, RawNodes
from toprank.rankers.foreign.ranker import ForestRanker, ImportedLinearRanker
from toprank.rankers.trees.forest import Tree

_MARK = re.compile(r'<(?P<end>/?)(?P<name>\w{1,40})(?P<more>(?:\s{1,9}\w{1,40}="[^"<>&]{0,99}")*)\s{0,9}>')
_WEIGHT = re.compile(r'\bweight="([^"]*)"')
_TREE_ID = re.compile(r'\bid="([^"]*)"')
_ANNOUNCED = re.compile(r"^##\s*No\. of (trees|bags) = (\d{1,9})\s*$", re.MULTILINE | re.ASCII)
_NUMBER = re.compile(r"-?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?", re.ASCII)
_PAIR = re.compile(r"(\d{1,9}):(\S{1,60})", re.ASCII)
_LINEAR = ("Coordinate Ascent", "Linear Regression")
_FORESTS = ("LambdaMART", "MART", "Random Forests")


def read(content: bytes) -> ForestRanker | ImportedLinearRanker:
    """Build a ranker from a text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise DataError("it is not text in UTF-8") from None
    lines = text.split("\n")
    kind = next((line.strip()[2:].strip() for line in lines if line.strip().startswith("##")), "LambdaMART")
    rest = "\n".join(line for line in lines if not line.strip().startswith("##"))
    if kind in _LINEAR:
        return _linear(kind, rest)
    refuse_if(
        kind not in _FORESTS, f"it is of the kind {kind[:40]!r}; supported are {', '.join((*_FORESTS, *_LINEAR))}"
    )
    announced = {name: int(number) for name, number in _ANNOUNCED.findall(text)}
    return _forest(kind, rest, announced)


def _single(word: str) -> float:
    """Parse a number like Java's parseFloat."""
    refuse_if(not _NUMBER.fullmatch(word), f"{word[:40]!r} is not a number")
    with np.errstate(over="ignore"):
        value = float(np.float32(word))
    refuse_if(not np.isfinite(value), f"{word[:40]!r} is too large")
    return value


# ---- linear models ----


def _linear(kind: str, text: str) -> ImportedLinearRanker:
    words = text.split("#", 1)[0].split()
    weights: dict[int, float] = {}
    for word in words:
        pair = _PAIR.fullmatch(word)
        if pair is None or not _NUMBER.fullmatch(pair[2]) or int(pair[1]) in weights:
            raise DataError(f"{word[:40]!r} is not a feature weight, or repeats a feature")
        weights[int(pair[1])] = float(pair[2])
    intercept = weights.pop(0, 0.0)
    refuse_if(not weights or max(weights) > MAX_FEATURES, f"it needs weights of features from 1 to {MAX_FEATURES:,}")
    coef = np.zeros(max(weights))
    coef[np.array(list(weights)) - 1] = list(weights.values())
    ranker = ImportedLinearRanker.from_weights(
        "RankLib", coef, intercept, facts={"library": "RankLib", "objective": kind}
    )
    ranker.first_feature_id_ = 1
    return ranker


# ---- trees ----


class _OpenTree:
    """The nodes of a tree during parsing."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.left, self.right = list[int](), list[int]()
        self.feature, self.threshold, self.value = list[int](), list[float](), list[float]()

    def open(self) -> int:
        for part, empty in ((self.left, -1), (self.right, -1), (self.feature, 0)):
            part.append(empty)
        self.threshold.append(float("nan"))
        self.value.append(float("nan"))
        return len(self.left) - 1

    def closed(self, number: int, features: int, bags: int) -> Tree:
        """Return the tree as it adds to the score; a random forest is the mean of its bags, each rounded."""
        zeros = np.full(len(self.left), ZERO_FOR_NAN)
        feature, threshold = np.array(self.feature) - 1, np.array(self.threshold)
        value = np.array(self.value) * self.weight
        value = value.astype(np.float32) / np.float64(bags) if bags else value
        inner = np.array(self.left) >= 0
        whole = (inner == np.isnan(value)) & (inner == ~np.isnan(threshold)) & (inner == (feature >= 0))
        refuse_if(not whole.all(), f"tree number {number} (from 0) is damaged")
        return building.tree(number, RawNodes(self.left, self.right, feature, threshold, zeros, value), features)


def _forest(kind: str, text: str, announced: Mapping[str, int]) -> ForestRanker:
    """Build a ranker from a text without its comments, which state the numbers of trees and bags."""
    reader = _MarkReader(text)
    features = max((max(tree.feature) for tree in reader.trees), default=0)
    refuse_if(
        not reader.trees or not 1 <= features <= MAX_FEATURES,
        f"it has no trees over features from 1 to {MAX_FEATURES:,}",
    )
    bagged = kind == "Random Forests"
    bags_announced = announced.get("bags", reader.ensembles)
    refuse_if(
        bagged and bags_announced != reader.ensembles,
        f"its comments state {bags_announced:,} bags, but it contains {reader.ensembles:,}",
    )
    refuse_if(
        bagged and len(reader.trees) != reader.ensembles,
        "its random forest has bags with several trees; only bags with one tree are supported",
    )
    refuse_if(not bagged and reader.ensembles > 1, "it contains several ensembles")
    most = announced.get("trees", len(reader.trees))
    refuse_if(
        not bagged and len(reader.trees) > most,
        f"its comments state at most {most:,} trees, but it contains {len(reader.trees):,}",
    )
    bags = reader.ensembles if bagged else 0
    trees = building.forest([tree.closed(n, features, bags) for n, tree in enumerate(reader.trees)], features)
    facts: dict[str, Any] = {"library": "RankLib", "objective": kind}
    ranker = ForestRanker.from_forest("RankLib", trees, sums="double" if bagged else "single", facts=facts)
    ranker.first_feature_id_ = 1
    return ranker


class _MarkReader:
    """Parser of one tag after another; open elements are on a stack, without recursion."""

    def __init__(self, text: str) -> None:
        self.trees: list[_OpenTree] = []
        self.ensembles = 0
        self._n_trees = 0  # of the current ensemble
        self._open: list[tuple[str, int]] = []  # the names of open elements, and the nodes of splits
        place = 0
        for mark in _MARK.finditer(text):
            self._text(text[place : mark.start()])
            place = mark.end()
            self._end(mark["name"]) if mark["end"] else self._begin(mark["name"], mark["more"])
        refuse_if(text[place:].strip() or self._open or not self.ensembles, "its XML is damaged")

    def _begin(self, name: str, more: str) -> None:
        above = self._open[-1][0] if self._open else ""
        if "psuedoResponse" in (above, name) or above in ("sum", "sqSum"):  # informational elements of some versions
            self._open.append((name, -1))
            return
        allowed = {"ensemble": "", "tree": "ensemble", "feature": "split", "threshold": "split", "output": "split"}
        node = -1
        if name == "ensemble":
            self.ensembles += 1
            self._n_trees = 0
        elif name == "tree":
            weight, place = _WEIGHT.search(more), _TREE_ID.search(more)
            self._n_trees += 1
            stated = str(self._n_trees) if place is None else place[1]
            refuse_if(
                stated.strip() != str(self._n_trees),
                f"a tree of its XML has the id {stated[:40]!r} instead of {self._n_trees}",
            )
            if weight is None:
                raise DataError("a tree of its XML has no weight")
            self.trees.append(_OpenTree(_single(weight[1].strip())))
        elif name == "split" and above in ("tree", "split"):
            node = self._split(above, more)
        refuse_if(
            name != "split" and allowed.get(name) != above, f"its XML has <{name}> where RankLib does not write it"
        )
        self._open.append((name, node))

    def _split(self, above: str, more: str) -> int:
        if not self.trees:  # the <tree> is inside an informational element
            raise DataError("its XML has <split> where RankLib does not write it")
        tree = self.trees[-1]
        if above == "tree":
            refuse_if(tree.left, "a tree of its XML has two roots")
            return tree.open()
        node, parent = tree.open(), self._open[-1][1]
        side = tree.left if 'pos="left"' in more else tree.right if 'pos="right"' in more else None
        if side is None or side[parent] != -1 or (side is tree.right and tree.left[parent] == -1):
            raise DataError("a split of its XML does not have a left branch, followed by a right one")
        side[parent] = node
        return node

    def _end(self, name: str) -> None:
        refuse_if(not self._open or self._open.pop()[0] != name, "its XML is damaged")

    def _text(self, text: str) -> None:
        word, (name, _) = text.strip(), self._open[-1] if self._open else ("", -1)
        refuse_if("<" in word or "&" in word, "its XML contains tags that RankLib does not write")
        if not word or name in ("psuedoResponse", "sum", "sqSum"):
            return
        tree, node = (self.trees[-1], self._open[-2][1]) if len(self._open) > 1 and self.trees else (None, -1)
        blank = tree is not None and node >= 0 and tree.left[node] == -1 and np.isnan(tree.value[node])
        first = blank and tree is not None and tree.feature[node] == 0
        if name == "feature" and tree and first and word.isascii() and word.isdigit() and 0 < len(word) < 10:
            tree.feature[node] = int(word)
        elif name == "threshold" and tree and blank and not first and np.isnan(tree.threshold[node]):
            tree.threshold[node] = _single(word)
        elif name == "output" and tree and first:
            tree.value[node] = _single(word)
        else:
            raise DataError(f"its XML contains {word[:40]!r} where RankLib does not write it")
