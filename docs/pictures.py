"""Draws the pictures of the documentation from the embedded data: `python docs/pictures.py` (needs Chromium)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import toprank as tr
from toprank.metrics import Evaluation, evaluate_under_all

HERE = Path(__file__).parent / "images"
INK, ACCENT, MUTED = "#1b1f24", "#0a5fb4", "#9aa7b4"


def conventions() -> None:
    """The same scores under every convention."""
    truth = tr.synthetic(n_queries=300, n_documents=(3, 25), n_features=10, skew=1.5, seed=1)
    data = truth.replace(document_ids=[f"d{i}" for i in range(truth.n_documents)])
    scores = np.round(truth.expected_gain())  # few distinct values: many ties
    results = evaluate_under_all(scores, data, "ndcg@10")
    means = {name: r.mean["ndcg@10"] for name, r in results.items() if isinstance(r, Evaluation)}
    order = sorted(means, key=means.__getitem__)
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    colours = [ACCENT if name == "standard" else MUTED for name in order]
    bars = axes.barh(order, [means[name] for name in order], color=colours)
    axes.bar_label(bars, fmt="%.3f", padding=4, color=INK)
    axes.set_xlim(0, 1)
    axes.set_title("One ranking, one metric name: “NDCG@10” under nine conventions", loc="left", color=INK)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=False, labelbottom=False, colors=INK)
    figure.savefig(HERE / "conventions.png", dpi=130)


def report() -> None:
    """The top of the demo's report, as Chromium shows it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "toprank", "demo", "--out", folder], check=True)
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1400,1700"]
        picture = f"--screenshot={HERE / 'report.png'}"
        subprocess.run(["chromium", *options, picture, f"file://{folder}/report.html"], check=True)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    conventions()
    report()
