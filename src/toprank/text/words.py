"""Text analysis: tokenization, stop words and stemming, for documents and queries in any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from toprank.errors import DataError, UnknownNameError
from toprank.lazy_imports import first_use
from toprank.text.stop_words import STOP_WORDS

NO_LANGUAGE = "none"
"""Language of an analyzer without stemming and stop words."""
_MAX_WORD_CHARACTERS = 64  # longer words are pasted data; they are truncated
_ASCII_WORD = re.compile("[0-9a-z]+")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana, Han
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Scripts without spaces between words, which are split into character bigrams."""


_LETTERS = re.compile(r"[^\W_]+")


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns for text that needs special handling, for words of any script, and for unspaced scripts.

    Combining signs, as in Hindi or Thai, belong to the word of their letter, although `re` does not match them as
    letters.
    """
    marks = (chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    signs = "".join(re.escape(mark) for mark in marks)
    run, letter = f"[{_UNSPACED}]", f"[^\\W_]|[{signs}]"
    word = f"(?:(?={run})(?:{letter}))+|(?:(?!{run})(?:{letter}))+"
    return re.compile(f"[{_UNSPACED}{signs}]"), re.compile(word), re.compile(run)


@dataclass(frozen=True)
class Analyzer:
    """Text analyzer: splits a text into normalized words.

    Case, width and equivalent characters are folded (Unicode NFKC). A word is a sequence of letters and digits; in
    scripts without spaces, each pair of neighboring characters is a word.

    Args:
        language: Snowball language for stemming and stop words: ``english``, ``german``, ``french`` …; ``none`` keeps
            words unchanged. Default: ``english``.
        stop_words: whether to drop stop words when counting words (available for twelve
            languages). Phrase matching still uses them. Default: True.
        stem: whether to stem words. Default: True.

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
            raise UnknownNameError("stemming language", str(self.language), known)
        for name in ("stop_words", "stem"):
            if not isinstance(getattr(self, name), bool):
                raise DataError(f"The analyzer option {name} must be True or False, not {getattr(self, name)!r}.")

    def words(self, text: str) -> list[str]:
        """Return the words of a text in order, without stop words."""
        return [word for word in self.sequence(text) if word not in self.stop_word_stems]

    def sequence(self, text: str) -> list[str]:
        """Return all words of a text in order."""
        table = WordTable(self)
        numbers = table.numbers(text)
        words = list(table.stems)
        return [words[number] for number in numbers]

    @cached_property
    def stop_word_stems(self) -> frozenset[str]:
        """Stems of the stop words."""
        if not self.stop_words:
            return frozenset()
        known = STOP_WORDS.get("english" if self.language == "porter" else self.language, "")
        return frozenset(map(self.stemmer(), (piece for word in known.split() for piece in pieces(word))))

    def stemmer(self) -> Callable[[str], str]:
        """Return a stemming function for one thread, since stemmers are not thread-safe."""
        if not self.stem or self.language == NO_LANGUAGE:
            return str
        stemmer = first_use("Stemmer").Stemmer(self.language, 0)  # no cache, because `WordTable` stems each word once
        stem: Callable[[str], str] = stemmer.stemWord
        return stem


class WordTable(dict[str, int]):
    """Maps words to the numbers of their stems; new words are added on first use.

    Lookups of known words are plain dictionary accesses (`__missing__` is called only for new words), for speed.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self.stems: dict[str, int] = {}
        self._stem = analyzer.stemmer()

    def __missing__(self, word: str) -> int:
        stem = self._stem(word[:_MAX_WORD_CHARACTERS]) or word[:_MAX_WORD_CHARACTERS]
        number = self[word] = self.stems.setdefault(stem, len(self.stems))
        return number

    def numbers(self, text: str) -> list[int]:
        """Return the numbers of the words of a text in order."""
        return list(map(self.__getitem__, pieces(text)))


def pieces(text: str) -> list[str]:
    """Split a text into lower-case words without stemming.

    >>> pieces("It's read_csv(…)")
    ['it', 's', 'read', 'csv']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    special, word, unspaced = _patterns()
    if (
        special.search("".join(set(folded))) is None
    ):  # search distinct characters only: a class of hundreds of ranges is slow
        return _LETTERS.findall(folded)
    return [piece for run in word.findall(folded) for piece in (_bigrams(run) if unspaced.match(run) else (run,))]


def _bigrams(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(max(len(run) - 1, 1))]


def texts_of(values: Any, what: str) -> list[str]:
    """Return texts as a list, with missing values (None, NaN) as empty texts; raise an error for other types."""
    texts = values.tolist() if hasattr(values, "tolist") else list(values)
    for place, text in enumerate(texts):
        if isinstance(text, str):
            continue
        if text is None or text != text:
            texts[place] = ""
        else:
            raise DataError(
                f"{what} must be text, but number {place + 1} is of type {type(text).__name__}: {text!r:.80}."
            )
    return texts
