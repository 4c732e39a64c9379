"""How results look: in a terminal, in a notebook, as Markdown, LaTeX or a frame; and how work in progress is told."""

from toprank.showing.pictures import Picture
from toprank.showing.tables import Shown, Table, frame_of

__all__ = ["Picture", "Shown", "Table", "frame_of"]
