"""Formulas in a line: their TeX where a page has it, else their signs with marks for powers, indices and roots."""

import itertools
import re
from typing import Any

MARKS = {"msup": "^", "mfrac": "/", "msub": "_", "munder": "_", "msubsup": "_^", "munderover": "_^"}
"""Element of MathML -> the marks between its parts."""

OF_WORD = {
    "sSup": ("msup", ("e", "sup")),
    "sSub": ("msub", ("e", "sub")),
    "sSubSup": ("msubsup", ("e", "sub", "sup")),
    "f": ("mfrac", ("num", "den")),
    "rad": ("mroot", ("e", "deg")),
    "limLow": ("munder", ("e", "lim")),
    "limUpp": ("msup", ("e", "lim")),
}
"""Element of Word's formulas (Office MathML) -> that of MathML, and the names of its parts in the order of MathML."""

BETWEEN = {"mtable": "; ", "mtr": " ", "mlabeledtr": " "}
"""Element of MathML -> what stands between its rows or cells."""

INVISIBLE = dict.fromkeys(range(0x2061, 0x2065))
"""Operators that nobody sees, such as the one for "times"."""

SIGNS = {"=", "+", "-", "−", "<", ">", "≤", "≥"}
"""Operators with a space on both sides."""


def of_mathml(node: Any) -> str:
    """The TeX of a `<math>` where the page has it, else its signs."""
    for each in node.iter("annotation"):
        if "tex" in (each.get("encoding") or "").lower():
            return _tex(each.text_content())
    if node.get("alttext"):
        return _tex(node.get("alttext"))
    return _signs(node)


def _tex(text: str) -> str:
    # LaTeXML ends long lines with the mark of a comment.
    line = " ".join(re.sub(r"(?<!\\)((?:\\\\)*)%\s*", r"\1", text).split())
    return re.sub(r"^\{\\displaystyle *(.*)\}$|^\\displaystyle\b *", r"\1", line).strip()


def _signs(node: Any) -> str:
    parts = [_signs(child) for child in node if isinstance(child.tag, str) and not child.tag.startswith("annotation")]
    text = "".join((node.text or "").split()).translate(INVISIBLE)
    if node.tag == "mo" and text in SIGNS:
        return f" {text} "
    if node.tag == "mtext":
        return re.sub(r"\s+", " ", node.text or "")
    if node.tag in BETWEEN:
        return BETWEEN[node.tag].join(parts)
    if node.tag == "mfrac" and re.fullmatch(r"0[.0]*[a-z%]*", node.get("linethickness") or ""):
        # One above the other, as in a binomial coefficient.
        return "; ".join(parts)
    if node.tag not in {*MARKS, "mroot"}:
        parts = [_beside(parts)]
    return text + _joined(node.tag, parts)


def _beside(parts: list[str]) -> str:
    """Parts in a row, with a space where a power, an index or a divisor would run into what follows it."""
    pairs = itertools.pairwise(["", *filter(None, parts)])
    return "".join(
        f" {part}" if part[0].isalnum() and re.search(r"[\^_/]\w+\Z", before[-40:]) else part for before, part in pairs
    )


def of_word(node: Any) -> str:
    """The signs of an `m:oMath` or a part of it."""
    name = _name(node)
    if name == "t":
        return node.text or ""
    children = [child for child in node if isinstance(child.tag, str) and not _name(child).endswith("Pr")]
    texts = [of_word(child) for child in children]
    parts = dict(zip(map(_name, children), texts, strict=True))
    if name in OF_WORD:
        element, order = OF_WORD[name]
        return _joined(element, [parts.get(each, "") for each in order])
    if name == "nary":
        limits = [_setting(node, "chr", "∫"), parts.get("sub", ""), parts.get("sup", "")]
        return f"{_joined('munderover', limits)} {parts.get('e', '')}"
    if name == "d":
        inside = _setting(node, "sepChr", "|").join(texts)
        return f"{_setting(node, 'begChr', '(')}{inside}{_setting(node, 'endChr', ')')}"
    # The rows of a matrix, its cells, the lines of a system of equations, and a function before its argument.
    return {"m": "; ", "mr": ", ", "eqArr": "; ", "func": " "}.get(name, "").join(texts)


def _name(node: Any) -> str:
    return str(node.tag).rpartition("}")[2]


def _setting(node: Any, name: str, default: str) -> str:
    """A sign that an element's properties name; empty if they name none on purpose."""
    properties = next((child for child in node if _name(child) == f"{_name(node)}Pr"), ())
    return next((next(iter(each.attrib.values()), "") for each in properties if _name(each) == name), default)


def _joined(element: str, parts: list[str]) -> str:
    """The parts of an element with marks between them, in brackets where they are more than a word."""
    if element == "mroot" and len(parts) == 2:
        radicand, index = parts
        return f"√[{index}]({radicand})" if index else f"√({radicand})"
    if element == "msqrt":
        return f"√({''.join(parts)})"
    marks = MARKS.get(element, "")
    if not marks or len(parts) != len(marks) + 1:
        return "".join(parts)
    first, *others = (part if len(part) == 1 or part.isalnum() else f"({part})" if part else "" for part in parts)
    return first + "".join(mark + other for mark, other in zip(marks, others, strict=True) if other)
