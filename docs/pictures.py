"""Draws the pictures of the documentation from the embedded data: `python docs/pictures.py` (needs Chromium)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import toprank as tr
from toprank.evaluation import Evaluation, evaluate_all_conventions

HERE = Path(__file__).parent / "images"
INK, ACCENT, MUTED = "#1b1f24", "#0a5fb4", "#9aa7b4"


def conventions() -> None:
    """The same scores under every convention."""
    truth = tr.synthetic(n_queries=300, n_documents=(3, 25), n_features=10, skew=1.5, seed=1)
    data = truth.replace(document_ids=[f"d{i}" for i in range(truth.n_documents)])
    scores = np.round(truth.expected_gain())  # few distinct values: many ties
    results = evaluate_all_conventions(scores, data, "ndcg@10")
    means = {name: r.mean["ndcg@10"] for name, r in results.items() if isinstance(r, Evaluation)}
    order = sorted(means, key=means.__getitem__)
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    colors = [ACCENT if name == "standard" else MUTED for name in order]
    bars = axes.barh(order, [means[name] for name in order], color=colors)
    axes.bar_label(bars, fmt="%.3f", padding=4, color=INK)
    axes.set_xlim(0, 1)
    axes.set_title("One ranking, one metric name: “NDCG@10” under nine conventions", loc="left", color=INK)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=False, labelbottom=False, colors=INK)
    figure.savefig(HERE / "conventions.png", dpi=130)


def report() -> None:
    """The top of the demo's report, as Chromium shows it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "toprank", "demo", "--synthetic", "-o", folder], check=True)
        screenshot(Path(folder, "report.html"), "report.png", "1400,1700")


def search() -> None:
    """The search page on Python's documentation."""
    with tempfile.TemporaryDirectory() as folder:
        index = f"{folder}/python.index"
        tr.search.index("python-docs", index).train()
        command = [sys.executable, "-m", "toprank", "search", "serve", index, "--port", "0", "--log", f"{folder}/used"]
        service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        told = next(line for line in map(json.loads, service.stderr or ()) if line["event"] == "ready")
        screenshot(f"{told['url']}/?q=parse+a+json+file", "search.png", "1200,860")
        service.terminate()
        service.wait()


def screenshot(page: Path | str, name: str, size: str) -> None:
    """A page as Chromium shows it: a file, or an address."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=10000"]
    options += [f"--window-size={size}", f"--screenshot={HERE / name}"]
    subprocess.run(["chromium", *options, page if isinstance(page, str) else f"file://{page}"], check=True)


def notebook() -> None:
    """What the cells of docs/notebooks.md show, on light and on dark paper."""
    data = tr.synthetic(n_queries=200, seed=0)
    train, _, test = tr.split(data, (0.5, 0.25, 0.25))
    names = ("LeastSquares", "ListNet", "RankNet-linear")
    scores = {name: tr.systems.get(name).make().fit(train).predict(test) for name in names}
    evaluation = tr.evaluate(scores["ListNet"], test, ["ndcg@10", "map"])
    comparison = tr.compare(scores, test, ["ndcg@10", "map"], baseline="LeastSquares")
    cells = [("evaluation", evaluation), ('evaluation.plot("map")', evaluation.plot("map")),
             ("comparison", comparison), ("comparison.plot()", comparison.plot())]  # fmt: skip
    shown = "".join(f"<pre>{source}</pre>{result._repr_html_()}" for source, result in cells)
    side = "width:50%;box-sizing:border-box;padding:16px 24px;overflow:hidden"
    light, dark = "background:#fff;color:#1b1f24", "background:#14171a;color:#e6e9ec"
    sides = "".join(f'<div style="{side};{colors}">{shown}</div>' for colors in (light, dark))
    style = "body{margin:0;display:flex;font:13px system-ui,sans-serif}pre{background:#8883;padding:8px;font-size:13px}"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "notebook.html")
        page.write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>{sides}", encoding="utf-8")
        screenshot(page, "notebook.png", "1400,1400")


def clicks() -> None:
    """The curves of docs/learning-from-clicks.md, from the table there (`benchmarks/clicks_training.py` prints it)."""
    page = (HERE.parent / "learning-from-clicks.md").read_text(encoding="utf-8")
    table = page[page.index("| sessions | naive |") :].split("\n\n")[0]
    head, _, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    values = np.array([[float(cell.replace(",", "")) for cell in row] for row in rows])
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    styles = ["o-", "^-", "s-", "D-", "--"]
    for place, (name, style) in enumerate(zip(head[1:], styles, strict=True), start=1):
        color = {"naive": MUTED, "full information": INK}.get(name, ACCENT)
        axes.plot(values[:, 0], values[:, place], style, color=color, label=name.replace("`", ""), fillstyle="none")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_xscale("log")
    axes.set_xlabel("sessions")
    axes.set_title("NDCG@10 on MQ2008, trained on simulated clicks", loc="left", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "clicks.png", dpi=130)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    clicks()
    conventions()
    report()
    search()
    notebook()
