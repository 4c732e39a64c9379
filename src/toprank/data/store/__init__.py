"""The stored copy: a folder of arrays that opens in milliseconds, whatever its size."""

from toprank.data.store.opening import check_content, is_store, open_described, open_store
from toprank.data.store.writing import SUFFIX, write_store

__all__ = ["SUFFIX", "check_content", "is_store", "open_described", "open_store", "write_store"]
