"""Text processing: analysis of texts, collection statistics, and features of query-document pairs.

>>> from toprank.text import MatchFeatures, Statistics
>>> known = Statistics.fit({"title": ["red shoes", "red lamp"], "body": ["for running", "for reading at night"]})
>>> MatchFeatures(known).names[:4]
('bm25', 'tf-idf', 'language model', 'coverage')
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
