"""Does the suite notice a single mistake? Draws mutants of `src` by a seed and lists those that no test kills.

    python tests/mutants.py --count 100 --seed 0          # a hundred mutants, whole package
    python tests/mutants.py --only src/toprank/serving    # of one room, or of one module
    python tests/mutants.py --at src/toprank/model_selection/grid.py:120   # every mutant of one line

A mutant is one change of one place: a comparison, a sign, a constant, a condition, a statement left out. First the
suite runs once with coverage, so that it is known which test reaches which line and how long it takes (kept in
build/mutants until a source or a test changes). Then each mutant meets the tests that reach its statement, quick ones
of every file first. Both happen in copies of the tree: the working tree is never touched, and a test that fails in a
copy anyway notices nothing. What runs only at import (defaults,
tables) meets the tests that reach its module. A mutant that breaks a test, or makes the tests run far longer than they
do, is noticed. Mutants that no test could notice are named, with the reason, in `EQUIVALENT` below.

Ends with status 1 where fewer than --goal of the mutants are noticed.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import hashlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mutants"
COPIED = ("src", "tests", "docs", "native", "benchmarks", "pyproject.toml", "README.md", "Makefile", "mkdocs.yml")

EQUIVALENT: dict[str, str] = {
    'src/toprank/compute.py  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else '
    "(os.cpu_count() or 1)  1  ->  (2)": "every system that tests run on knows its number of cores",
    "src/toprank/model_selection/grid.py  own_threads = 1 if len(self.combinations) > 1 and self.n_parallel != 1 else "
    "judge.threads  1  ->  (2)": "how many threads a candidate has changes no result, but how long it takes",
    "src/toprank/model_selection/portfolio.py  ranker.set_params(l2=float(np.max(ranker.l2)))"
    "  np.max(ranker.l2)  ->  (np.min(ranker.l2))": "labels are refused under any penalty; the largest is the quickest",
}
"""The path, the line's text and the change, as `Mutant.key` puts them -> why it does what the original does."""

EVERYWHERE = ("tests/test_values.py::test_records_are_frozen_and_results_show_themselves",)
"""Tests that look at what every module defines, whoever imported it first: which lines they reach does not tell."""

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    path: str
    line: int
    text: str
    statement: range
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {_short(self.before)}  ->  {_short(self.after)}"

    @property
    def key(self) -> str:
        """What tells it from others wherever its line stands: a number alone stands in many places."""
        return f"{self.path}  {self.text}  {_short(self.before)}  ->  {_short(self.after)}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 90 else words[:87] + "..."


