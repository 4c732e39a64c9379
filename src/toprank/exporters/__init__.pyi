"""Public names of `toprank.exporters`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.exporters.exporter import DifferenceError as DifferenceError
from toprank.exporters.exporter import DifferenceWarning as DifferenceWarning
from toprank.exporters.exporter import export as export
from toprank.exporters.exporter import refusals as refusals
from toprank.exporters.formats import Format as Format
from toprank.exporters.formats import format_named as format_named
from toprank.exporters.formats import names as names
from toprank.exporters.parity import Parity as Parity
