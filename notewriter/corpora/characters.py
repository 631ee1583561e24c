"""Characters in one spelling where documents enter a corpus, and raised and lowered numbers that stay numbers."""

import functools
import re
import unicodedata

_RAISED_LETTERS = frozenset(
    {"st", "nd", "rd", "th", "e", "er", "re", "ers", "res", "ème", "me", "de", "ste", "o", "a", "os", "as"}
)  # fmt: skip
"""Endings of ordinals and abbreviations ("21st", "1er", "Mme")."""

_UNSEEN = dict.fromkeys(map(ord, "\u00ad\u2060\ufeff"))
"""The soft hyphen, the word joiner and the zero-width no-break space."""

_LARGE = re.compile(r"(?:[\d,.]*\d)?\d{3}\Z")
_EXPONENT = re.compile(r"[-+]?[\w.]+[-+]?")


def plain(text: str) -> str:
    """A text in Unicode's form NFKC, but for characters whose numbers would become other numbers or lose their sense.

    Ligatures (`ﬁ`), letters of full width and presentation forms become plain letters. `10⁶` becomes `10^6`, `110₂`
    `110_2`, `2½` `2 1/2`. Marks (`™`) and accents that stand alone are unchanged, since NFKC joins them to words.
    Soft hyphens and joiners, which nobody sees and which would divide a word for a search, go.
    """
    if text.isascii():
        return text
    text = text.translate(_UNSEEN)
    numbers, kept = _special()
    pieces = kept.split(numbers.sub(_number, text))
    return "".join(piece if place % 2 else unicodedata.normalize("NFKC", piece) for place, piece in enumerate(pieces))


@functools.cache
def _special() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The characters that NFKC lowers or turns into digits, and that would then join words."""
    kept = "™℠"
    found = {"<super": "", "<sub": "", "": ""}
    for each in map(chr, range(0x80, 0x1FFFF)):
        kind, _, form = unicodedata.decomposition(each).partition("> ")
        if kind in {"<super", "<sub"} and each not in kept:
            found[kind] += each
        elif unicodedata.category(each) in {"No", "So"} and unicodedata.normalize("NFKC", each)[:1].isdigit():
            found[""] += each
        elif form.startswith("0020 "):
            kept += each
    raised, lowered, others = found.values()
    return re.compile(f"(?P<raised>[{raised}]+)|(?P<lowered>[{lowered}]+)|[{others}]"), re.compile(f"([{kept}]+)")


def _number(match: re.Match[str]) -> str:
    form = unicodedata.normalize("NFKC", match[0]).replace("\u2044", "/").replace("\u2212", "-")
    before = match.string[max(0, match.start() - 40) : match.start()]
    if not any(each.isdigit() for each in form) and match["raised"]:
        # Letters of phonetic alphabets, and the signs of ordinals.
        return form
    written = raised(before, form) if match["raised"] else lowered(before, form) if match["lowered"] else form
    if written == form and before[-1:].isdigit() and form[0].isdigit():
        written = " " + form
    return apart(written, match.string[match.end() : match.end() + 1])


def raised(before: str, text: str) -> str:
    """A superscript as it is written behind a text: `10` and `6` make `10^6`.

    Endings of ordinals are letters of their word; a number behind a large one (`1811`, `12,345`) or behind a full stop
    is the mark of a note, which stands apart.
    """
    last = before[-1:]
    if not text or not last or last.isspace() or text.lower() in _RAISED_LETTERS or not any(map(str.isalnum, text)):
        return text
    if text[0] in "[(" or (text.isdigit() and (_is_counted(before) or not (last.isalnum() or last in ")]}|'′*"))):
        return f" {text}" if text[0] in "[(" else f" [{text}]"
    return f"^{text}" if _EXPONENT.fullmatch(text) else f"^({text})"


def lowered(before: str, text: str) -> str:
    """A subscript as it is written behind a text: `H` and `2` make `H2`, `110` and `2` make `110_2`."""
    if not before[-1:].isalnum() or not text:
        return text
    if not re.fullmatch(r"[\w,]+", text):
        return f"_({text})"
    return f"_{text}" if before[-1:].isdigit() and text[0].isdigit() else text


def apart(text: str, after: str) -> str:
    """A text with a space behind it where its last digit would touch one that follows."""
    return f"{text} " if text[-1:].isdecimal() and after[:1].isdecimal() else text


def _is_counted(before: str) -> bool:
    """Whether a text ends with a number of three digits or more that is no power of ten."""
    match = _LARGE.search(before)
    return bool(match) and not re.search(r"(?<![\d,.])1[0,]*\Z", before)
