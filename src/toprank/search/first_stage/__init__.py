"""First stages: engines that find the candidates of a query, or runs of engines elsewhere that did."""

from toprank.search.first_stage.engines import ENGINES, MAX_QUERY_WORDS, Engine, Hits, build_engine, open_engine
from toprank.search.first_stage.runs import FusedRuns

__all__ = ["ENGINES", "MAX_QUERY_WORDS", "Engine", "Hits", "FusedRuns", "build_engine", "open_engine"]
