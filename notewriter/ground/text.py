"""Text that UTF-8 can encode, its hash, normal form, words and sentences, and the titles of pages."""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from notewriter.ground.lazy import Lazy

if TYPE_CHECKING:
    import regex
else:
    regex = Lazy("regex")

# The full stop of "No. 5" ends no sentence, that of the answer "No." does. The full stops of other scripts need no
# space after them: Chinese and Japanese, Devanagari's danda, Urdu, Arabic, Burmese, Khmer, Ethiopic, Armenian.
_SENTENCE_END = re.compile(
    r"[.!?](?<!\b(?:No|Op)\.(?=\s\d))(?<!\bNos\.(?=\s\d))[\"'\u2019\u201d)\]*_]*(?=\s+[^\sa-z])|\n"
    r"|[\u3002\uff01\uff1f\uff61\u0964\u0965\u06d4\u061f\u104b\u17d4\u1362\u0589]+"
    r"[\"'\u2019\u201d)\]\u300d\u300f\uff09]*"
)

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70\p{Line_Break=SA}"
"""Characters of scripts that have no space between words, for a class of `regex`.

Chinese characters, kana, and Unicode's class SA: Thai, Lao, Khmer, Burmese and the scripts near them.
"""
_ABBREVIATION = re.compile(
    r"\b(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Mt|Ft|Vol|vs|etc|Inc|Ltd|Corp|Co|Bros|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rev|"
    r"Jan|Feb|Mar|Apr|Aug|Sept|Sep|Oct|Nov|Dec|approx|ca|c)\.$"
)

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can represent but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def texts_in(value: object) -> Iterator[str]:
    """The texts in a value that is a text, or a list or mapping of such values; of a mapping not its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(each)


def hash64(text: str) -> int:
    """A hash of 64 bits, the same in every process; the largest value is never returned."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % (2**64 - 1)


