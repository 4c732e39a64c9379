"""Public names of `toprank.report`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.report.comparing import from_comparison as from_comparison
from toprank.report.content import ComparisonReport as ComparisonReport
from toprank.report.experiments import from_results as from_results
from toprank.report.page import write_html as write_html
