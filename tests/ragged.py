"""Hypothesis strategies for ragged ranking data, shared by the tests of the data room."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from toprank.data.dataset import RankingData
from toprank.data.queries import Queries

# The first call of a kernel compiles it, which no deadline can foresee.
settings.register_profile("ragged", deadline=None)
settings.load_profile("ragged")

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=6)
# Surrogates cannot be written as UTF-8, and NumPy strings end at NUL characters.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
EITHER = st.booleans()
WEIGHTS = st.floats(0.25, 8.0)


@st.composite
def ranking_data(draw, sparse=EITHER, ids=texts):
    """RankingData of any legal shape: optional parts come and go, values include NaN, infinities and -0.0."""
    queries = Queries.from_sizes(draw(sizes))
    n, q, width = queries.n_documents, len(queries), draw(st.integers(0, 4))
    dtype = np.dtype(draw(st.sampled_from([np.float32, np.float64])))
    values = st.floats(width=8 * dtype.itemsize)
    X = draw(hnp.arrays(dtype, (n, width), elements=st.one_of(st.just(0.0), values)))
    if draw(sparse):
        from scipy.sparse import csr_matrix

        X = csr_matrix(X)
    qids = draw(
        st.one_of(
            hnp.arrays(np.int64, q, elements=st.integers(-(2**62), 2**62), unique=True),
            st.lists(ids, min_size=q, max_size=q, unique=True),
        )
    )

    def sometimes(strategy):
        return draw(st.one_of(st.none(), strategy))

    names = texts.filter(lambda name: name.strip() and not name.isdigit())
    return RankingData(
        X,
        draw(
            hnp.arrays(np.float64, n, elements=st.one_of(st.sampled_from([0.0, 1.0, -1.0, np.nan]), st.floats(-9, 99)))
        ),
        queries=queries,
        qids=qids,
        document_ids=sometimes(st.lists(ids, min_size=n, max_size=n)),
        document_weights=sometimes(hnp.arrays(np.float64, n, elements=WEIGHTS)),
        query_weights=sometimes(hnp.arrays(np.float64, q, elements=WEIGHTS)),
        positions=sometimes(hnp.arrays(np.int64, n, elements=st.integers(0, 99))),
        teacher=sometimes(hnp.arrays(np.float64, n, elements=st.floats(-1e300, 1e300))),
        feature_names=sometimes(
            st.lists(names.map(lambda name: f"f {name}"), min_size=width, max_size=width, unique=True)
        ),
    )
