"""Data frames in and out: pandas, polars and Arrow tables become ranking data and back."""

from toprank.data.frames.conversion import from_frame, to_frame

__all__ = ["from_frame", "to_frame"]
