"""The house plan, checked: imports point one way, the shop window is complete, and opening the door is cheap."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest

import toprank
from toprank import rankers

SOURCE = Path(toprank.__file__).parent

# A room may import from its own floor's left-out neighbors never, and from every floor below.
FLOORS = [
    {"lazy_imports"},
    {"errors", "kernels"},
    {"compute"},
    {"data"},
    {"display", "significance", "text"},
    {"metrics"},
    {"evaluation"},
    {"losses", "scorers", "solvers"},
    {"doctor", "theory"},
    {"rankers"},
    {"exporters"},
    {"systems"},
    {"explanations", "model_selection"},
    {"monitoring", "fusion"},
    {"experiment", "cluster"},
    {"clicks"},
    {"serving"},
    {"search"},
    {"report", "reproduce"},
    {"cli"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def syntax_of(path: Path) -> ast.Module:
    """The tree of a module, which several tests look through; by its text, since some write modules anew."""
    return parsed(path.read_text())


@pytest.fixture(autouse=True, scope="module")
def trees_are_let_go():
    yield
    parsed.cache_clear()


def imported_by_name(tree: ast.Module):
    """(module, line) for what a module that imports by name may mean: every text in it that begins like one of ours.

    The name need not stand in the call itself; a table of names, or the start of an f-string, tells as much.
    """
    called = {
        getattr(node.func, "attr", getattr(node.func, "id", ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    if called.isdisjoint({"import_module", "__import__", "resolve_name", "first_use"}):
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.match(r"toprank\.\w*(\.\w*)*$", node.value)
        ):
            yield node.value, node.lineno


def imported_rooms(path: Path):
    """(room, line) for every import of toprank, inside functions and by name too."""
    tree = syntax_of(path)
    for name, line in imported_by_name(tree):
        if (room := name.split(".")[1]) in FLOOR_OF:
            yield room, line
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            names = [f"{node.module}.{alias.name}" if node.module == "toprank" else node.module for alias in node.names]
        for name in names:
            parts = (name or "").split(".")
            if parts[0] == "toprank" and len(parts) > 1 and parts[1] in FLOOR_OF:
                yield parts[1], node.lineno


SHORTCUTS = {("rankers/contributions.py", "explanations")}
"""`Ranker.explain` is a method for convenience: it imports the function of the room above when it is called."""


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    assert room in FLOOR_OF, f"{room} has no floor in the house plan"
    for other, line in imported_rooms(path):
        if (str(path.relative_to(SOURCE)), other) in SHORTCUTS:
            continue
        assert other == room or FLOOR_OF[other] < FLOOR_OF[room], f"{path}:{line}: {room} must not import {other}"


def test_an_import_by_name_is_seen(tmp_path):
    for text in (
        'import_module("toprank.cluster").place()',
        'importlib.import_module(f"toprank.cluster.{name}")',
        'HOMES = {"x": "toprank.cluster.work"}\nimport_module(HOMES[name])',
    ):
        (tmp_path / "module.py").write_text(text)
        assert {room for room, _ in imported_rooms(tmp_path / "module.py")} == {"cluster"}
    (tmp_path / "module.py").write_text('raise DataError("toprank.cluster")')
    assert list(imported_rooms(tmp_path / "module.py")) == []


def test_rankers_are_asked_what_they_can_do_and_not_by_name():
    """A new ranker is its module, its line in `rankers` and its systems: no list of names elsewhere."""
    kinds = set(rankers.KINDS)
    homes = {SOURCE / "__init__.py", SOURCE / "systems.py", SOURCE / "reproduce" / "studies.py"}
    for path in sorted(set(SOURCE.rglob("*.py")) - homes - set((SOURCE / "rankers").rglob("*.py"))):
        named = {node.value for node in ast.walk(syntax_of(path)) if isinstance(node, ast.Constant)} & kinds
        assert not named, f"{path}: {named}"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def packages_of(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:i]) for i in range(2, len(parts))}


def imports_at_the_top(path: Path, modules: set[str]) -> set[str]:
    """The modules of ours that must be run before this one; what functions import later does not count.

    A module runs after the packages around it, unless we are inside of them already.
    """
    wanted = set()
    for node in syntax_of(path).body:
        if isinstance(node, ast.Import):
            wanted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            wanted |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    here = module_of(path)
    around = set().union(*(packages_of(name) for name in wanted if name in modules))
    return {name for name in wanted | around if name in modules} - packages_of(here) - {"toprank", here}


def test_no_module_needs_itself_to_be_imported():
    """Cycles among top-level imports make an import work or fail by what was imported before it."""
    paths = {module_of(path): path for path in SOURCE.rglob("*.py") if path.name != "__main__.py"}
    graph = {name: imports_at_the_top(path, set(paths)) for name, path in paths.items()}
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for other in sorted(graph[name]):
            visit(other)
        path.pop()
        done.add(name)

    for name in graph:
        visit(name)


def private_imports(tree: ast.Module) -> list[str]:
    """The names with an underscore that a module takes from another one of ours."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("toprank")]
    return [part.name for node in ours for part in node.names if re.match(r"_(?!_)", part.name)]


def test_an_underscore_keeps_a_name_in_its_module():
    """So no module lists its public names: they are the others, and a room's stub says which of them it exports."""
    assert private_imports(ast.parse("from toprank.errors import _Parts, DataError")) == ["_Parts"]
    taken = {path: private_imports(syntax_of(path)) for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in taken.items() if names} == {}
    listing = {path.name for path in taken if "\n__all__ = " in path.read_text()}
    assert listing == {"__init__.py", "errors.py", "systems.py"}  # rooms of one module are their own doors


