"""Document collections, with queries and judgments if available, in all common layouts."""

from toprank.search.collections.collection import Collection, Topics
from toprank.search.collections.judgments import read_judgments
from toprank.search.collections.python_docs import PYTHON_DOCS, python_docs
from toprank.search.collections.sources import read
from toprank.search.collections.topics import read_topics

__all__ = ["PYTHON_DOCS", "Collection", "Topics", "python_docs", "read", "read_judgments", "read_topics"]
