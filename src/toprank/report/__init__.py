"""Reports: what was compared, as one HTML file to hand to a colleague."""

from toprank.report.comparing import from_comparison
from toprank.report.content import Content
from toprank.report.experiments import from_results
from toprank.report.page import write_html

__all__ = ["Content", "from_comparison", "from_results", "write_html"]
