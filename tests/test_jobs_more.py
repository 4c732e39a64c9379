"""What people come for, done the way they would do it: runs compared, scikit-learn's searches, an own loss, folds.

Notebooks, with tables, plots and progress: `tests/test_notebooks.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import toprank as tr
from support import toprank
from toprank.losses import BoundLoss, Loss, Traits
from toprank.losses.base import Diagonal

# ---- two runs and judgments ----


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """qrels.txt, bm25.run and dense.run, as evaluation campaigns hand them out; dense is right more often."""
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(0)
    qrels, lines = [], {"bm25": [], "dense": []}
    for query in range(60):
        grades = chance.permutation([2, 1, 1, 0, 0, 0, 0, 0])
        qrels += [f"q{query} 0 d{query}-{i} {grade}" for i, grade in enumerate(grades)]
        for name, noise in (("bm25", 2.0), ("dense", 0.5)):
            scores = grades + noise * chance.normal(size=len(grades))
            for rank, i in enumerate(np.argsort(-scores), start=1):
                lines[name].append(f"q{query} Q0 d{query}-{i} {rank} {scores[i]:.4f} {name}")
    (tmp_path / "qrels.txt").write_text("\n".join(qrels) + "\n")
    for name, of in lines.items():
        (tmp_path / f"{name}.run").write_text("\n".join(of) + "\n")
    return tmp_path


def test_two_runs_are_compared_with_statistics_and_a_report(runs):
    systems = {name: f"{name}.run" for name in ("bm25", "dense")}
    compared = tr.compare(systems, "qrels.txt", ["ndcg@10", "map"])
    [better] = [verdict for verdict in compared.summary.splitlines() if "ndcg@10" in verdict]
    assert better.startswith("dense is better than bm25 by")
    alone = tr.evaluate_run("qrels.txt", "dense.run", ["ndcg@10"])
    assert compared.means["dense"]["ndcg@10"] == pytest.approx(alone.mean["ndcg@10"])
    difference = next(d for d in compared.differences if d.metric == "ndcg@10")
    assert difference.interval.low < difference.difference < difference.interval.high < 0
    tr.report.write_html("report.html", tr.report.from_comparison(compared, "qrels.txt", systems))
    page = (runs / "report.html").read_text()
    assert "dense is better than bm25" in page
    assert "://" not in page.replace("http://www.w3.org/", "")  # nothing is fetched from elsewhere
    said = toprank("compare", "--qrels", "qrels.txt", "bm25.run", "dense.run", "--html", "told.html", "--json", "-q")
    told = json.loads(said.stdout)
    assert told["means"]["dense"]["ndcg@10"] == pytest.approx(compared.means["dense"]["ndcg@10"])
    assert said.stderr == ""
    assert "dense is better than bm25" in (runs / "told.html").read_text()


def test_a_run_of_other_queries_is_refused_in_a_sentence(runs):
    (runs / "other.run").write_text((runs / "bm25.run").read_text().replace("q", "x"))
    done = toprank("compare", "--qrels", "qrels.txt", "dense.run", "other.run", status=1)
    assert done.stdout == ""
    assert "same query ids" in done.stderr or "no judged query" in done.stderr
    assert "Traceback" not in done.stderr


# ---- scikit-learn's searches ----


def test_scikit_learn_searches_and_cross_validates_with_query_ids():
    import sklearn
    from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

    data = tr.synthetic(n_queries=60, n_documents=(3, 10), n_features=4, seed=0)
    X, y, qid = data.X, data.labels, data.qid
    folds = GroupKFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            tr.LinearRanker("ListNet"), {"l2": [1e3, 0.1]}, scoring=tr.make_scorer("ndcg@10"), cv=folds
        )
        search.fit(X, y, qid=qid, groups=qid)
        values = cross_val_score(
            tr.LinearRanker("ListNet", l2=0.1), X, y, scoring=tr.make_scorer("ndcg@10"), cv=folds,
            params={"qid": qid, "groups": qid},
        )  # fmt: skip
    by_hand = []
    for train, test in folds.split(X, y, groups=qid):
        ranker = tr.LinearRanker("ListNet", l2=0.1).fit(X[train], y[train], qid=qid[train])
        by_hand.append(tr.evaluate(ranker.predict(X[test]), y[test], qid=qid[test]).mean["ndcg@10"])
    np.testing.assert_allclose(values, by_hand)
    place = [one["l2"] for one in search.cv_results_["params"]].index(0.1)
    assert search.cv_results_["mean_test_score"][place] == pytest.approx(np.mean(by_hand))
    assert search.best_estimator_.predict(X).shape == y.shape


# ---- a loss of one's own ----


@dataclass(frozen=True)
class Lopsided(Loss):
    """Squared errors, those above the label costing more."""

    harm: float = 3.0
    traits = Traits(convex=True, smooth=True, shift_invariant=False, curvature="exact")

    def bind(self, judgments):
        return BoundLopsided(self.harm, judgments)


class BoundLopsided(BoundLoss):
    def __init__(self, harm, judgments):
        super().__init__(judgments)
        self.harm, self.labels, self.weights = harm, judgments.labels, judgments.weights

    def evaluate_block(self, block, scores, grad, requested):
        error = scores - self.labels[block.rows]
        cost = np.where(error > 0, self.harm, 1.0) * self.weights[block.rows]
        bend = 2 * cost * block.broadcast(block.scale)
        grad[:] = bend * error
        return block.sum(cost * error**2), Diagonal(bend) if requested.curvature else None


NETWORK = {"hidden": (16,), "epochs": 20, "batch_documents": 64, "learning_rate": 0.02, "dropout": 0.0, "device": "cpu"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (tr.LinearRanker, {"l2": 1e-3}),
        (tr.ExpectedGainRanker, {"l2": 1e-3, "max_iterations": 100}),
        (tr.TreeRanker, {"n_trees": 20, "num_leaves": 7, "min_data_in_leaf": 5, "threads": 1}),
        (tr.NeuralRanker, {**NETWORK, "threads": 1}),
    ],
    ids=["linear", "expected gain", "trees", "network"],
)
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
def test_an_own_loss_trains_every_scorer_and_is_searched_and_compared(kind, options, tmp_path):
    if kind is tr.NeuralRanker:
        pytest.importorskip("torch")
    data = tr.synthetic(n_queries=60, n_documents=(3, 10), n_features=4, n_grades=3, noise=0.3, seed=4)
    train, test = tr.split(data, (0.7, 0.3))
    ranker = kind(Lopsided(harm=2.0), **options).fit(train)
    scores = {"own loss": ranker.predict(test), "nothing learned": np.zeros(test.n_documents)}
    assert tr.compare(scores, test).summary.startswith("own loss is better than nothing learned")
    ranker.save(tmp_path / "own.toprank")
    loaded = tr.load(tmp_path / "own.toprank")  # predicts anywhere; only the class could train it further
    np.testing.assert_array_equal(loaded.predict(test), ranker.predict(test))
    with pytest.raises(tr.ToprankError, match="Lopsided"):
        loaded.fit(train)


# ---- published folds ----


def test_letor_folds_are_cross_validated_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(1, 4):
        (tmp_path / f"set/Fold{number}").mkdir(parents=True)
        parts = tr.split(tr.synthetic(n_queries=60, n_features=4, seed=0), seed=number)
        for name, part in zip(("train", "vali", "test"), parts, strict=True):
            tr.write(part, f"set/Fold{number}/{name}.txt")
    results = tr.Experiment("set", ["LeastSquares", "ListNet"], metrics="ndcg@10", cache_dir="runs", threads=1).run()
    assert results.folds() == ("Fold1", "Fold2", "Fold3")
    fold = tr.folds("set")[1]
    chosen = tr.grid_search("ListNet", fold.train, fold.valid)
    expected = tr.evaluate(chosen.ranker.predict(fold.test), fold.test).mean["ndcg@10"]
    assert results.by_fold()["ListNet"]["Fold2"] == pytest.approx(expected)
    systems = ("--systems", "LeastSquares,ListNet", "-m", "ndcg@10", "--threads", "1", "--cache-dir", "runs")
    told = json.loads(toprank("cv", "set", *systems, "--slice-by", "head:documents", "--json", "-q").stdout)
    of = told["datasets"]["set"]["conventions"]["standard"]
    assert of["mean_of_fold_means"]["ndcg@10"] == pytest.approx(results.fold_means())
    assert of["pooled_comparison"]["slices"]["column"] == "head:documents"


# ---- progress ----

_SEARCH = """
import sys
import toprank as tr
from toprank.model_selection import automatic
from toprank.display import progress

if __name__ == "__main__":
    automatic.SILENCE = progress.SILENCE = float(sys.argv[1])
    data = tr.synthetic(n_queries=40, n_documents=(3, 8), n_features=3, seed=0)
    print(tr.auto(data, time_budget=0.2, threads=1).name)
"""


@pytest.mark.parametrize(("patience", "speaks"), [("0", True), ("1000", False)])
def test_a_search_in_a_script_speaks_into_a_pipe_once_it_takes_long(tmp_path, patience, speaks):
    (tmp_path / "script.py").write_text(_SEARCH)
    done = subprocess.run([sys.executable, tmp_path / "script.py", patience], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1  # results go there, and nothing else
    assert bool(done.stderr) == speaks
    assert "\r" not in done.stderr
    assert "\033" not in done.stderr
