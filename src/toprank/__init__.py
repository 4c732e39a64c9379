"""Learning to rank, focused on the top of the list."""

__version__ = "0.1.0"
