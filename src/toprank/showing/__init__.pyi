"""The names of `toprank.showing`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.showing.pictures import Picture as Picture
from toprank.showing.tables import Shown as Shown
from toprank.showing.tables import Table as Table
from toprank.showing.tables import frame_of as frame_of
