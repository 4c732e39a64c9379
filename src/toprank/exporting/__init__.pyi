"""The names of `toprank.exporting`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.exporting.exporter import DifferenceError as DifferenceError
from toprank.exporting.exporter import DifferenceWarning as DifferenceWarning
from toprank.exporting.exporter import export as export
from toprank.exporting.exporter import refusals as refusals
from toprank.exporting.formats import Format as Format
from toprank.exporting.formats import format_named as format_named
from toprank.exporting.formats import names as names
from toprank.exporting.parity import Parity as Parity
