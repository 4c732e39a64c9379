"""Rankers trained under a loss of one's own: saved by its name, read as rankers that predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError
from toprank.losses import BoundLoss, Loss, Traits
from toprank.losses.base import Diagonal
from toprank.rankers.schema import from_plain


@dataclass(frozen=True)
class Careful(Loss):
    """Squares, and a function inside that no file could hold."""

    power: float = 2.0
    of: object = np.square
    traits = Traits(convex=True, smooth=True, shift_invariant=False, curvature="exact")

    def bind(self, judgments):
        return _Bound(self, judgments)


class _Bound(BoundLoss):
    def __init__(self, loss, judgments):
        super().__init__(judgments)
        self.loss, self.labels, self.weights = loss, judgments.labels, judgments.weights

    def evaluate_block(self, block, scores, grad, requested):
        error, weights = scores - self.labels[block.rows], self.weights[block.rows]
        bend = 2 * weights * block.broadcast(block.scale)
        grad[:] = bend * error
        return block.sum(weights * self.loss.of(error)), Diagonal(bend) if requested.curvature else None


RANKERS = {
    "linear": tr.LinearRanker(Careful()),
    "trees": tr.TreeRanker(Careful(), n_trees=5, num_leaves=4, threads=1),
    "grades of trees": tr.TreeRanker(Careful(), outputs="grades", n_trees=3, num_leaves=4, threads=1),
    "network": tr.NeuralRanker(Careful(), hidden=(4,), epochs=1),
    "expected gain": tr.ExpectedGainRanker(Careful()),
    "blend": tr.BlendRanker([tr.LinearRanker(Careful()), tr.LinearRanker()]),
}


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
def test_rankers_under_a_loss_of_ones_own_are_saved_and_predict(tmp_path, name):
    data, path = tr.synthetic(n_queries=30, n_grades=3, seed=0), tmp_path / "m.toprank"
    ranker = RANKERS[name].fit(data)
    ranker.save(path)
    assert b"np.square" not in path.read_bytes()
    loaded = tr.load(path)
    assert loaded.predict(data).tobytes() == ranker.predict(data).tobytes()
    if name == "blend":
        loaded = loaded.rankers_[0]
    with pytest.raises(DataError, match=r"trained under Careful.*not trained further.*set_params\(loss="):
        loaded.fit(data)
    assert loaded.predict(data).shape == (data.n_documents,)  # a fit that is refused leaves it as it was
    loaded.save(path)  # once more, from what was read
    assert tr.load(path).loss == loaded.loss
    trained = loaded.set_params(loss=Careful()).fit(data)
    assert trained.predict(data).shape == (data.n_documents,)


class Odds(tr.losses.Ordinal):
    """A loss of one's own whose columns are thresholds."""


def test_the_file_says_what_the_columns_of_a_loss_of_ones_own_are(tmp_path):
    data, path = tr.synthetic(n_queries=30, n_grades=3, seed=0), tmp_path / "m.toprank"
    ranker = tr.ExpectedGainRanker(Odds()).fit(data)
    assert ranker.coef_.shape == (1, data.n_features)  # one score, and thresholds as intercepts
    ranker.save(path)
    loaded = tr.load(path)
    assert loaded.predict(data).tobytes() == ranker.predict(data).tobytes()
    assert loaded.loss.traits.columns == "thresholds"


def test_files_of_before_say_nothing_of_columns():
    stated = {"own_loss": {"name": "Mine", "space": "class"}}
    assert from_plain(stated).traits.columns == "grades"


def test_a_loss_of_ours_with_a_function_inside_is_named_too(tmp_path):
    data = tr.synthetic(n_queries=30, n_grades=3, seed=0)
    loss = tr.losses.Squared(gain=lambda grade: grade**2)
    ranker = tr.LinearRanker(loss).fit(data)
    ranker.save(tmp_path / "m.toprank")
    loaded = tr.load(tmp_path / "m.toprank")
    assert loaded.predict(data).tobytes() == ranker.predict(data).tobytes()
    with pytest.raises(DataError, match="trained under Squared"):
        loaded.fit(data)
