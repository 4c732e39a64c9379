"""First stages: engines that find the candidates of a query, or runs of engines elsewhere that did."""

from toprank.search.first_stage.engines import ENGINES, MOST_WORDS, Engine, Hits, build_engine, open_engine
from toprank.search.first_stage.runs import RunPool

__all__ = ["ENGINES", "MOST_WORDS", "Engine", "Hits", "RunPool", "build_engine", "open_engine"]
