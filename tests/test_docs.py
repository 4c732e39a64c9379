"""The documentation taken at its word: its Python runs, its output is what it prints, what it names exists.

`docs/refresh.py` writes what the blocks print now into the pages.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import typer
import yaml

import toprank as tr
from support import invoked, shared_data, toprank
from test_architecture import FLOORS
from toprank import losses, significance, systems
from toprank.cli.commands import app
from toprank.metrics import CONVENTIONS, MEASURES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    body: str
    line: int
    output: str | None
    """A `text` block right behind it: what the block prints."""
    place: tuple[int, int] | None
    """Where in the page that is."""


def blocks_of(page):
    text = page.read_text()
    found = list(FENCE.finditer(text))
    blocks = []
    for match, after in pairwise([*found, None]):
        is_output = after is not None and after[2] == "text" and not text[match.end() : after.start()].strip()
        line = text.count("\n", 0, match.start()) + 2
        output, place = (after[3], after.span(3)) if is_output else (None, None)
        blocks.append(Block(match[2], match[3], line, output, place))
    return blocks


def blocks_in(page, language):
    return [block for block in blocks_of(page) if block.language == language]


SLOW = {
    "python": ["launch-report", "learning-from-clicks", "search", "experiments", "propensities", "tuning", "auto"],
    "sh": ["cli", "auto", "monitoring"],
}  # to run them takes two seconds and more of a processor each, up to eleven


def pages_with(language, slow=()):
    """Parameters: the pages that have such blocks; those that are slow are left to the night."""
    late = pytest.mark.nightly
    pages = [page for page in PAGES if blocks_in(page, language)]
    return [pytest.param(page, id=page.name, marks=[late] * (page.stem in slow)) for page in pages]


def run_python(page):
    """(block, what it prints) for the Python blocks of a page, which run one after the other in one namespace."""
    names = {"__name__": "__main__"}
    for block in blocks_in(page, "python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), names)
        yield block, printed.getvalue()


@pytest.mark.parametrize("page", pages_with("python", SLOW["python"]))
def test_python_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert page.read_text().count("```python") == len(blocks_in(page, "python"))  # none hides from the pattern
    for block, printed in run_python(page):
        if block.output is not None:
            assert printed.rstrip() == block.output.rstrip(), f"{page.name}:{block.line}"


# The command line


COMMANDS = [command.name for command in app.registered_commands] + [
    f"{group.name} {command.name}"
    for group in app.registered_groups
    for command in group.typer_instance.registered_commands
]


@cache
def options_of(command):
    """The options that `--help` lists; the command's name is '' for toprank itself."""
    lines = invoked(*command.split(), "--help").stdout.splitlines()
    heads = [re.split(r" {2,}", line.strip())[0] for line in lines if line.startswith("  -")]
    return {option for head in heads for option in re.findall(r"--?[a-z][a-z-]*", head)}


def commands_in(page):
    """Every `toprank …` of a page, as words: lines of shell blocks, and code within the text."""
    lines = [line for block in blocks_in(page, "sh") for line in block.body.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text()))
    return [shlex.split(line, comments=True) for line in lines if re.match(r"toprank( |$)", line)]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if commands_in(page)])
def test_commands_and_their_options_exist(page):
    groups = [group.name for group in app.registered_groups]
    for _, *words in commands_in(page):
        command = words[0] if words and not words[0].startswith("-") else ""
        command = " ".join(words[:2]) if command in groups else command
        assert command in ["", *groups, *COMMANDS], words
        asked = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
        assert asked <= options_of(command), words


def scripts_in(page):
    """Every `python SCRIPT …` of a page, as words: lines of shell blocks, and code within the text."""
    lines = [line for block in blocks_in(page, "sh") for line in block.body.splitlines()]
    lines += [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text()))]
    found = [re.search(r"(?:^|\s)python (\w+/\w+\.py.*)", line) for line in lines]
    return [shlex.split(match[1], comments=True) for match in found if match]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if scripts_in(page)])
def test_scripts_have_the_options_that_a_page_gives_them(page):
    """Read from the source, since some scripts import for seconds; an option may be made of a name in a loop there."""
    for script, *words in scripts_in(page):
        source = (ROOT / script).read_text()
        for shared in re.findall(r"^import (_\w+)$", source, re.MULTILINE):
            source += (ROOT / script).with_name(f"{shared}.py").read_text()
        for option in [word.partition("=")[0] for word in words if word.startswith("--")]:
            in_a_loop = 'f"--{' in source and f'"{option[2:]}"' in source
            assert f'"{option}"' in source or in_a_loop, (page.name, script, option)


