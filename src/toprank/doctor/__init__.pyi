"""The names of `toprank.doctor`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.doctor.check_files import check_file as check_file
from toprank.doctor.examination import check as check
from toprank.doctor.findings import Finding as Finding
from toprank.doctor.findings import Report as Report
