"""The names of `toprank.doctor`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.doctor.examination import Finding as Finding
from toprank.doctor.examination import Report as Report
from toprank.doctor.examination import check as check
from toprank.doctor.examination import check_file as check_file
