"""How often the first position of each context is clicked: what curves, each relative to its own, leave open."""

from __future__ import annotations

import numpy as np

from toprank.clicks.harvests import components, relative_examinations
from toprank.clicks.log import ClickLog, sums, sums_by
from toprank.clicks.shrinking import shrunk
from toprank.compute import FloatArray, IntArray

_JOINED = 1e-6  # clicks that join contexts: none but those of documents do


def scales(log: ClickLog, number: IntArray, values: FloatArray) -> FloatArray:
    """How often the first position of each context is clicked, by documents that several contexts showed.

    A document's clicks in a context are its worth × the scale × the looks that its positions had there. Contexts that
    share no documents, such as classes of queries, cannot be compared, and need not be. Few clicks are drawn towards 1
    as curves are towards the whole. The mean over sessions is 1.
    """
    n_contexts = len(values)
    of_session = number[log.offsets[:-1]]
    known = of_session >= 0
    sessions = sums(of_session[known], log.session_weights[known], n_contexts)
    looks = np.where(number >= 0, values[np.maximum(number, 0), log.position - 1], np.nan)
    used = looks > 0
    weight = log.impression_weights
    key, (shown, clicked) = sums_by(
        log.pair[used] * np.int64(n_contexts) + number[used], (looks * weight)[used], (log.clicks * weight)[used]
    )
    document, context = np.unique(key // n_contexts, return_inverse=True)[1], key % n_contexts
    shared = np.bincount(document)[document] > 1
    scales_found = np.ones(n_contexts)
    if not shared.any():
        return scales_found
    document, context, shown, clicked = document[shared], context[shared], shown[shared], clicked[shared]
    for group in _groups(document, context, n_contexts):
        of_group = np.isin(context, group)
        scale = _relative(
            document[of_group],
            np.searchsorted(group, context[of_group]),
            shown[of_group],
            clicked[of_group],
            len(group),
        )
        weight = sessions[group] / max(sessions[group].sum(), 1)
        scales_found[group] = scale / max(float(scale @ weight), 1e-300)
    return scales_found


def _groups(document: IntArray, context: IntArray, several: int) -> list[IntArray]:
    """Contexts that share documents, two or more."""
    from scipy.sparse import csr_matrix

    of = csr_matrix((np.ones(len(document)), (document, context)), shape=(int(document.max()) + 1, several))
    label = components(of.T @ of)
    groups = [np.flatnonzero(label == group) for group in np.unique(label[np.unique(context)])]
    return [group for group in groups if len(group) > 1]


def _relative(
    document: IntArray, context: IntArray, shown: FloatArray, clicked: FloatArray, several: int
) -> FloatArray:
    """The scales of contexts, relative to each other."""
    document = np.unique(document, return_inverse=True)[1]
    begins = np.searchsorted(document, np.arange(int(document.max()) + 2))
    scale, _ = relative_examinations(begins, context.astype(np.int32), shown, clicked, several, _JOINED)
    clicks = sums(context, clicked, several)
    if not clicks.any():
        return np.ones(several)
    expected = sums(context, shown, several) * (clicks.sum() / shown.sum())
    with np.errstate(divide="ignore"):
        deviation = np.where(clicks > 0, np.log(scale) - np.average(np.log(scale), weights=clicks), -np.inf)
        noise = np.where(clicks > 0, 1 / clicks, np.inf)
    shrinkage = shrunk(deviation[:, None], noise[:, None], expected[:, None], clicks / clicks.sum())
    return np.exp(shrinkage.deviation[:, 0])
