"""Serving: models behind HTTP.

`toprank serve` runs the service; `application` returns it as an ASGI application for other servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from toprank.errors import MissingExtraError

if TYPE_CHECKING:
    from toprank.serving.service import Service

__all__ = ["application", "check_installed", "write_check"]

_PACKAGES = ("uvicorn", "msgspec", "prometheus_client")


def check_installed() -> None:
    """Raise an error that names the missing extra, if a package is not installed."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingExtraError(f"Serving needs {package}, which is not installed: pip install 'toprank[serve]'.")


def application(models: str | PathLike[str] | Sequence[str | PathLike[str]], **options: Any) -> Service:
    """Return an ASGI application that answers with models, as `toprank serve` runs it.

    Args:
        models: a model file, or several, each a path or ``NAME=PATH``; the first is the primary one.
        **options: keyword arguments of `toprank.serving.settings.ServiceOptions`, and ``reference``, ``extension`` and
            ``log`` of `toprank.serving.service.Service`.

    >>> import tempfile, toprank as tr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tr.LinearRanker().fit(tr.synthetic(n_queries=5, seed=0)).save(f"{folder}/m.toprank")
    ...     service = application([f"{folder}/m.toprank"])
    >>> [model.name for model in service.models]
    ['m']
    """
    check_installed()
    from toprank.serving.models import Models, named_files
    from toprank.serving.service import Service
    from toprank.serving.settings import ServiceOptions

    paths = [models] if isinstance(models, str | PathLike) else models
    parts = {name: options.pop(name) for name in ("reference", "extension", "log") if name in options}
    return Service(Models(named_files([fspath(model) for model in paths])), ServiceOptions(**options), **parts)


def __getattr__(name: str) -> Any:
    if name != "write_check":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    check_installed()
    from toprank.serving.models import write_check

    return write_check
