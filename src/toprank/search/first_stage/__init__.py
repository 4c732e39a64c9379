"""First-stage retrieval: embedded engines, or runs of external engines."""

from toprank.search.first_stage.engines import ENGINES, MAX_QUERY_WORDS, Engine, Hits, build_engine, open_engine
from toprank.search.first_stage.runs import FusedRuns

__all__ = ["ENGINES", "MAX_QUERY_WORDS", "Engine", "Hits", "FusedRuns", "build_engine", "open_engine"]
