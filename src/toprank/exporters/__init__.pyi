"""Public names of `toprank.exporters`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.exporters.exporter import ParityError as ParityError
from toprank.exporters.exporter import ParityWarning as ParityWarning
from toprank.exporters.exporter import export as export
from toprank.exporters.exporter import unsupported_reasons as unsupported_reasons
from toprank.exporters.formats import Format as Format
from toprank.exporters.formats import get_format as get_format
from toprank.exporters.formats import names as names
from toprank.exporters.parity import Parity as Parity