class Places(ast.NodeVisitor):
    """Every mutant of one module, in the order of the text."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, []
        self.statement = range(1, 1)
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def add(self, node: ast.AST, after: ast.AST | str) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        # An expression goes back in parentheses: what stands around it must not take it apart.
        text = after if isinstance(after, str) else f"({ast.unparse(after)})"
        before = self.source[start:end].decode()
        line = self.source[self.starts[node.lineno - 1] : self.starts[node.lineno]].decode().strip()
        self.found.append(Mutant(self.path, node.lineno, line, self.statement, start, end, before, text))

    def visit(self, node: ast.AST) -> None:
        """Remembers the lines of the innermost statement: one that spans lines is reached where it begins."""
        outer = self.statement
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            self.statement = range(node.lineno, max(last, node.lineno) + 1)
        super().visit(node)
        self.statement = outer

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[number] = COMPARED[type(operator)]()
            self.add(node, changed)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.Constant | ast.JoinedStr) and not isinstance(
            getattr(node.left, "value", None), int | float
        )
        if type(node.op) in COMPUTED and not text:
            changed = copy.deepcopy(node)
            changed.op = COMPUTED[type(node.op)]()
            self.add(node, changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, changed)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self.add(node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, f"({node.value + 1})")
        elif isinstance(node.value, float):
            self.add(node, repr(node.value * 2 if node.value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        called = name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")
        if called == "zip":  # that lengths agree is an assertion, which nothing that is right can break
            for part in node.args:
                self.visit(part)
            return
        if called in SWAPPED_CALLS and (node.args or isinstance(name, ast.Attribute)):
            changed = copy.deepcopy(node)
            if isinstance(changed.func, ast.Name):
                changed.func.id = SWAPPED_CALLS[called]
            else:
                changed.func.attr = SWAPPED_CALLS[called]
            self.add(node, changed)
        self.generic_visit(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp) and "TYPE_CHECKING" not in ast.dump(
            node.test
        ):
            self.add(node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _condition  # noqa: N815

    def _statement(self, node: ast.stmt) -> None:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # a docstring
            self.add(node, "pass")
        self.generic_visit(node)

    visit_Expr = visit_Raise = visit_AugAssign = visit_Delete = _statement  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        # A name that is never bound is noticed by everything; one that is bound again, or an attribute, may not be.
        if not all(isinstance(target, ast.Name) for target in node.targets):
            self.add(node, "pass")
        if not any(isinstance(target, ast.Name) and target.id.startswith("__") for target in node.targets):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations are no code."""


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of a module that Python still compiles."""
    source = path.read_bytes()
    places = Places(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path), source)
    places.visit(ast.parse(source))
    return [mutant for mutant in places.found if _compiles(mutant.applied(source))]


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


# Which test reaches which line.


class Durations:
    """A pytest plugin: how long each test that passed took, into the file that the environment names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self, session) -> None:
        if not hasattr(session.config, "workerinput"):
            passed = {test: round(took, 3) for test, took in self.seconds.items() if test not in self.failed}
            Path(os.environ["TOPRANK_DURATIONS"]).write_text(json.dumps(passed))


def pytest_configure(config) -> None:
    """Registers the plugin, where pytest was started with `-p mutants`."""
    if "TOPRANK_DURATIONS" in os.environ:
        config.pluginmanager.register(Durations())


def reached(jobs: int, wanted: list[str], tree: Path) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """(path -> line -> tests that reach it, seconds of each test that passes); measured anew where files changed."""
    files = sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))
    state = hashlib.blake2b(b"".join(p.read_bytes() for p in files) + " ".join(wanted).encode(), digest_size=8)
    folder = BUILD / f"reached-{state.hexdigest()}"
    if not (folder / "durations.json").exists():
        print("Running the suite once with coverage, to know which test reaches which line ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        words = ["-m", "pytest", "-p", "mutants", "-m", "not nightly", "-n", str(jobs), "--no-header", "-q", *wanted]
        words += ["--cov=toprank", "--cov-context=test", "--cov-report="]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]),
            "COVERAGE_FILE": str(folder / "coverage"),
            "TOPRANK_DURATIONS": str(folder / "durations.json"),
        }
        subprocess.run([sys.executable, *words], cwd=tree, env=environment, stdout=subprocess.DEVNULL)
    return _lines(folder / "coverage", tree), json.loads((folder / "durations.json").read_text())


def _lines(database: Path, tree: Path) -> dict[str, dict[int, list[str]]]:
    from coverage.numbits import numbits_to_nums

    result: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    query = """SELECT file.path, context.context, line_bits.numbits FROM line_bits
               JOIN file ON file.id = line_bits.file_id JOIN context ON context.id = line_bits.context_id"""
    with sqlite3.connect(database) as connection:
        for path, context, bits in connection.execute(query):
            test = context.rpartition("|")[0]  # pytest-cov adds the phase: set-up, run, teardown
            if test:
                lines = result[os.path.relpath(path, tree)]
                for line in numbits_to_nums(bits):
                    if not lines[line] or lines[line][-1] != test:
                        lines[line].append(test)
    return result


