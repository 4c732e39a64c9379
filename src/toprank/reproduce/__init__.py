"""Published tables: the paper's protocol on the real data, our numbers beside theirs, and which claims hold."""

from toprank.reproduce.findings import Case, DuelCount, Figure, JudgedClaim, Reproduction
from toprank.reproduce.running import SETS, find_sets, reproduce
from toprank.reproduce.studies import STUDIES, Study

__all__ = [
    "SETS", "STUDIES", "Case", "DuelCount", "Figure", "JudgedClaim", "Reproduction", "Study", "find_sets", "reproduce",
]  # fmt: skip
