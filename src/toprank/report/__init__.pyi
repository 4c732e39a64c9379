"""The names of `toprank.report`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.report.comparing import from_comparison as from_comparison
from toprank.report.content import ComparisonReport as ComparisonReport
from toprank.report.experiments import from_results as from_results
from toprank.report.page import write_html as write_html
