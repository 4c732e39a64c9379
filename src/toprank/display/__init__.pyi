"""Public names of `toprank.display`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.display.pictures import Picture as Picture
from toprank.display.tables import DisplayMixin as DisplayMixin
from toprank.display.tables import Table as Table
from toprank.display.tables import frame_of as frame_of