def furnish(folder):
    """Put the files that the pages' commands read into a folder."""
    truth = tr.synthetic(n_queries=30, n_documents=(3, 12), n_features=4, seed=0)
    data = truth.replace(document_ids=[f"d{i}" for i in range(truth.n_documents)])
    train, vali, test = tr.split(data)
    for name, part in (("train.txt", train), ("train.txt.gz", train), ("vali.txt", vali), ("test.txt", test)):
        tr.write(part, folder / name)
    noise = np.random.default_rng(0).normal(size=(2, test.n_documents))
    for name, scores in zip(("bm25", "model"), test.labels + noise, strict=True):
        tr.write_scores(scores, folder / f"{name}.scores")
    tr.write_scores(noise[0], folder / "baseline.scores")
    (folder / "qrels.txt").write_text("1 0 a 2\n1 0 b 0\n1 0 c 1\n2 0 a 1\n")
    (folder / "run.txt").write_text("1 Q0 b 1 0.9 mine\n1 Q0 a 2 0.7 mine\n")
    (folder / "ranklib.txt").write_text("## Coordinate Ascent\n1:0.4 2:0.3 3:-0.1 4:0.2\n")
    tr.write(test, folder / "judged.qrels")
    slips = np.random.default_rng(1).random(test.n_documents) < 0.2
    tr.write(test.replace(labels=np.where(slips, 0.0, test.labels)), folder / "model.qrels")
    for name, scores in zip(("bm25", "dense"), test.labels + noise, strict=True):
        tr.write_run(test, scores, folder / f"{name}.run", tag=name)
    topics = ("bread", "soup", "tea", "cake", "pasta", "rice", "salad", "jam")
    (folder / "notes").mkdir()
    for i in range(32):
        food, way = topics[i % 8], ("bake", "boil", "buy", "keep")[i // 8]
        text = f"# {food} {i}\n\nHow to {way} {food}: take {topics[(i + 3) % 8]} and water, and wait.\n"
        (folder / "notes" / f"{food}-{way}.md").write_text(text)
    (folder / "notes.queries.tsv").write_text("".join(f"{i}\thow to bake {food}\n" for i, food in enumerate(topics)))
    (folder / "notes.qrels").write_text("".join(f"{i} 0 {food}-bake.md 1\n" for i, food in enumerate(topics)))
    frame = data.to_frame().rename(columns={"document_id": "product_id"})
    frame["brand"] = [("Acme", "Borg", None)[i % 3] for i in range(len(frame))]
    frame["added"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(len(frame)), unit="D")
    known = frame["qid"] < frame["qid"].max()
    frame[known].to_parquet(folder / "products.parquet", index=False)
    frame[~known].to_csv(folder / "products.csv", index=False)
    taught = frame.drop(columns=["brand", "added"]).assign(cross_encoder=truth.expected_gain())
    taught.to_parquet(folder / "taught.parquet", index=False)
    new = frame[~known].drop(columns="label").replace({"brand": {"Borg": "New"}})
    new.to_parquet(folder / "new.parquet", index=False)


@contextlib.contextmanager
def services():
    """A function that starts a service as a shell does in the background, until the end of the block."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            command = [sys.executable, "-m", "toprank", *arguments]
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE))
            stack.callback(process.terminate)
            assert b'"ready"' in process.stderr.readline()

        yield start


def run_shell(page):
    """(block, what it prints) for the shell blocks of a page; `toprank` is run, of other commands names are checked."""
    with services() as start:
        yield from _run_shell(page, start)


def _run_shell(page, start):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for block in blocks_in(page, "sh"):
        printed = ""
        for line in block.body.splitlines():
            match shlex.split(line, comments=True):
                case ["toprank", *arguments, ">", file]:
                    Path(file).write_text(invoked(*arguments).stdout)
                case ["toprank", *arguments, "&"]:
                    start(*arguments)
                case ["toprank", "serve", *_]:
                    pytest.fail(f"{page.name}:{block.line}: a service answers until it is stopped; start it with &")
                case ["curl", *_] as command:
                    done = subprocess.run([*command, "--fail-with-body"], capture_output=True, text=True)
                    assert done.returncode == 0, (command, done.stdout, done.stderr)
                    printed += done.stdout
                case ["toprank", *arguments]:
                    printed += invoked(*arguments).stdout
                case ["make", target]:
                    assert target in targets
                case ["python", script, *_]:
                    assert (ROOT / script).is_file(), f"{page.name}:{block.line}: there is no {script}"
                case ["pip", "install", *_] | []:
                    pass
                case other:
                    pytest.fail(f"{page.name}:{block.line}: nobody checks {other}")
        yield block, printed


@pytest.mark.parametrize("page", pages_with("sh", SLOW["sh"]))
def test_commands_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    for block, printed in run_shell(page):
        if block.output is not None:
            assert printed.rstrip() == block.output.rstrip(), f"{page.name}:{block.line}"


JSON = {
    "train": "train train.txt --valid vali.txt --system ListNet -o m.toprank",
    "tune": "tune train.txt --valid vali.txt --system ListNet --n-trials 1 -o t.toprank",
    "evaluate": "evaluate test.txt model.scores",
    "cv": "cv train.txt --systems LeastSquares --folds 3",
    "check": "check train.txt",
    "monitor": "monitor m.toprank vali.txt test.txt",
    "clicks check": "clicks check log.parquet",
    "clicks evaluate": "clicks evaluate model.scores log.parquet test.txt --metrics dcg@5",
}


@pytest.mark.nightly
def test_json_objects_hold_the_keys_that_the_tour_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    simulate = "clicks simulate test.txt bm25.scores model.scores -o log.parquet --exploration 0.1"
    toprank(*simulate.split())
    tour = (ROOT / "docs" / "cli.md").read_text().partition("**What the JSON objects hold,**")[2]
    for command, line in JSON.items():
        shown = json.loads(toprank(*line.split(), "--json", "--quiet").stdout)
        [row] = re.findall(rf"^\| `{command}` \| (.*) \|$", tour, re.MULTILINE)
        keys = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row).partition(";")[0]))
        assert len(keys) > 1
        assert keys <= shown.keys(), command


def test_the_tour_visits_every_command():
    tour = ROOT / "docs" / "cli.md"
    rows = re.findall(r"^\|[^|]*\| `toprank (\S+)` \| (\S.*) \|$", tour.read_text(), re.MULTILINE)
    alone = {command for command in COMMANDS if " " not in command}
    assert {command for command, _ in rows} == alone | {group.name for group in app.registered_groups}
    text = tour.read_text()
    assert [command for command in COMMANDS if f"`{command}" not in text and f"toprank {command}" not in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained_in_the_help(command):
    """The help is where options are documented, so none may stand there by its name alone."""
    described = typer.main.get_command(app)
    for word in command.split():
        described = described.commands[word]
    assert [option.name for option in described.params if not (option.help or "").strip()] == []


# What the pages say


def pages_of(nav):
    """The pages of a navigation, whose entries may be sections."""
    return (
        [nav] if isinstance(nav, str) else [page for entry in nav for part in entry.values() for page in pages_of(part)]
    )


def test_every_page_of_the_navigation_exists():
    pages = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert pages[0] == "index.md"
    for page in pages:
        assert (ROOT / "docs" / page).is_file(), page


def test_no_page_is_left_out_of_the_navigation():
    pages = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(pages) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_first_page_leads_each_reader_through_five_pages_at_most():
    _, _, section = (ROOT / "docs" / "index.md").read_text().partition("## Where to start\n")
    paths = re.findall(r"(?:^\d\. \[.*\n)+", section.partition("\n## ")[0], re.MULTILINE)
    assert len(paths) == 4
    for path in paths:
        pages = re.findall(r"^\d\. \[[^]]*\]\(([\w-]+\.md)\)", path, re.MULTILINE)
        assert 2 <= len(pages) == path.count("\n") <= 5
        assert all((ROOT / "docs" / page).is_file() for page in pages)


def without_blocks(page):
    return FENCE.sub("", page.read_text())


def plain_words(text):
    return " ".join(re.sub(r"[-`’']", " ", text).lower().split())


def prominent_texts(page):
    """The headings of a page, and the first paragraph behind its title: what a search weighs most."""
    text = without_blocks(page)
    paragraphs = [part for part in text.split("\n\n")[1:] if part.strip() and not re.match(r"[#|!<-]", part.strip())]
    return [plain_words(part) for part in (*re.findall(r"^#+ (.*)$", text, re.MULTILINE), *paragraphs[:1])]


def pages_linked_from(page):
    names = re.findall(r"\]\(([\w-]+\.md)(?:#[\w-]+)?\)", page.read_text())
    return {ROOT / "docs" / name for name in names}


@pytest.mark.parametrize(
    "term",
    [
        "one-hot", "trec_eval nDCG", "unbiased learning to rank", "partial dependence", "permutation importance",
        "hybrid search", "Elasticsearch", "target encoding", "grid search", "hyperparameter", "sample ratio mismatch",
        "data leakage", "drift",
    ],
)  # fmt: skip
def test_a_question_is_answered_within_two_clicks_in_the_words_of_the_reader(term):
    direct = pages_linked_from(ROOT / "docs" / "index.md")
    reached = direct.union(*map(pages_linked_from, direct)) - {ROOT / "docs" / "glossary.md"}
    words = plain_words(term).split()
    answers = [
        page.name
        for page in sorted(reached)
        if page.is_file() and any(all(word in text for word in words) for text in prominent_texts(page))
    ]
    assert answers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_appeals_to_exists(page):
    for file, names in re.findall(r"`(tests/\w+\.py)((?:::\w+)*)`", page.read_text()):
        assert (ROOT / file).is_file(), file
        source = (ROOT / file).read_text()
        for name in names.split("::")[1:]:
            assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), f"{file} has no {name}"


@pytest.mark.parametrize("page", pages_with("python"))
def test_pages_import_public_names_only(page):
    """From toprank or from one of its rooms, what the room says it shows; no modules behind them."""
    code = "\n".join(block.body for block in blocks_in(page, "python"))
    for home, names in re.findall(r"^ *from (toprank[\w.]*) import ([\w, ]+)$", code, re.MULTILINE):
        shown = set() if home.count(".") > 1 else set(import_module(home).__all__)
        assert set(names.split(", ")) <= shown, (home, names)
    assert not re.search(r"^ *import toprank\.", code, re.MULTILINE)


def named(path):
    try:
        return import_module(path)
    except ModuleNotFoundError:
        home, _, name = path.rpartition(".")
        return getattr(named(home), name)


def public_names():
    """What stands in `toprank` and its rooms, by what a user types: the shortest names of each thing."""
    rooms = {f"tr.{name}": getattr(tr, name) for name in tr.__all__ if isinstance(getattr(tr, name), ModuleType)}
    names = {
        f"{path}.{name}": getattr(room, name) for path, room in rooms.items() for name in getattr(room, "__all__", ())
    }
    names |= {f"tr.{name}": getattr(tr, name) for name in tr.__all__}
    typed = {}
    for name, thing in sorted(names.items(), key=lambda item: item[0].count(".")):
        if getattr(thing, "__module__", "").startswith("toprank."):
            alike = typed.setdefault(thing, [name])
            alike += [name] if name.count(".") == alike[0].count(".") else []
    return typed


def test_the_reference_holds_every_public_name_once_as_it_is_typed():
    page = (ROOT / "docs" / "reference.md").read_text()
    entries = re.findall(r"^::: (\S+)$(?:\n    options: \{(?:heading: ([\w.]+))?.*\}$)?", page, re.MULTILINE)
    assert len(entries) == page.count("\n::: ")
    things = [named(path) for path, _ in entries]
    assert [path for (path, _), thing in zip(entries, things, strict=True) if things.count(thing) > 1] == []
    public = public_names()
    assert {tr.read, tr.LinearRanker, tr.losses.ListNet, tr.solvers.Newton} <= public.keys()
    assert sorted(names[0] for thing, names in public.items() if thing not in things) == []
    headed = [(heading, public.get(thing, [""])) for (_, heading), thing in zip(entries, things, strict=True)]
    assert [heading for heading, names in headed if heading not in names] == []


VERBS = {"check", "evaluate", "make", "names", "read", "write"}
"""Functions that do the same to other things in another room: `tr.read` and `tr.clicks.read`."""


def test_no_public_name_has_two_meanings():
    """One name for one class or function, but for verbs that rooms share; classes never share a name."""
    things = {}
    for thing, names in public_names().items():
        things.setdefault(names[0].rpartition(".")[2], []).append(thing)
    shared = {name for name, alike in things.items() if len(alike) > 1}
    assert shared <= VERBS
    assert [name for name in shared if any(isinstance(thing, type) for thing in things[name])] == []


# Tables that are made from the code


def traits_table():
    rows = ["| loss | convex | smooth | gradient | curvature | cost | shifts | consistent with |", "|---" * 8 + "|"]
    for name in losses.names():
        traits = losses.make(name).traits
        cells = [
            f"`{name}`",
            "yes" if traits.convex else "no",
            "yes" if traits.smooth else "no",
            "exact" if traits.exact_gradient else "lambda",
            traits.curvature,
            traits.cost,
            "unseen" if traits.shift_invariant else "seen",
            traits.consistent or "–",
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def systems_table():
    rows = ["| system | idea | ranker, loss | options | grid | chosen by | source |", "|---" * 7 + "|"]
    for system in systems.SYSTEMS.values():
        grid = "; ".join(f"{key}: {', '.join(map(plainly, values))}" for key, values in system.grid.items())
        if system.refine:
            grid += f"; then C × {', '.join(map(plainly, system.refine))}"
        cells = [
            f"`{system.name}`",
            system.idea,
            f"`{system.ranker}`" + (f", `{system.loss}`" if system.loss else ""),
            ", ".join(f"{key}={plainly(value)}" for key, value in system.options.items()),
            grid,
            f"`{system.metric}`",
            system.source,
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def plainly(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


TABLE = re.compile(r"^<!-- begin (\w+) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
CHOOSING = ROOT / "docs" / "choosing.md"


def where_a_linear_ranker_ends(loss):
    """In the words of choosing.md, by the solver that the ranker takes."""
    if loss.traits.space == "class":
        return "not one score: `ExpectedGainRanker`"
    solver = type(tr.LinearRanker(loss)._solver(loss, SimpleNamespace(n_weights=10))).__name__
    if not loss.traits.exact_gradient:
        return f"no optimum: 30 steps (`{solver}`)"
    kind = "the optimum" if loss.traits.convex else "a stationary point"
    return f"{kind}{', certified' if solver == 'Bundle' else ''} (`{solver}`)"


def decision_table():
    """Situation and loss as the page has them; the rest from the loss."""
    rows = ["| your situation | loss | a linear ranker ends at | cost | consistent with |", "|---" * 5 + "|"]
    [shown] = [found for name, found in TABLE.findall(CHOOSING.read_text()) if name == "decision"]
    for situation, name in re.findall(r"^\| ([^|]+) \| `(\w+)` \|", shown, re.MULTILINE):
        loss = losses.make(name)
        cells = [where_a_linear_ranker_ends(loss), loss.traits.cost, loss.traits.consistent or "none known"]
        rows.append(f"| {situation} | `{name}` | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


TABLES = {"traits": traits_table, "systems": systems_table, "decision": decision_table}
PLACES = [
    ("loss-properties.md", "traits"),
    ("systems.md", "systems"),
    ("choosing.md", "decision"),
]


@pytest.mark.parametrize(("page", "name"), PLACES)
def test_tables_are_the_code(page, name):
    [shown] = [rows for found, rows in TABLE.findall((ROOT / "docs" / page).read_text()) if found == name]
    assert shown.split() == "\n".join(TABLES[name]()).split()
    assert shown.count("\n") > 5  # a table that became empty would agree with anything


def test_every_loss_has_its_place_in_the_advice():
    page = CHOOSING.read_text()
    assert [name for name in losses.names() if f"`{name}`" not in page] == []


@pytest.mark.nightly
def test_the_measured_losses():
    """The figures of choosing.md, and how many of the differences are significant."""
    page = CHOOSING.read_text()
    row = r"^\| `([\w-]+)` \| `\w+`[^|]* \| (0\.\d{4}) \| (0\.\d{4}) \|$"
    shown = {name: figures for name, *figures in re.findall(row, page, re.MULTILINE)}
    assert len(shown) == 10
    for column, collection in enumerate(("MQ2008", "OHSUMED")):
        folds, values = tr.folds(shared_data("letor", collection)), {}
        for name in shown:
            chosen = [tr.grid_search(name, fold.train, fold.valid, threads=1).ranker for fold in folds]
            parts = [
                tr.evaluate(ranker.predict(fold.test), fold.test) for ranker, fold in zip(chosen, folds, strict=True)
            ]
            if name != "LambdaMART":  # its last digits are LightGBM's
                assert f"{np.mean([part.mean['ndcg@10'] for part in parts]):.4f}" == shown[name][column], name
            values[name] = np.concatenate([part.per_query["ndcg@10"] for part in parts])
        pairs = list(combinations(values, 2))
        tests = [significance.randomization_test(values[a], values[b]) for a, b in pairs]
        p = significance.holm([test.p for test in tests])
        losers = [
            (b if test.difference > 0 else a) for (a, b), test, p in zip(pairs, tests, p, strict=True) if p <= 0.05
        ]
        assert set(losers) <= {"LeastSquares", "QueryLeastSquares"}
        assert f"{len(losers)} differ significantly on {collection}" in page or f"{len(losers)} on {collection}" in page


def test_every_loss_has_its_formula():
    page = (ROOT / "docs" / "loss-formulas.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(losses.names())


def test_the_table_of_conventions_is_the_code():
    words = {
        "no_relevant": {"zero": "0", "one": "1", "skip": "left out"},
        "ties": {"expected": "expectation", "file": "file order", "document-id": "document id"},
        "short_ndcg": {"end": "list's end", "zero": "0"},
        "short_precision": {"end": "list's end", "zero": "0", "pad": "padded"},
        "ap_norm": {"all": "all relevant", "min": "min(k, relevant)"},
    }
    page = (ROOT / "docs" / "conventions.md").read_text()
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:3] == "| `"
    ]
    shown = {row[0]: row[1:] for row in rows if row[0] in CONVENTIONS and len(row) == 8}
    assert shown == {
        name: [str(one.gain), str(one.discount), *(words[field][getattr(one, field)] for field in words)]
        for name, one in CONVENTIONS.items()
    }
    assert all(f"`{name}`" in page for name in MEASURES)


def test_the_figures_of_real_collections():
    page = (ROOT / "docs" / "conventions.md").read_text()
    files = {name: [shared_data("letor", name, f"S{i}.txt") for i in range(1, 6)] for name in ("MQ2008", "OHSUMED")}
    mq2008, ohsumed = map(tr.read, files.values())
    blank, short = mq2008.queries.max(mq2008.labels) == 0, mq2008.queries.sizes < 10
    assert f"MQ2008 has {mq2008.n_queries} queries; {blank.sum()} of them" in page
    assert f"{short.sum()} have fewer than 10 documents" in page
    for scores, data, names in (
        (mq2008.labels, mq2008, ["letor4", "standard", "lightgbm", "skip-blank"]),
        (np.zeros(ohsumed.n_documents), ohsumed, ["letor4", "standard"]),
    ):
        for name in names:
            assert f"{tr.evaluate(scores, data, 'ndcg@10', convention=name).mean['ndcg@10']:.3f}" in page


def test_every_dependency_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)[0]
        assert name == "toprank" or f"`{name}`" in page, name


def test_the_files_that_the_architecture_names_exist():
    source, page = ROOT / "src" / "toprank", (ROOT / "docs" / "architecture.md").read_text()
    rooms = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    assert {room for room, _ in rooms} == set().union(*FLOORS)
    named = [(room, name) for room, names in rooms for name in re.findall(r"`([\w/]+\.\w+)`", names)]
    homes = {(room, name): (source / room / name, source / name, ROOT / name) for room, name in named}
    assert [place for place, paths in homes.items() if not any(path.is_file() for path in paths)] == []
    paths = re.findall(r"^ +([a-z]+(?:\.[a-z_]+)+)  ", page, re.MULTILINE)
    assert len(paths) > 10  # the three paths are found
    files = {path: source / path.replace(".", "/") for path in paths}
    assert [path for path, file in files.items() if not (file.is_dir() or file.with_suffix(".py").is_file())] == []


def test_the_floors_are_those_of_the_import_test():
    [plan] = [block.body for block in blocks_in(ROOT / "docs" / "architecture.md", "text") if "errors" in block.body]
    floors = [set(line.split("  ")[0].split(" | ")) for line in plan.splitlines()]
    assert floors[::-1] == FLOORS


def test_contributing_lists_every_room_from_the_top_down():
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where things are")[2].partition("\n## ")[0]
    items = [item.partition("\n\n")[0] for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]
    names = set().union(*FLOORS)
    floors = [{name for name in re.findall(r"`(\w+)`", item) if name in names} for item in items]
    assert floors == FLOORS[::-1]
