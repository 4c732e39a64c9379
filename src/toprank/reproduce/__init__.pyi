"""The names of `toprank.reproduce`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.reproduce.findings import Case as Case
from toprank.reproduce.findings import DuelCount as DuelCount
from toprank.reproduce.findings import Figure as Figure
from toprank.reproduce.findings import JudgedClaim as JudgedClaim
from toprank.reproduce.findings import Reproduction as Reproduction
from toprank.reproduce.running import SETS as SETS
from toprank.reproduce.running import find_sets as find_sets
from toprank.reproduce.running import reproduce as reproduce
from toprank.reproduce.studies import STUDIES as STUDIES
from toprank.reproduce.studies import Study as Study
