"""Results in a notebook: a real kernel runs the cells, and what it would show is looked at."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from textwrap import dedent

import numpy as np
import pytest

import toprank as tr
from toprank.display import progress
from toprank.display.pictures import Picture
from toprank.display.progress import ProgressLine
from toprank.display.tables import Table, frame_of
from toprank.errors import DataError, UnknownNameError
from toprank.rankers.early_stopping import Epoch, TrainingProgress

NASTY = "<script>alert(1)</script>"
VOID = {"br", "hr", "meta", "input", "link"}


class Page(HTMLParser):
    """Tags that are all closed, the names that occur, and the text of the cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.cells, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        if self.open and self.open[-1] != "style":
            self.words.append(data)


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=30, n_documents=(3, 12), n_features=4, seed=0)


@pytest.fixture(scope="module")
def scores(data):
    return {NASTY: data.expected_gain(), "first": data.X[:, 0], "second": data.X[:, 1]}


@pytest.fixture(scope="module")
def shown(data, scores):
    """One of each kind of result."""
    pytest.importorskip("optuna")
    train, valid = tr.split(data, (0.5, 0.5))
    compared = tr.compare(scores, data, ["ndcg@10", "map"])
    return {
        "Evaluation": tr.evaluate(scores["first"], data, ["ndcg@10", "map"]),
        "Comparison": compared,
        "SelectionResult": tr.tune("LeastSquares", train, valid, space={"l2": (1e-3, 1.0, "log")}, n_trials=2),
        "Results": tr.Experiment(data, {NASTY: "LeastSquares", "ListNet": "ListNet"}, n_folds=3, threads=1).run(),
        "ComparisonReport": tr.report.from_comparison(compared, data, scores, title=NASTY),
    }


KINDS = ["Evaluation", "Comparison", "SelectionResult", "Results", "ComparisonReport"]


