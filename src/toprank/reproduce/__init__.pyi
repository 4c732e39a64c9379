"""Public names of `toprank.reproduce`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.reproduce.findings import Case as Case
from toprank.reproduce.findings import DuelCount as DuelCount
from toprank.reproduce.findings import Figure as Figure
from toprank.reproduce.findings import Reproduction as Reproduction
from toprank.reproduce.findings import TestedClaim as TestedClaim
from toprank.reproduce.running import SETS as SETS
from toprank.reproduce.running import find_sets as find_sets
from toprank.reproduce.running import reproduce as reproduce
from toprank.reproduce.studies import STUDIES as STUDIES
from toprank.reproduce.studies import Study as Study
