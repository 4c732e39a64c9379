"""What every ranker with probabilities of grades must promise."""

from __future__ import annotations

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError


def check_forecasts(ranker, test):
    """P(grade | x) forecasts DCG, and can be compared with what happened, as those of an ExpectedGainRanker."""
    chances = ranker.predict_proba(test)
    assert ranker.classes_.tolist() == [0, 1, 2, 3]
    expected = ranker.expected_dcg(test, k=1, gain="linear")
    first = [rows.start + int(np.argmax(chances[rows] @ (2.0 ** np.arange(4) - 1))) for rows in test.queries]
    own = ranker.expected_dcg(test, ranker.predict(test), k=1, gain="linear")
    np.testing.assert_allclose(own.mean, chances[first] @ np.arange(4.0))  # no ties: one document counts
    assert (expected.mean >= own.mean - 1e-12).all()  # its own order is the best for the gain that is asked for
    with pytest.raises(DataError, match="calibrate"):
        own.interval()
    curve = ranker.calibration_curve(test, at_least=2, bins=5)
    assert curve.documents.sum() == test.n_documents
    assert curve.documents @ curve.predicted == pytest.approx(chances[:, 2:].sum())
    assert curve.documents @ curve.observed == (test.labels >= 2).sum()


def check_calibration(ranker, held_out, test, path):
    """Trained under a ranking loss, a ranker refuses to forecast until it is calibrated, and keeps its order then."""
    with pytest.raises(DataError, match=r"does not calibrate .*ranker\.calibrate\(valid\)"):
        ranker.expected_dcg(test)
    order = np.argsort(np.argsort(ranker.predict(test)))
    ranker.calibrate(held_out).save(path)
    again = tr.load(path)
    assert again.calibration_ == ranker.calibration_
    np.testing.assert_allclose(ranker.predict(test), ranker.predict_proba(test) @ (2.0 ** np.arange(4) - 1))
    assert np.corrcoef(order, np.argsort(np.argsort(ranker.predict(test))))[0, 1] > 0.999  # ties of single precision
    value, other = ranker.expected_dcg(test), again.expected_dcg(test)
    np.testing.assert_allclose([*other, *other.interval()], [*value, *value.interval()], rtol=1e-5, atol=1e-6)
    judged = tr.evaluate(ranker.predict(test), test, "dcg@10").mean["dcg@10"]
    mean, deviation = value.overall()
    assert abs(judged - mean) < 4 * deviation
