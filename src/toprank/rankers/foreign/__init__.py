"""Models of other libraries as rankers that predict. Reading never executes code from a file, and needs no library.

Readers raise DataError with a message that completes the sentence "This XGBoost model is not read: …".
"""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO

from toprank.errors import DataError, FormatError, refuse_if
from toprank.lazy_imports import first_use

__all__ = ["read", "format_of"]

_MAX_BYTES = 1 << 30
"""Maximum size of a foreign model in bytes; reading JSON takes about 40 times its size in memory."""
_READERS = {
    "lightgbm": ("LightGBM", "toprank.rankers.foreign.lightgbm_text", "read"),
    "ranklib": ("RankLib", "toprank.rankers.foreign.ranklib_text", "read"),
    "onnx": ("ONNX", "toprank.rankers.foreign.onnx_model", "read"),
    "ubj": ("XGBoost", "toprank.rankers.foreign.xgboost_model", "read_binary"),
}
_REFUSED = {
    b"CBM1": ("CatBoost", "its binary format is not supported; save it with save_model(path, format='json')"),
    b"binf": ("XGBoost", "its old binary format is not supported; load it and save it with save_model('model.json')"),
    b"\x80": ("pickled", "reading a pickle executes its code; save the model in its library's own format"),
}


def format_of(start: bytes) -> str | None:
    """Return the format of another library's model, by its first bytes; None if unknown."""
    if any(start.startswith(mark) for mark in _REFUSED):
        return "refused"
    if start.startswith((b"tree\n", b"tree\r\n")):
        return "lightgbm"
    first = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if first.startswith(b"{"):
        return "json" if first[1:].lstrip()[:1] in (b'"', b"}", b"") else "ubj"
    if first.startswith(b"["):
        return "json"
    if first.startswith((b"##", b"<ensemble", b"<?xml", b"<!")):
        return "ranklib"
    return "onnx" if start[:1] == b"\x08" and len(start) > 1 and 0 < start[1] < 32 else None


def read(stream: BinaryIO, kind: str, where: str) -> Any:
    """Return the ranker in a file of this format."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    content = stream.read() if size <= _MAX_BYTES else b""
    library, home, name = _READERS.get(kind, ("", "", ""))
    try:
        refuse_if(size > _MAX_BYTES, f"it has more than {_MAX_BYTES:,} bytes")
        if kind == "refused":
            library, why = next(refusal for mark, refusal in _REFUSED.items() if content.startswith(mark))
            raise DataError(why)
        if home:
            return getattr(first_use(home), name)(content)
        library = "JSON"
        model = _json(content)
        library, reader = _by_content(model)
        return reader(model)
    except FormatError:
        raise
    except (ImportError, MemoryError):  # not necessarily the fault of the file
        raise
    except Exception as problem:  # noqa: BLE001 - any error from a forged file is the fault of the file
        reason = str(problem) if isinstance(problem, DataError) else unforeseen(problem)
        raise FormatError(f"This {library} model is not read: {reason.removesuffix('.')}.", path=where) from None


def unforeseen(problem: Exception) -> str:
    """Return the message for an unexpected error in a reader; tests replace this function by one that raises."""
    return f"it is damaged ({type(problem).__name__}: {problem})"


def _json(content: bytes) -> Any:
    try:
        model = json.loads(content)
        if b"\\ud" in content.lower():  # lone surrogates, which our files do not support
            json.dumps(model, ensure_ascii=False).encode()
        return model
    except RecursionError:
        raise DataError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise DataError("it contains a lone surrogate") from None
    except ValueError as problem:
        raise DataError(f"it is damaged ({problem})") from None


def _by_content(model: Any) -> tuple[str, Any]:
    """Return the library that writes such JSON, and its reader."""
    if isinstance(model, dict) and "learner" in model:
        from toprank.rankers.foreign.xgboost_model import read as of_xgboost

        return "XGBoost", of_xgboost
    if isinstance(model, dict) and ("oblivious_trees" in model or "features_info" in model):
        from toprank.rankers.foreign.catboost_json import read as of_catboost

        return "CatBoost", of_catboost
    raise DataError(
        "it is neither a model of XGBoost (save_model('model.json'); a dump is incomplete) nor one of CatBoost "
        "(save_model(path, format='json'))"
    )
