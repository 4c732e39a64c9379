"""Conversion between pandas, polars and Arrow tables and ranking data."""

from toprank.data.frames.conversion import from_frame, to_frame

__all__ = ["from_frame", "to_frame"]