def normalise(text: str) -> str:
    """Lower-case, without ASCII punctuation and English articles, with single spaces.

    Source: the evaluation script of SQuAD (Rajpurkar et al., 2016). Punctuation is removed before articles and leaves
    no space, so "Betty-Cohen" becomes "bettycohen".
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def words_in(text: str) -> list[str]:
    """The words of a text: the parts between white space, and each character of scripts without spaces.

    A character has its marks, and the punctuation beside it; together, the words of a piece between white space are
    that piece. Word processors and the scorers of Chinese and Japanese benchmarks (CMRC 2018, MLQA) count so too.
    """
    words = text.split()
    if text.isascii() or not _unspaced().search(text):
        return words
    return [part for word in words for part in _parts().findall(word)]


def bare_words(text: str) -> tuple[str, ...]:
    """The words of a text (`words_in`), in lower case and without punctuation."""
    return tuple(words_in(" ".join(regex.findall(r"\w+", text.casefold()))))


def is_character(word: str) -> bool:
    """Whether a word (`words_in`, `tokens`) is a character of a script without spaces; a word there has about two."""
    return not word.isascii() and bool(_unspaced().search(word))


def bare(word: str) -> str:
    """A word without the punctuation and symbols around it."""
    found = regex.search(r"\w(?:.*\w)?", word)
    return found[0] if found else ""


def joined(words: Sequence[str]) -> str:
    """A text of words (`words_in`) with spaces between them, but for characters of scripts without spaces."""
    spaces = (" " * (not (is_character(one) and is_character(other))) for one, other in pairwise(words))
    return "".join(chain.from_iterable(zip(words, [*spaces, ""], strict=True)))


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """The begin and end of each word of a text (`words_in`)."""
    for piece in re.finditer(r"\S+", text):
        end = piece.start()
        for word in words_in(piece[0]):
            start, end = end, end + len(word)
            yield start, end


def first_words(text: str, count: int | None) -> str:
    """The first words of a text (`words_in`), all of them for None, with single spaces where it has white space."""
    kept: list[str] = []
    for piece in text.split():
        words = words_in(piece)
        if count is not None:
            words, count = words[:count], max(0, count - len(words))
        if not words:
            break
        kept.append("".join(words))
    return " ".join(kept)


def spaced(text: str) -> str:
    """The words of a text (`tokens`), a space before and after each, so that whole words are found in it."""
    return f" {' '.join(tokens(text))} "


def tokens(text: str) -> list[str]:
    """The words of a text for comparisons, in SQuAD's normal form (`normalise`), whichever its script.

    Beyond ASCII, compatibility forms become plain ones (NFKC), quotation marks and other punctuation around a word is
    left out, and each character of a script without spaces is a word.
    """
    if text.isascii():
        return normalise(text).split()
    return [part for word in normalise(unicodedata.normalize("NFKC", text)).split() for part in _bare(word)]


def holds(text: str, words: str) -> bool:
    """Whether a text holds the words of another one in a row (`tokens`); false for one without words."""
    wanted = " ".join(tokens(words))
    return bool(wanted) and f" {wanted} " in f" {' '.join(tokens(text))} "


def _bare(word: str) -> list[str]:
    if word.isascii():
        return [word]
    if is_character(word):
        return [inner for part in _parts().findall(word) if (inner := bare(part))]
    # A dash between spaces stays a word, as for SQuAD, and so does a symbol.
    return [bare(word) or word] if bare(word) or not regex.fullmatch(r"[\p{P}--\p{Pd}]+", word, regex.V1) else []


@functools.cache
def _unspaced() -> regex.Pattern[str]:
    return regex.compile(rf"(?=\w)[{UNSPACED}]")


@functools.cache
def _parts() -> regex.Pattern[str]:
    """A character of a script without spaces with its marks and punctuation, or what stands between such characters."""
    unspaced = rf"(?=\w)[{UNSPACED}]"
    return regex.compile(rf"[^\w\s]*{unspaced}\p{{M}}*[^\w\s]*|(?:(?!{unspaced})\S)+")


def page_title(page: str) -> str:
    """The title of a Wikipedia page in one spelling, out of its title or its address.

    `https://en.wikipedia.org/wiki/mira_Tolen#Life` is `Mira Tolen`; addresses of other pages are unchanged.
    """
    if "://" in page or "wikipedia.org/wiki/" in page:
        address, page = page, unquote(urlsplit(page).path.partition("/wiki/")[2]).rstrip("/")
        if not page:
            return address
    page = " ".join(page.replace("_", " ").split())
    # Wikipedia's titles begin with a capital letter, whatever links say.
    return page[:1].upper() + page[1:]


def unquoted(title: str) -> str:
    """A title without the quotation marks around it, as on the first line of FlashRAG's `contents`; its own ones stay.

    `""Heroes" (album)"` is `"Heroes" (album)`.
    """
    return title[1:-1] if len(title) > 1 and title[0] == title[-1] == '"' else title


def sentences_in(text: str) -> list[str]:
    """The sentences of a text; a line break ends one, the full stop of an initial or abbreviation does not."""
    text = text.strip()
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text, max(start, match.start() - 8), match.start() + 1):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    return [sentence for sentence in [*sentences, text[start:].strip()] if sentence]


def paragraphs(lines: Sequence[str]) -> list[str]:
    """The lines of a Markdown text that are neither headings nor rows of tables; all of them if there is no other."""
    return [line for line in lines if not line.startswith(("#", "|"))] or list(lines)


def first_sentence(text: str) -> str:
    """The first sentence of a text (`sentences_in`), or an empty string."""
    return next(iter(sentences_in(text)), "")


def ends_with_abbreviation(text: str) -> bool:
    """Whether a text ends with an initial or abbreviation and its full stop."""
    return bool(_ABBREVIATION.search(text))


def places_of(parts: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The indices of the parts that occur in one of the texts, ignoring white space."""
    joined = ["".join(text.split()) for text in texts] if parts else []
    return [place for place, part in enumerate(parts) if any("".join(part.split()) in text for text in joined)]


def is_yes_no(answers: Sequence[str]) -> bool:
    """Whether the first gold answer is yes or no: no passage has it, and it is likely whatever the note."""
    return bool(answers) and normalise(answers[0]) in {"yes", "no"}
