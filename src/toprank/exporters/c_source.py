"""Export to a single C file that needs only the standard library and reproduces the decisions and sums of `predict`."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import __version__
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.exporters.c_functions import FUNCTIONS, HEAD, TAIL
from toprank.exporters.formats import Format, PreparedModel
from toprank.rankers.formula import Blend, ExpandedFeatures, Formula, GradeGains, LinearFunction, Network, Part
from toprank.rankers.trees.forest import Forest


class _CWriter:
    """Writes formulas as expressions of a document's features x; collects the constants and functions they need."""

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.functions: set[str] = set()
        self.steps: list[str] = []
        self._numbers = 0

    def _name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}_{self._numbers}"

    def array(self, kind: str, values: npt.NDArray[Any], of: str = "double") -> str:
        """Add a table of numbers and return its name. (C has no empty tables.)"""
        name, flat = self._name(kind), np.ravel(values)
        listed = _listed(_number(value) for value in flat.tolist()) if flat.size else "0"
        self.constants.append(f"static const {of} {name}[] = {{{listed}}};")
        return name

    def score(self, part: Part, x: str = "x") -> str:
        """Return the expression for a score; preceding computations are added to `steps`."""
        if isinstance(part, Blend):
            return " + ".join(f"{_number(factor)} * ({self.score(term, x)})" for factor, term in part.terms)
        if isinstance(part, ExpandedFeatures):
            return self.score(part.part, self._wide(part, x))
        if not isinstance(part, GradeGains):
            return f"{self.outputs(part, x)}[0]"
        self.functions |= {"sigmoid", "expected_gain"}
        a, b = np.array(part.steps).T if part.steps is not None else (np.zeros(0), np.zeros(0))
        tables = ", ".join((self.array("gains", part.gains), self.array("a", a), self.array("b", b)))
        how = f"{int(part.link == 'softmax')}, {len(part.gains)}, {tables}, {int(part.steps is not None)}"
        return f"expected_gain({self.outputs(part.part, x)}, {how}, {int(part.by_score)}, P)"

    def _wide(self, part: ExpandedFeatures, x: str) -> str:
        self.functions.add("wide")
        name = self._name("wide")
        self.steps.append(f"double {name}[{part.width}];")
        numbers = self.array("numbers", part.numbers, "int")
        center = "0" if part.center is None else self.array("center", part.center)
        self.steps.append(f"wide({x}, {len(part.numbers)}, {numbers}, {center}, {part.width}, {name});")
        for feature, where in part.categories:
            table = self.array("where", where, "int")
            self.steps.append(f"mark({x}[{feature}], {len(where)}, {table}, {name});")
        for column, mean in enumerate(part.means, start=part.first_mean):
            self.functions.add("level_mean")
            table = self.array("level_means", mean.table, "float")
            second = f"{x}[{mean.places[1]}], {mean.sizes[1]}" if len(mean.places) > 1 else "0.0, 1"
            self.steps.append(
                f"{name}[{column}] = level_mean({x}[{mean.places[0]}], {mean.sizes[0]}, {second}, {table});"
            )
        return name

    def outputs(self, part: LinearFunction | Forest | Network, x: str) -> str:
        """Return the name of the array for the outputs."""
        name = self._name("outputs")
        self.steps.append(f"double {name}[{part.outputs}];")
        if isinstance(part, LinearFunction):
            self.functions.add("linear")
            parts = ("center", "scale", "weights", "intercepts", "missing")
            tables = ", ".join(self.array(table, getattr(part, table)) for table in parts)
            self.steps.append(f"linear({x}, {len(part.center)}, {part.outputs}, {tables}, {name});")
        elif isinstance(part, Forest):
            self.functions.add("forest")
            self.steps.append(f"forest({x}, {self._trees(part)}, {name});")
        else:
            self._network(part, x, name)
        return name

    def _trees(self, forest: Forest) -> str:
        rows: list[str] = []
        roots, leaves, words = [], [], [np.zeros(0, dtype=np.int64)]
        n_leaves = n_words = 0
        for tree in forest.trees:
            first = len(rows)
            roots.append(first if len(tree.feature) else -1 - n_leaves)
            sides = [np.where(side >= 0, side + first, side - n_leaves) for side in (tree.left, tree.right)]
            for node in range(len(tree.feature)):
                begin, count, categories = 0, 0, tree.categories[node]
                if categories is not None:
                    packed = np.zeros(int(categories.max(initial=0)) // 32 + 1, dtype=np.int64)
                    np.bitwise_or.at(packed, categories // 32, np.int64(1) << (categories % 32))
                    words.append(packed)
                    begin, count = n_words, len(packed)
                    n_words += len(packed)
                numbers = (tree.feature[node], sides[0][node], sides[1][node], begin, count, tree.missing[node])
                rest = f"{', '.join(str(int(number)) for number in numbers)}, {int(tree.default_left[node])}"
                rows.append(f"{{{_number(float(tree.threshold[node]))}, {rest}}}")
            leaves.append(tree.values)
            n_leaves += len(tree.values)
        name = self._name("nodes")
        self.constants.append(f"static const struct node {name}[] = {{{_listed(rows) if rows else '{0}'}}};")
        tables = [
            self.array("roots", np.array(roots, dtype=np.int64), "int"),
            name,
            self.array("leaves", np.concatenate(leaves) if leaves else np.zeros(0)),
            self.array("words", np.concatenate(words), "unsigned long"),
            self.array("intercepts", forest.intercepts),
        ]
        return f"{len(roots)}, {', '.join(tables)}, {forest.outputs}, {int(forest.flushes)}, {int(forest.single_sums)}"

    def _network(self, part: Network, x: str, name: str) -> None:
        self.functions |= {"sigmoid", "network"}
        d, n_knots = len(part.center), len(part.knots)
        sizes = [d, *(len(layer.bias) for layer in part.layers)]
        layers = self._name("layer")
        self.steps.append(f"double {layers}[2][{max(sizes)}];")
        kind = ("identity", "log1p", "quantile").index(part.transform)
        tables = ", ".join(self.array(table, getattr(part, table)) for table in ("center", "spread", "missing"))
        knots = self.array("knots", part.knots.T)
        self.steps.append(f"inputs({x}, {d}, {kind}, {tables}, {n_knots}, {knots}, {layers}[0]);")
        for number, layer in enumerate(part.layers):
            last = number == len(part.layers) - 1
            weights, bias = self.array("weights", layer.weights), self.array("bias", layer.bias)
            norm = "0, 0"
            if layer.norm is not None:
                norm = ", ".join(self.array("norm", side) for side in layer.norm)
            activation = ("none", "relu", "tanh", "silu", "gelu").index(layer.activation)
            to = name if last else f"{layers}[{(number + 1) % 2}]"
            shape = f"{sizes[number]}, {sizes[number + 1]}"
            self.steps.append(f"dense({layers}[{number % 2}], {shape}, {weights}, {bias}, {norm}, {activation}, {to});")


def _number(value: float) -> str:
    """Write a number exactly; a float always has a point or an exponent, so that it is a double in C."""
    if isinstance(value, int):
        return str(value)
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(float(value))


def _listed(words: Iterable[str]) -> str:
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 110:
            lines.append(line)
            line = ""
        line += word + ", "
    return "\n    " + "\n    ".join([*lines, line.rstrip(", ")])


def _source(formula: Formula) -> bytes:
    writer = _CWriter()
    score = writer.score(formula.part)
    name = _identifier(formula.name)
    most = max((len(function.grades.gains) for function in formula.functions if function.grades), default=0)
    steps = [f"double P[{2 * most}];", *writer.steps] if most else writer.steps
    known = {"name": name, "version": __version__, "d": formula.n_features}
    features = ", ".join(map(_text, formula.features))
    pieces = [
        HEAD.format(**known, features=features),
        *_levels(name, formula),
        *(text for function, text in FUNCTIONS.items() if function in writer.functions),
        *writer.constants,
        TAIL.format(**known, steps="\n    ".join(steps), score=score),
    ]
    return "\n".join(pieces).encode()


def _levels(name: str, formula: Formula) -> list[str]:
    """Write a table of levels for each category."""
    if not formula.levels:
        return []
    comment = "/* Categories: x holds the place of a level in its table, from 0 on; NAN for any other. */"
    return [comment] + [
        f"const char *const {name}_levels_{formula.features.index(feature)}[] = "
        f"{{{', '.join(map(_text, levels)) or '0'}}};"
        for feature, levels in formula.levels.items()
    ]


def _identifier(name: str) -> str:
    """Convert the name of the model to an identifier.

    >>> _identifier("2nd model")
    'm2nd_model'
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if re.match(r"[A-Za-z]", plain) else f"m{plain}"


def _text(name: str) -> str:
    """Write a name as a UTF-8 string literal in C, whatever characters it contains."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;()[]{}<>=+*/@#$&!|~^'")
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in name.encode()) + '"'


