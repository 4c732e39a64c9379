"""What clicks say of positions when nobody asks how much each document attracts.

Of C clicks on a document that was shown n_k times at position k, C n_k θ_k / Σ n_j θ_j are expected at k, however much
the document attracts. That holds for one impression a document as for thousands, so the θ that balance these sums have
none of the bias of a fit that must also learn an attraction for each document. They maximise the likelihood of where
clicks fell, given how many there were of each document, as if clicks were Poisson; it is concave in log θ.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray

__all__ = ["relative_examinations"]

_MOST_STEPS = 100
_STILL = 1e-10  # of log θ: steps are Newton's, so that the next one would be shorter than rounding
_ROUNDING = 1e-15  # of the likelihood: less than this a step cannot be seen to raise it
_LONGEST = 3.0  # of log θ in one step: far from the maximum the curvature tells little


def relative_examinations(
    begins: IntArray,
    place: npt.NDArray[np.int32],
    shown: FloatArray,
    clicked: FloatArray,
    n_places: int,
    prior: float,
) -> tuple[FloatArray, bool]:
    """The examination of each place, relative to the first, and whether the steps came to rest.

    Args:
        begins: where the cells of each document begin, and the end.
        place: of each cell.
        shown: impressions of the document at the place.
        clicked: clicks among them.
        n_places: how many places there are.
        prior: clicks at each place on a document more, which was shown once at each: it keeps places apart from 0 and
            joined to each other.

    >>> begins, place = np.array([0, 2, 4]), np.array([0, 1, 0, 1], dtype=np.int32)
    >>> shown, clicked = np.array([8.0, 8, 3, 6]), np.array([4.0, 2, 1, 1])
    >>> relative_examinations(begins, place, shown, clicked, 2, 1e-9)[0].round(6).tolist()
    [1.0, 0.5]
    """
    from scipy.sparse import csr_matrix

    every = np.arange(n_places, dtype=np.int32)
    shape = (len(begins), n_places)  # the last row is the document of the prior
    pointers = np.append(begins, begins[-1] + n_places)
    times = csr_matrix((np.append(shown, np.ones(n_places)), np.append(place, every), pointers), shape=shape)
    clicks = csr_matrix((np.append(clicked, np.full(n_places, prior)), times.indices, pointers), shape=shape)
    of_document, of_place = (np.asarray(clicks.sum(axis=axis)).ravel() for axis in (1, 0))
    told = of_document > 0
    times, of_document = times[told], of_document[told]

    def value(log_theta: FloatArray) -> float:
        return float(of_place @ log_theta - of_document @ np.log(times @ np.exp(log_theta)))

    log_theta, reached = np.zeros(n_places), value(np.zeros(n_places))
    for _ in range(_MOST_STEPS):
        expected = times.multiply(np.exp(log_theta)).tocsr()
        shares = expected.multiply((1 / np.asarray(expected.sum(axis=1)).ravel())[:, None]).tocsr()
        gradient = of_place - shares.T @ of_document
        weighed = shares.multiply(of_document[:, None])
        curvature = np.diag(shares.T @ of_document) - (shares.T @ weighed).toarray()
        step = np.zeros(n_places)  # the first stays, since only ratios are in the clicks
        step[1:] = np.linalg.solve(curvature[1:, 1:], gradient[1:])
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-300))
        while (there := value(log_theta + step)) < reached - 1e-12 * abs(reached):
            step /= 2
        log_theta, reached = log_theta + step, there
        if np.abs(step).max() <= _STILL or gradient @ step <= _ROUNDING * (1 + abs(reached)):
            return np.exp(log_theta), True
    return np.exp(log_theta), False
