"""Hypothesis strategies for ragged ranking problems."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from toprank.data.dataset import RankingData
from toprank.data.queries import Queries


@st.composite
def rankings(draw, max_queries=4, max_documents=6, max_grade=4, distinct_scores=None):
    """(scores, data): ragged queries with integer grades and scores from a short list, so that ties are common."""
    sizes = draw(st.lists(st.integers(1, max_documents), min_size=1, max_size=max_queries))
    n = sum(sizes)
    labels = draw(st.lists(st.integers(0, max_grade), min_size=n, max_size=n))
    values = st.sampled_from([-1e8, -1.5, 0.0, 0.25, 1.0, 1e8]) if distinct_scores is None else distinct_scores
    scores = draw(st.lists(values, min_size=n, max_size=n))
    data = RankingData(np.zeros((n, 0)), labels, queries=Queries.from_sizes(sizes))
    return np.array(scores, dtype=float), data


def lists(scores, data):
    """The (scores, labels) of each query as plain lists."""
    return [(scores[rows].tolist(), data.labels[rows].tolist()) for rows in data.queries]