# ---- scoring ----


def _compiler() -> str | None:
    preferred = os.environ.get("CC", "").split()[:1]
    return next((path for name in (*preferred, "cc", "gcc", "clang") if (path := shutil.which(name))), None)


def _scores(compiler: str, path: Path, X: FloatArray, _features: tuple[str, ...]) -> FloatArray:
    with tempfile.TemporaryDirectory(prefix="toprank_export_") as folder:
        library = Path(folder) / "model.so"
        # A fused multiply-add would round once where predict rounds twice.
        strict = ["-std=c99", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
        compilation = subprocess.run(
            [compiler, *strict, "-xc", str(path), "-xnone", "-o", str(library), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        if compilation.returncode:
            raise DataError(f"{compiler} cannot compile the exported file: {compilation.stderr[:2000]}")
        function = re.search(r"^void (\w+)_scores\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert function is not None
        score = getattr(ctypes.CDLL(str(library)), f"{function[1]}_scores")
        score.argtypes, score.restype = (ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p), None
        rows, scores = np.ascontiguousarray(X, dtype=np.float64), np.empty(len(X))
        score(rows.ctypes.data, len(rows), scores.ctypes.data)
    return scores


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    compiler = _compiler()
    return PreparedModel(
        formula=formula,
        files={"": _source(formula)},
        score=None if compiler is None else partial(_scores, compiler),
        interpreter="C compiler" if compiler is None else f"a C compiler ({compiler})",
        rounds_sums=True,
    )


FORMATS = [Format(name="c", title="one C99 file without dependencies", suffix=".c", writer=_prepare)]
