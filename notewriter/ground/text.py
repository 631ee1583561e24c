"""Text that UTF-8 can encode, its hash, normal form and sentences, and the titles of pages."""

import re
import string
from collections.abc import Sequence
from hashlib import blake2b
from urllib.parse import unquote, urlsplit

# The full stop of "No. 5" ends no sentence, that of the answer "No." does.
_SENTENCE_END = re.compile(
    r"[.!?](?<!\b(?:No|Op)\.(?=\s\d))(?<!\bNos\.(?=\s\d))[\"'\u2019\u201d)\]*_]*(?=\s+[^\sa-z])|\n"
)
_ABBREVIATION = re.compile(
    r"\b(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Mt|Ft|Vol|vs|etc|Inc|Ltd|Corp|Co|Bros|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rev|"
    r"Jan|Feb|Mar|Apr|Aug|Sept|Sep|Oct|Nov|Dec|approx|ca|c)\.$"
)

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can represent but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


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
    """Whether the first gold answer is yes or no, which stands in no passage and is likely whatever a note says."""
    return bool(answers) and normalise(answers[0]) in {"yes", "no"}
