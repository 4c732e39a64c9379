"""LETOR / SVMrank text: ``label qid:ID id:value id:value … # comment``, one line per document."""

from toprank.data.letor.reading import looks_like_letor, read_letor
from toprank.data.letor.writing import write_letor

__all__ = ["looks_like_letor", "read_letor", "write_letor"]
