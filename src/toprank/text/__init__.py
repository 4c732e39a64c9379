"""Texts of documents and queries become numbers: words, what is known of them, and what a pair has in common.

>>> known = Statistics.learnt({"title": ["red shoes", "red lamp"], "body": ["for running", "for reading at night"]})
>>> MatchFeatures(known).names[:4]
('bm25', 'tf-idf', 'language model', 'coverage')
"""

from toprank.text.bags import Bags, Tokens, Vocabulary
from toprank.text.documents import EncodedDocuments, EncodedQueries
from toprank.text.features import MEANINGS, MatchFeatures
from toprank.text.statistics import Statistics
from toprank.text.words import Analyzer

__all__ = [
    "Analyzer", "Bags", "EncodedDocuments", "EncodedQueries", "MEANINGS", "MatchFeatures", "Statistics", "Tokens",
    "Vocabulary",
]  # fmt: skip