def chosen(tests: list[str], seconds: dict[str, float], budget: float) -> list[str]:
    """The tests for one mutant: of every file in turn the quickest that is left, until the time is used up."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted({test for test in tests if test in seconds}, key=lambda test: (seconds[test], test)):
        files[test.partition("::")[0]].append(test)
    turns = [test for turn in zip_longest(*files.values()) for test in turn if test is not None]
    result: list[str] = []
    for test in turns:
        if result and budget < seconds[test]:
            continue
        result.append(test)
        budget -= seconds[test]
    return result


# Mutants meet their tests.


def copied_tree(number: int) -> Path:
    """A copy of what the tests read, to make mistakes in."""
    tree = BUILD / f"tree-{number}"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
        elif source.exists():
            shutil.copy2(source, tree / name)
    # Compiled once, by content: a mutant that is as long as the original, in the same second, is compiled anew.
    compileall.compile_dir(tree / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return tree


def verdict(mutant: Mutant, tests: list[str], allowed: float, tree: Path) -> str:
    """ "noticed", "timed out" or "survived"."""
    target = tree / mutant.path
    original = target.read_bytes()
    target.write_bytes(mutant.applied(original))
    words = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-x", "-q", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    process = subprocess.Popen(
        words, cwd=tree, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        return "survived" if process.wait(timeout=allowed) == 0 else "noticed"
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
        target.write_bytes(original)


def drawn(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that the command line asks for."""
    if options.at:
        name, _, line = options.at.rpartition(":")
        return [mutant for mutant in mutants_of(ROOT / name) if mutant.line == int(line)]
    wanted = [ROOT / name for name in options.only or ["src/toprank"]]
    modules = [path for name in wanted for path in ([name] if name.is_file() else sorted(name.rglob("*.py")))]
    every = [mutant for path in modules for mutant in mutants_of(path)]
    return random.Random(options.seed).sample(every, min(options.count, len(every)))


def results(mutants: list[Mutant], options: argparse.Namespace) -> Iterator[tuple[Mutant, str, int]]:
    """(mutant, verdict, number of tests that met it), as they come."""
    copies = [copied_tree(number) for number in range(options.jobs)]
    lines, seconds = reached(options.jobs, options.tests, copies[0])
    trees: SimpleQueue[Path] = SimpleQueue()
    for tree in copies:
        trees.put(tree)

    def meet(mutant: Mutant) -> tuple[Mutant, str, int]:
        if mutant.key in EQUIVALENT:
            return mutant, "equivalent", 0
        known = lines.get(mutant.path, {})
        here = [test for line in mutant.statement for test in known.get(line, [])]
        imported = [*(test for line in known for test in known[line]), *EVERYWHERE] if known and not here else []
        tests = chosen(here or imported, seconds, options.seconds)
        if not tests:
            return mutant, "not reached", 0
        tree = trees.get()
        try:
            allowed = 60 + 5 * sum(seconds[test] for test in tests)
            return mutant, verdict(mutant, tests, allowed, tree), len(tests)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(meet, mutants)


def main() -> None:
    """Draws, runs, tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="how many mutants are drawn (100)")
    parser.add_argument("--seed", type=int, default=0, help="which (0)")
    parser.add_argument("--only", nargs="+", metavar="PATH", help="of these modules or rooms alone")
    parser.add_argument("--at", metavar="FILE:LINE", help="every mutant of one line")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="by these test files alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (cores)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each mutant, at most (60)")
    parser.add_argument("--goal", type=float, default=0.95, help="share that must be noticed (0.95)")
    options = parser.parse_args()
    began = time.monotonic()
    counts: Counter[str] = Counter()
    for mutant, outcome, met in results(drawn(options), options):
        counts[outcome] += 1
        if outcome in ("survived", "not reached"):
            print(f"{outcome} ({met} tests): {mutant}", flush=True)
    judged = sum(counts.values()) - counts["equivalent"]
    noticed = counts["noticed"] + counts["timed out"]
    told = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    took = (time.monotonic() - began) / 60
    print(f"{noticed} of {judged} mutants noticed ({told}), in {took:.0f} min, seed {options.seed}")
    sys.exit(noticed < options.goal * judged)


if __name__ == "__main__":
    main()
