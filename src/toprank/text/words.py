"""Texts become words: the same for documents and for queries, whatever the script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from toprank.errors import DataError, UnknownNameError
from toprank.lazy_imports import first_use
from toprank.text.function_words import FUNCTION_WORDS

NO_LANGUAGE = "none"
"""The language of an analyzer that leaves words as they are."""
_LONGEST = 64  # characters of a word: beyond it, it is data that somebody pasted, and no two are alike
_PLAIN = re.compile("[0-9a-z]+")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana, Han
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Scripts that write no blanks between words: they are cut into pairs of characters."""


_LETTERS = re.compile(r"[^\W_]+")


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What asks for more than letters, a word of any script, and a run of one that writes no blanks.

    Signs that join a letter, as in Hindi or Thai, are part of its word, though `re` takes them for no letters.
    """
    marks = (chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    signs = "".join(re.escape(mark) for mark in marks)
    run, letter = f"[{_UNSPACED}]", f"[^\\W_]|[{signs}]"
    word = f"(?:(?={run})(?:{letter}))+|(?:(?!{run})(?:{letter}))+"
    return re.compile(f"[{_UNSPACED}{signs}]"), re.compile(word), re.compile(run)


@dataclass(frozen=True)
class Analyzer:
    """How a text is cut into words.

    Case, width and other ways to write the same letter (Unicode NFKC) make no difference. A word is a run of letters
    and digits; where a script writes no blanks, each pair of neighboring characters is one.

    Args:
        language: of stems and function words, as Snowball calls it: ``english``, ``german``, ``french`` …; ``none``
            for words as they are.
        stop_words: whether to drop stop words when counting words (`toprank.text.function_words` lists those of twelve
            languages). Phrase matching still uses them. Default: True.
        stem: whether words are reduced to stems.

    >>> Analyzer().words("The RUNNING shoes, size ４２")
    ['run', 'shoe', 'size', '42']
    >>> Analyzer().words("東京タワー tower")
    ['東京', '京タ', 'タワ', 'ワー', 'tower']
    """

    language: str = "english"
    stop_words: bool = True
    stem: bool = True

    def __post_init__(self) -> None:
        known = [NO_LANGUAGE, *first_use("Stemmer").algorithms()]
        if self.language not in known:
            raise UnknownNameError("language of stems", str(self.language), known)
        for name in ("stop_words", "stem"):
            if not isinstance(getattr(self, name), bool):
                raise DataError(f"{name} of an analyzer must be True or False, not {getattr(self, name)!r}.")

    def words(self, text: str) -> list[str]:
        """The words of a text in their order, function words left out."""
        return [word for word in self.sequence(text) if word not in self.function_words]

    def sequence(self, text: str) -> list[str]:
        """All words of a text in their order."""
        table = WordTable(self)
        numbers = table.numbers(text)
        words = list(table.stems)
        return [words[number] for number in numbers]

    @cached_property
    def function_words(self) -> frozenset[str]:
        """Stems of the function words."""
        if not self.stop_words:
            return frozenset()
        known = FUNCTION_WORDS.get("english" if self.language == "porter" else self.language, "")
        return frozenset(map(self.stemmed(), (piece for word in known.split() for piece in pieces(word))))

    def stemmed(self) -> Callable[[str], str]:
        """The stem of a word; each caller gets a stemmer of its own, since one serves a single thread."""
        if not self.stem or self.language == NO_LANGUAGE:
            return str
        stemmer = first_use("Stemmer").Stemmer(self.language, 0)  # no cache: a table asks for each word once
        stem: Callable[[str], str] = stemmer.stemWord
        return stem


class WordTable(dict[str, int]):
    """The number of each way to write a word, found out when it is first met; different ways have one stem.

    Reading is a dictionary's own (`__missing__` is called for new words alone), which is what makes a long text quick.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self.stems: dict[str, int] = {}
        self._stem = analyzer.stemmed()

    def __missing__(self, word: str) -> int:
        stem = self._stem(word[:_LONGEST]) or word[:_LONGEST]
        number = self[word] = self.stems.setdefault(stem, len(self.stems))
        return number

    def numbers(self, text: str) -> list[int]:
        """The numbers of a text's words in their order."""
        return list(map(self.__getitem__, pieces(text)))


def pieces(text: str) -> list[str]:
    """The words of a text as they are written, in lower case.

    >>> pieces("It's read_csv(…)")
    ['it', 's', 'read', 'csv']
    """
    if text.isascii():
        return _PLAIN.findall(text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    special, word, unspaced = _patterns()
    if special.search("".join(set(folded))) is None:  # each character once: a class of hundreds of ranges is slow
        return _LETTERS.findall(folded)
    return [piece for run in word.findall(folded) for piece in (_pairs(run) if unspaced.match(run) else (run,))]


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(max(len(run) - 1, 1))]


def texts_of(values: Any, what: str) -> list[str]:
    """Texts of a caller: what is missing (None, NaN) is empty; anything but text is refused."""
    texts = values.tolist() if hasattr(values, "tolist") else list(values)
    for place, text in enumerate(texts):
        if isinstance(text, str):
            continue
        if text is None or text != text:
            texts[place] = ""
        else:
            raise DataError(f"{what} must be text; number {place + 1} is a {type(text).__name__}: {text!r:.80}.")
    return texts
