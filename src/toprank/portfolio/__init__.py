"""For those who do not want to choose: a short portfolio of rankers, judged on validation data, the best few blended.

`auto(train, valid)` tries candidates within a budget of time and answers with a `Choice`: a ranker, and the story of
how it was found in plain words.
"""

from toprank.portfolio.automatic import auto
from toprank.portfolio.choice import Candidate, Choice

__all__ = ["Candidate", "Choice", "auto"]
