"""The data doctor: what is wrong with these data, in sentences, each with counts and a remedy."""

from toprank.doctor.examination import Finding, Report, check, check_file

__all__ = ["Finding", "Report", "check", "check_file"]
