"""Pseudo-relevance feedback (Rocchio): similarity of each candidate to the top candidates of the first stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.text import EncodedDocuments
from toprank.text.documents import cosine_values

FEEDBACK = {
    "feedback": "cosine similarity to the mean tf-idf vector of the top ten candidates",
    "lsa feedback": "cosine similarity to the mean LSA vector of the top ten candidates",
}
"""A candidate among the top ten is compared with the mean of the other nine."""
_N_FEEDBACK_DOCUMENTS = 10


class Neighbors:
    """Unit-length document vectors of an index: sparse tf-idf and dense LSA."""

    def __init__(self, documents: EncodedDocuments) -> None:
        bags = documents.fields[0].bags
        values, lengths = cosine_values(bags, documents.statistics.idf(documents.known))
        scaled = values / np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(bags.starts))
        self._words = bags.matrix(max(len(documents.vocabulary), 1), scaled.astype(np.float32))
        self._directions = documents.vectors

    def features(self, rows: IntArray) -> FloatArray:
        """Return the features `FEEDBACK` for the candidates of one query, which are sorted best first."""
        out = np.zeros((len(rows), len(FEEDBACK)))
        if len(rows) > 1:
            best = min(_N_FEEDBACK_DOCUMENTS, len(rows))
            words = self._words[rows]
            center = np.asarray(words[:best].sum(axis=0)).ravel()
            own = np.asarray(words.multiply(words).sum(axis=1)).ravel()
            out[:, 0] = _cosines(np.asarray(words @ center).ravel(), own, float(center @ center), best)
            vectors = self._directions[rows].astype(np.float64)
            middle: Any = vectors[:best].sum(axis=0)
            own = np.einsum("ij,ij->i", vectors, vectors)
            out[:, 1] = _cosines(vectors @ middle, own, float(middle @ middle), best)
        return out


def _cosines(dots: FloatArray, own: FloatArray, square: float, best: int) -> FloatArray:
    """Return cosines of vectors v and their sum s, given v·s, v·v and s·s; for the first `best`, of v and s − v."""
    inside = np.arange(len(dots)) < best
    dots = np.asarray(dots, dtype=np.float64)
    length = np.where(inside, square - 2 * dots + own, square)
    product = np.where(inside, dots - own, dots)
    # Float32 rounding can make a zero length slightly positive.
    fine = length > 1e-9
    cosine: FloatArray = np.where(fine, product / np.sqrt(np.where(fine, length * np.maximum(own, 1e-30), 1.0)), 0.0)
    return np.where(own > 0, cosine, 0.0)
