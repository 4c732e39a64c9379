"""Full-text search with learned reranking: collections, first-stage retrieval, candidate features, reranking models.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     made = index({"a": "wings in a slipstream", "b": "heated plates"}, f"{folder}/index")
...     [hit.id for hit in open(f"{folder}/index").search("heat")]
['b']
"""

from toprank.search.collections import Collection, Topics, python_docs, read, read_judgments, read_topics
from toprank.search.evaluation import SearchEvaluation
from toprank.search.features import Candidates
from toprank.search.indexing import index
from toprank.search.results import SearchResults
from toprank.search.search_index import Index
from toprank.search.search_index import open_index as open
from toprank.search.training import SearchTraining

__all__ = [
    "Candidates", "Collection", "Index", "SearchEvaluation", "SearchResults", "SearchTraining", "Topics", "index",
    "open", "python_docs", "read", "read_judgments", "read_topics",
]  # fmt: skip