def test_a_class_name_means_one_thing():
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(syntax_of(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert len(homes) > 500
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_every_public_name_is_there():
    for name in toprank.__all__:
        assert getattr(toprank, name) is not None
    assert set(toprank.__all__) <= set(dir(toprank))
    with pytest.raises(AttributeError, match="no attribute 'rnak'"):
        _ = toprank.rnak


def test_type_checkers_see_the_names_that_there_are():
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert all(part.asname == part.name for node in imports for part in node.names)  # else a stub keeps it to itself
    assert {part.name for node in imports for part in node.names} | {"__version__"} == {*toprank.__all__}


def is_there(name: str) -> bool:
    """Whether a name of ours can be imported, but for what others lack: torch, which the suite can do without."""
    home = name.rpartition(".")[0]
    try:
        import_module(home)
        return resolve_name(name) is not None
    except ModuleNotFoundError as error:
        return not (error.name or "").startswith("toprank")
    except AttributeError:  # without torch, a module that needs it may lie about half imported
        return find_spec("torch") is None


def test_benchmarks_and_scripts_import_names_that_exist():
    """They are run by hand, so nothing else notices when a name that they use has moved."""
    root = SOURCE.parent.parent
    imports = [
        (path, node)
        for path in (*root.glob("benchmarks/*.py"), *root.glob("docs/*.py"))
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toprank")
    ]
    assert len(imports) > 50
    for path, node in imports:
        for alias in node.names:
            assert is_there(f"{node.module}.{alias.name}"), f"{path.name}:{node.lineno}"


def test_importing_toprank_imports_nothing_heavy():
    heavy = ["numpy", "scipy", "pyarrow", "pandas", "polars", "lightgbm", "sklearn", "torch", "rich", "typer"]
    code = f"import sys, toprank; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_evaluating_imports_nothing_heavy(tmp_path):
    (tmp_path / "data.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    (tmp_path / "one.scores").write_text("2\n1\n")
    heavy = ["pyarrow", "pandas", "polars", "lightgbm", "sklearn", "torch", "rich", "optuna"]
    code = (
        "import atexit, sys; from toprank.cli.main import run; "
        f"atexit.register(lambda: print([name for name in {heavy} if name in sys.modules])); run()"
    )
    command = [sys.executable, "-c", code, "evaluate", "data.txt", "one.scores"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert out.stdout.splitlines()[-1] == "[]"


def messages(path: Path):
    """(line, text) of what is said in errors and warnings: the strings in a raise, or in a call of warn_… or warn."""
    for node in ast.walk(syntax_of(path)):
        called = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith(
            ("warn", "refuse_if")
        )
        if called or isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


ADVICE = re.compile(r"\b(?:tr|toprank)\.((?:\w+\.)*\w+)(?!\w*[-/])|\b([A-Z]\w*Ranker)\b|\b(?:[Uu]se|[Tt]ry) ([A-Z]\w+)")


def stands_for_something(name: str) -> bool:
    try:
        return resolve_name(f"toprank.{name}") is not None
    except (ImportError, AttributeError):
        return False


def test_messages_name_what_exists():
    from toprank import losses, rankers, solvers

    known = {*losses.names(), *rankers.KINDS, *solvers.__all__, *toprank.__all__, "Ranker"}
    wrong, seen = [], 0
    for path in SOURCE.rglob("*.py"):
        for line, text in messages(path):
            for dotted, ranker, advised in ADVICE.findall(text):
                seen += 1
                there = stands_for_something(dotted) if dotted else {ranker, advised} & known
                if not there:
                    wrong.append(f"{path.relative_to(SOURCE)}:{line}: {dotted or ranker or advised}")
    assert seen > 30  # the search finds what it is for
    assert not wrong


OPTION = re.compile(r"(?<![\w-])--[a-z]")
COMMAND_LINES = {"cli", "serving/__main__.py"}
"""Where words of a command line are at home: `toprank`, and the process that it starts to serve."""


def spelled_options(path: Path) -> list[str]:
    """Strings of a module, f-strings and docstrings among them, that write an option of a command."""
    strings = (node for node in ast.walk(syntax_of(path)) if isinstance(node, ast.Constant))
    return [
        f"{path.name}:{node.lineno}" for node in strings if isinstance(node.value, str) and OPTION.search(node.value)
    ]


def test_only_cli_spells_options():
    below = [
        path for path in SOURCE.rglob("*.py") if not COMMAND_LINES & {room_of(path), str(path.relative_to(SOURCE))}
    ]
    assert len(below) > 200
    assert not [place for path in below for place in spelled_options(path)]


def test_a_spelled_option_is_seen(tmp_path):
    (tmp_path / "odd.py").write_text(
        "def f(k):\n    raise ValueError(f'{k} is too many; lower --folds.', 'a--b -- c')\n"
    )
    assert spelled_options(tmp_path / "odd.py") == ["odd.py:2"]


def test_the_page_of_rooms_names_files_that_exist():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", page, re.MULTILINE)
    named = [(room, file) for room, files in rows for file in re.findall(r"`([^`]+)`", files)]
    named += [("", file) for file in re.findall(r"`(\w+/\w+\.(?:py|[ch]))`", page)]
    assert len(named) > 50
    homes = [SOURCE, SOURCE.parents[1]]
    there = {
        (room, file)
        for room, file in named
        for home in (*homes, SOURCE / room)
        if (home / file).exists() or (home / f"{file}.py").exists()
    }
    assert set(named) == there
