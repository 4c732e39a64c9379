"""Stored copies: folders of memory-mapped arrays that open in milliseconds, whatever their size."""

from toprank.data.store.opening import check_content, is_store, open_described, open_store
from toprank.data.store.writing import SUFFIX, write_store

__all__ = ["SUFFIX", "check_content", "is_store", "open_described", "open_store", "write_store"]
