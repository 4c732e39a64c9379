"""Public names of `toprank.text`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.text.bags import Bags as Bags
from toprank.text.bags import Tokens as Tokens
from toprank.text.bags import Vocabulary as Vocabulary
from toprank.text.documents import EncodedDocuments as EncodedDocuments
from toprank.text.documents import EncodedQueries as EncodedQueries
from toprank.text.features import FEATURE_DESCRIPTIONS as FEATURE_DESCRIPTIONS
from toprank.text.features import MatchFeatures as MatchFeatures
from toprank.text.statistics import Statistics as Statistics
from toprank.text.words import Analyzer as Analyzer
