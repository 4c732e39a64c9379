"""What goes wrong on a cluster, in sentences: no worker, no scheduler, tasks that kill their workers."""

from __future__ import annotations

from toprank.errors import ToprankError

__all__ = ["ClusterError", "LostError", "QueriesMovedWarning"]


class ClusterError(ToprankError, RuntimeError):
    """The cluster failed, not the data: nothing answers, or workers die again and again."""


class LostError(Exception):
    """What lay on a worker went with it and Dask cannot make it anew; we can, from the partitions' sources."""


class QueriesMovedWarning(UserWarning):
    """Queries had rows in several partitions, which were brought together."""
