"""What every ranker with probabilities of grades must promise."""

from __future__ import annotations

import numpy as np
import pytest


def check_forecasts(ranker, test):
    """P(grade | x) forecasts DCG, and can be compared with what happened, as those of an ExpectedGainRanker."""
    chances = ranker.predict_proba(test)
    assert ranker.classes_.tolist() == [0, 1, 2, 3]
    expected = ranker.expected_dcg(test, k=1, gain="linear")
    first = [rows.start + int(np.argmax(chances[rows] @ (2.0 ** np.arange(4) - 1))) for rows in test.queries]
    own = ranker.expected_dcg(test, ranker.predict(test), k=1, gain="linear")
    np.testing.assert_allclose(own.mean, chances[first] @ np.arange(4.0))  # no ties: one document counts
    assert (expected.mean >= own.mean - 1e-12).all()  # its own order is the best for the gain that is asked for
    curve = ranker.calibration_curve(test, at_least=2, bins=5)
    assert curve.documents.sum() == test.n_documents
    assert curve.documents @ curve.predicted == pytest.approx(chances[:, 2:].sum())
    assert curve.documents @ curve.observed == (test.labels >= 2).sum()