@pytest.mark.parametrize("kind", KINDS)
def test_html_says_what_the_text_says_and_is_escaped_and_small(shown, kind):
    html = shown[kind]._repr_html_()
    page = Page(html)
    assert page.seen.count("table") >= 1
    assert "script" not in page.seen
    assert "http" not in html
    assert len(html) < 10_000
    numbers = re.findall(r"\d\.\d{4}", str(shown[kind]))
    assert numbers
    assert set(numbers) <= set(re.findall(r"\d\.\d{4}", html))
    # Nothing outside is touched, and colors are those of the notebook, light or dark.
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    chosen = [one.strip() for rule in style.split("}")[:-1] for one in rule.split("{")[0].split(",")]
    assert all(one.startswith(".toprank") for one in chosen)
    assert not re.search(r"(?<!-)color:|background", style)


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_beside_the_html_is_one_short_line(shown, kind):
    said = repr(shown[kind])
    assert said.startswith(f"{kind}(")
    assert "\n" not in said
    assert len(said) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_plots_are_drawings_that_stand_alone(shown, kind, tmp_path):
    picture = shown[kind].plot()
    assert isinstance(picture, Picture)
    assert "svg" in Page(picture._repr_html_()).seen
    root = ET.fromstring(picture._repr_svg_())
    assert root.get("aria-label") == picture.name
    assert len(picture._repr_html_()) < 20_000
    assert "prefers-color-scheme" in picture._repr_svg_()
    assert "background" not in picture._repr_html_()  # a notebook has its own paper
    picture.save(tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text() == picture.svg()
    with pytest.raises(DataError, match=r"ends in \.svg"):
        picture.save(tmp_path / "plot.jpg")


@pytest.mark.parametrize("kind", ["Evaluation", "Comparison", "Results", "ComparisonReport"])
def test_a_metric_that_was_not_asked_for_cannot_be_drawn(shown, kind):
    with pytest.raises(UnknownNameError, match="ndcg@10"):
        shown[kind].plot("ndcg@11")


def test_plots_show_the_numbers(shown, data):
    evaluation, compared, results = shown["Evaluation"], shown["Comparison"], shown["Results"]
    counts = re.findall(r"<title>[^<]*: ([\d,]+)</title>", evaluation.plot("map").svg())
    assert sum(map(int, counts)) == data.n_queries
    assert f"mean {evaluation.mean['map']:.4f}" in evaluation.plot("map").svg()
    words = compared.plot("map").svg()
    assert words.count("whisker") == 3 * sum(one.metric == "map" for one in compared.differences)
    words = results.plot("map").svg()
    for system, mean in results.fold_means("map").items():
        assert f"{mean:.4f}" in words
        assert all(f"{value:.4f}" in words for value in results.by_fold("map")[system].values())


def test_an_evaluation_in_which_nothing_counts_says_so():
    data = tr.RankingData(np.zeros((2, 1)), [0, 0], qid=[1, 1])
    with pytest.raises(DataError, match="no query has a value under ndcg@10"):
        tr.evaluate([1.0, 2.0], data, "ndcg@10", convention="skip-blank").plot()


@pytest.mark.parametrize("library", ["arrow", "pandas", "polars"])
def test_frames_hold_the_numbers(shown, data, library):
    if library != "arrow":
        pytest.importorskip(library)

    def columns(kind):
        frame = shown[kind].to_frame(library)
        assert type(frame).__module__.split(".")[0] == {"arrow": "pyarrow"}.get(library, library)
        if library == "polars":
            return frame.to_dict(as_series=False)
        return frame.to_pydict() if library == "arrow" else frame.to_dict("list")

    found = columns("Evaluation")
    assert list(found) == ["qid", "ndcg@10", "map"]
    assert np.mean(found["map"]) == pytest.approx(shown["Evaluation"].mean["map"])
    found, compared = columns("Comparison"), shown["Comparison"]
    assert found["verdict"] == compared.summary.splitlines()
    assert found["low"] == [one.interval.low for one in compared.differences]
    found = columns("SelectionResult")
    assert found["value"] == [row["value"] for row in shown["SelectionResult"].trials]
    assert found["l2"] == [row["options"]["l2"] for row in shown["SelectionResult"].trials]
    assert found["high"] == [row["interval"][1] for row in shown["SelectionResult"].trials]
    assert len(columns("Results")["value"]) == shown["Results"].per_query.num_rows
    found = columns("ComparisonReport")
    assert found["mean"] == [mean for of in compared.means.values() for mean in of.values()]
    assert all(low <= mean <= high for low, mean, high in zip(found["low"], found["mean"], found["high"], strict=True))


def test_without_pandas_a_frame_says_what_to_do(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(DataError, match="pip install polars, or use kind='arrow'"):
        shown["Evaluation"].to_frame("polars")
    with pytest.raises(UnknownNameError, match="pandas"):
        shown["Evaluation"].to_frame("panda")


def test_a_long_table_is_cut_and_says_so():
    table = Table(("n",), [(str(i),) for i in range(1000)], names=0)
    html = table.html()
    assert html.count("<td") + int(re.search(r"and (\d+) more rows", html)[1]) == 1000
    assert "more rows" not in Table(("n",), table.rows[:3], names=0).html()


def test_values_of_several_kinds_become_text():
    found = frame_of({"hidden": [(64,), None, "none"], "l2": [1, 0.5, None]}, "arrow").to_pydict()
    assert found == {"hidden": ["(64,)", None, "none"], "l2": [1.0, 0.5, None]}


def test_slices_are_shown_the_same_way(data, scores):
    device = [NASTY if place % 3 else "desk" for place in range(data.n_queries)]
    evaluated = tr.evaluate(scores["first"], data, ["ndcg@10", "map"]).by_slice(device)
    compared = tr.compare(scores, data, slice_by=device, min_queries=15, n_permutations=200, n_resamples=200)
    for one, table, rows in ((evaluated, evaluated._parts()[0], 2), (compared.slices, compared.slices.table(), 6)):
        page = Page(one._repr_html_())
        assert "script" not in page.seen
        assert page.cells == [cell for row in (table.header, *table.rows) for cell in row]
        assert one.to_frame("arrow").num_rows == rows
        assert "\n" not in repr(one)
    assert Page(compared._repr_html_()).cells[-len(page.cells) :] == page.cells
    frame = compared.slices.to_frame().set_index("slice")
    assert frame.loc["desk", "p_adjusted"].isna().all()  # fewer than 15 queries
    assert frame.loc[NASTY, "p_adjusted"].notna().all()


def test_examinations_and_choices_are_shown_the_same_way(data):
    train, valid = tr.split(data, (0.5, 0.5))
    sick = data.replace(feature_names=[NASTY, "b", "c", "d"], X=data.X * [0, 1, 1, 1])
    report, selected = tr.check(sick), tr.grid_search("LeastSquares", train, valid)
    choice = tr.auto(train, valid, time_budget=None, max_trials=3, threads=1)  # however busy the machine is
    for one, rows in ((report, len(report.findings)), (selected, len(selected.trials)), (choice, len(choice.trials))):
        page = Page(one._repr_html_())
        assert "script" not in page.seen
        assert "\n" not in repr(one)
        assert len(repr(one)) < 200
        assert one.to_frame("arrow").num_rows == rows
    assert any(NASTY in words for words in Page(report._repr_html_()).words)
    assert f"{selected.value:.4f}" in Page(selected._repr_html_()).words[0]
    judged = [row["name"] for row in choice.trials if row["value"] is not None]
    assert judged == Page(choice._repr_html_()).cells[8::7]  # the second of seven columns, behind the header


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_gets_whole_lines_now_and_then(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    told = ProgressLine(10.0, over=True)
    for second in range(35):
        clock[0] = float(second)
        told(f"step {second}")
    told("done", last=True)
    assert sys.stderr.getvalue().splitlines() == ["step 0", "step 10", "step 20", "step 30", "done"]


def test_a_terminal_gets_one_line_that_is_written_over(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    told = ProgressLine(10.0, over=True)
    for step in range(100):
        clock[0] = 0.01 * step
        told(f"step {step}")
    told.end()
    assert sys.stderr.getvalue().count("\n") == 1
    assert sys.stderr.getvalue().endswith("\r\033[Kstep 99\n")
    assert sys.stderr.getvalue().count("step") < 10  # no flood


def test_rounds_are_told_now_and_then_to_a_file(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    tell = TrainingProgress("map")
    for number in range(1, 31):
        clock[0] = float(number)
        tell(Epoch(number, 30, 0.1, None, 0.5, number, float(number), 30.0 - number))
    numbers = re.findall(r"epoch (\d+)/30", sys.stderr.getvalue())
    assert numbers == ["1", "11", "21", "30"]


# A notebook, executed


CELLS = {
    "data": """
        import toprank as tr
        data = tr.synthetic(n_queries=40, n_documents=(3, 12), n_features=4, seed=0)
        train, valid = tr.split(data, (0.5, 0.5))
        scores = {"best": data.expected_gain(), "<b>first</b>": data.X[:, 0]}
        data""",
    "evaluation": "evaluation = tr.evaluate(scores['best'], data, ['ndcg@10', 'map'])\nevaluation",
    "sliced": "evaluation.by_slice('head:documents', min_queries=2)",
    "comparison": "comparison = tr.compare(scores, data)\ncomparison",
    "training": "trees = tr.TreeRanker(n_trees=400, num_leaves=4, early_stopping=None, threads=1, verbose=True)\n"
    "_ = trees.fit(train, valid=valid)",
    "linear": "_ = tr.LinearRanker('ListNet', verbose=True).fit(train)",
    "tuning": "tuned = tr.tune('LeastSquares', train, valid, n_trials=4, verbose=True)\ntuned",
    "experiment": "results = tr.Experiment(data, ['LeastSquares', 'ListNet'], n_folds=3, threads=1).run()\nresults",
    "silent": "_ = tr.Experiment(data, 'LeastSquares', n_folds=3, threads=1).run(verbose=False)",
    "report": "content = tr.report.from_comparison(comparison, data, scores)\ncontent",
    "plots": "for one in (evaluation, comparison, tuned, results, content):\n    display(one.plot())",
    "frame": "comparison.to_frame()",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """cell → its outputs, as a notebook keeps them."""
    pytest.importorskip("optuna")
    pytest.importorskip("ipykernel")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(dedent(source)) for source in CELLS.values()]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    nbformat.validate(book)
    return {name: cell.outputs for name, cell in zip(CELLS, book.cells, strict=True)}


def test_a_notebook_shows_tables(outputs):
    for name in ("evaluation", "sliced", "comparison", "tuning", "experiment", "report"):
        shown = outputs[name][-1]["data"]
        page = Page(shown["text/html"])
        assert "table" in page.seen
        assert any(re.fullmatch(r"0\.\d{4}\*?", cell) for cell in page.cells)
        assert "b" not in page.seen
        assert len(shown["text/plain"]) < 200
    assert any("<b>first</b>" in cell for cell in Page(outputs["comparison"][-1]["data"]["text/html"]).cells)
    assert len(outputs["data"][-1]["data"]["text/plain"]) < 300
    assert "table" in Page(outputs["frame"][-1]["data"]["text/html"]).seen


def test_a_notebook_shows_plots(outputs):
    drawn = [one["data"] for one in outputs["plots"]]
    assert len(drawn) == 5
    for one in drawn:
        assert "svg" in Page(one["text/html"]).seen
        assert one["text/plain"].startswith("Picture(")
        ET.fromstring(one["image/svg+xml"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("training", r"round 400/400  train ndcg@10 .* about 0 s left"),
        ("linear", r"iteration +\d+  value .*"),
        ("tuning", r"4/4 trials .* about 0 s left"),
        ("experiment", r"6 of 6 cells\."),
    ],
)
def test_progress_in_a_notebook_is_one_line_that_is_written_over(outputs, name, words):
    told = [one for one in outputs[name] if "text/html" not in one.get("data", {})]
    assert [one["output_type"] for one in told] == ["display_data"]
    assert re.fullmatch(words, told[0]["data"]["text/plain"])
    assert set(told[0]["data"]) == {"text/plain"}


def test_a_notebook_is_silent_where_that_is_asked_for(outputs):
    assert outputs["silent"] == []
    assert not [one for cell in outputs.values() for one in cell if one["output_type"] in ("stream", "error")]


def test_latex_of_every_sign_is_plain_text_and_numbers_are_alike():
    from toprank.display.tables import Table

    rows = [("a ≤ b", "0.5", "1.91e-05 [-0.00001, 0.00073]*"), ("–", "0.25", "–")]
    table = Table(("system", "ndcg@10", "difference"), rows, names=1, best=frozenset({(0, 1)}), decimals=4)
    written = table.latex()
    assert written.isascii()
    assert r"a $\le$ b & \textbf{0.5000} & 0.0000 {[}0.0000, 0.0007{]}{*} \\" in written
    assert r"-- & 0.2500 & -- \\" in written
    assert "resizebox" not in written
    wide = Table(("system", *(f"metric number {k}" for k in range(9))), [("x", *["0.5"] * 9)], names=1).latex()
    assert wide.startswith("\\begin{center}\n\\resizebox{\\textwidth}{!}{\\begin{tabular}")
    assert wide.count("{") == wide.count("}")


def test_latex_of_greek_letters_is_plain_text():
    from toprank.display.tables import latex_text

    assert latex_text("α·R + β, Λ³") == r"$\alpha$$\cdot$R + $\beta$, $\Lambda$$^3$"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_and_fits_the_page(tmp_path):
    """Every sign that a table may hold, names that look like commands, and a table wider than the page."""
    from toprank.display.tables import _LATEX, Table, latex_text

    signs = latex_text(" ".join(chr(code) for code in _LATEX))
    wide = ("a_b & 50% #1 {x} \\ ~^", *["-0.1234 [-0.5, 0.5]*"] * 9)
    tables = [Table(("system", *(f"metric {k}" for k in range(9))), [wide], names=1, best=frozenset({(0, 3)}))]
    tables.append(Table(("*", "[x]"), [("*", "0.5"), ("[a]", "–")], names=1))
    body = "\n\n".join([signs, *(table.latex() for table in tables), signs])
    head = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}"
    (tmp_path / "page.tex").write_text(f"{head}\n{body}\n\\end{{document}}\n")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "page.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    told = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, told
    assert "Overfull" not in told
    assert "Missing character" not in told
