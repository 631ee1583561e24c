"""Word files as HTML by mammoth, with what it leaves out: fields, formulas, other directions, texts with readings."""

import io
import logging
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from notewriter.corpora import formulas, html_tree
from notewriter.corpora.source import INSTALL
from notewriter.ground.errors import UserError, one_line

logger = logging.getLogger(__name__)

CODE = ("HTML Preformatted", "Preformatted Text", "Source Code")
"""The styles of code: Word's, LibreOffice's and Pandoc's."""

STYLE_MAP = "\n".join(
    [
        "p[style-name='Title'] => h1:fresh",
        *(f"p[style-name='Heading {n}'] => h{n + 1}:fresh" for n in range(1, 6)),
        *(f"p[style-name='{name}'] => pre:separator('\\n')" for name in CODE),
    ]
)
"""The headings of a Word file below its title, and its code (mammoth's style map; other styles are as it has them)."""

READ_AS = {
    **dict.fromkeys(("fldSimple", "dir", "bdo", "ruby", "rubyBase", "oMathPara"), "smartTag"),
    **{"cr": "br", "ptab": "tab"},
}
"""Element that mammoth leaves out with the text in it -> one that it reads alike."""

STYLES = "word/styles.xml"

NUMBERING = "word/numbering.xml"

NUMERALS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}
"""Word's letters and Roman numerals -> the `type` of an item of HTML."""

MARK = "\ue002"
"""Stands around the number of an item on its way through mammoth."""

BODY = "9"
"""The outline level of text, which a heading of the table of contents has."""

TEXTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")

PICTURES = "word/media/"

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, LookupError, ValueError, TypeError, AttributeError)
"""The errors of a zip file (its directory, a part's bytes, its end, encryption, unknown compression), and mammoth's
of a missing part or attribute."""


def read(name: str, path: Path) -> str:
    """A Word file as HTML without its pictures; a warning names elements with text that are not read.

    Raises:
        UserError: a library is missing, or the file is damaged, encrypted or too large.
    """
    try:
        import mammoth
        from lxml import etree
    except ImportError as error:
        raise UserError(f"{name}: Word files cannot be read without {error.name}; {INSTALL}") from error
    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist() if not part.filename.startswith(PICTURES))
            if size > html_tree.MAX_BYTES:
                most = html_tree.MAX_BYTES // 1_000_000
                raise UserError(f"{name}: is larger than {most} MB; split it into several files")
            parser = etree.XMLParser(resolve_entities=False, huge_tree=True)
            names = [each for each in parts.namelist() if not each.startswith(PICTURES)]
            roots = {
                each: etree.fromstring(parts.read(each), parser)
                for each in (*TEXTS, STYLES, NUMBERING)
                if each in names
            }
            if STYLES in roots:
                _name_headings(roots[STYLES])
            texts = [root for each, root in roots.items() if each in TEXTS]
            for root in texts:
                _make_readable(root, etree)
                if NUMBERING in roots:
                    _number_items(root, roots[NUMBERING], roots.get(STYLES, ()), etree)
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as prepared:
                for each in names:
                    prepared.writestr(each, etree.tostring(roots[each]) if each in roots else parts.read(each))
        result = mammoth.convert_to_html(content, style_map=STYLE_MAP, convert_image=lambda image: [])
    except (RecursionError, UserError):
        raise
    except (*DAMAGED, ExpatError, etree.XMLSyntaxError) as error:
        raise UserError(f"{name}: is a damaged or encrypted Word file ({one_line(error)}); save it again") from error
    ignored = {match[1] for each in result.messages if (match := re.search(r"ignored: .*?(\w+)$", each.message))}
    if lost := sorted(ignored & {local for root in texts for local in _with_text(root)}):
        logger.warning("%s: what is in %s is not read", name, " and ".join(lost))
    items = re.sub(f"<li>{MARK}(.)([0-9]+){MARK}", r'<li type="\1" value="\2">', result.value)
    return re.sub(f"{MARK}[^{MARK}]*{MARK}", "", items)


def _make_readable(root: Any, etree: Any) -> None:
    """Change the elements of a part that mammoth would leave out into some that it reads."""
    word = str(root.tag).rpartition("}")[0] + "}"
    for node in list(root.iter(etree.Element)):
        local = etree.QName(node).localname
        if local == "oMath":
            text = formulas.of_word(node)
            node.clear(keep_tail=True)
            node.tag = f"{word}r"
            etree.SubElement(node, f"{word}t").text = text
        elif local == "rt" and node.getparent() is not None:
            # The reading of the characters beside it, which are the text.
            node.getparent().remove(node)
        elif local == "r" and _is_hidden(node):
            node.clear(keep_tail=True)
        elif local in READ_AS:
            node.tag = word + READ_AS[local]


def _is_hidden(run: Any) -> bool:
    """Whether Word does not show a run."""
    word = str(run.tag).rpartition("}")[0] + "}"
    vanish = run.find(f"{word}rPr/{word}vanish")
    return vanish is not None and vanish.get(f"{word}val") not in {"0", "false", "off"}


def _number_items(root: Any, numbering: Any, styles: Any, etree: Any) -> None:
    """Write the numbers of lists into their items, since mammoth begins anew behind what stands between two items."""
    word = str(root.tag).rpartition("}")[0] + "}"

    def value(node: Any, path: str) -> str | None:
        found = None if node is None else node.find("/".join(word + each for each in path.split("/")))
        return None if found is None else found.get(f"{word}val")

    lists = {each.get(f"{word}abstractNumId"): each for each in numbering.iter(f"{word}abstractNum")}
    uses = {each.get(f"{word}numId"): each for each in numbering.iter(f"{word}num")}
    by_id = {style.get(f"{word}styleId"): style for style in styles}
    last: dict[str | None, dict[int, int]] = {}
    seen = set()
    for paragraph in root.iter(f"{word}p"):
        style = by_id.get(value(paragraph, "pPr/pStyle"))
        number = value(paragraph, "pPr/numPr/numId") or value(style, "pPr/numPr/numId")
        use = uses.get(number)
        if use is None or next(paragraph.iterancestors(f"{word}txbxContent"), None) is not None:
            continue
        depth = int(value(paragraph, "pPr/numPr/ilvl") or value(style, "pPr/numPr/ilvl") or 0)
        counts = last.setdefault(name := value(use, "abstractNumId"), {})
        levels = lists[name].iterchildren(f"{word}lvl") if name in lists else ()
        level = next((each for each in levels if int(each.get(f"{word}ilvl")) == depth), None)
        if level is None or (form := value(level, "numFmt")) in {"bullet", "none"}:
            continue
        overrides = {int(each.get(f"{word}ilvl")): each for each in use.iterchildren(f"{word}lvlOverride")}
        begun = value(overrides.get(depth), "startOverride")
        if begun and (number, depth) not in seen:
            counts.pop(depth, None)
        seen.add((number, depth))
        counts[depth] = counts[depth] + 1 if depth in counts else int(begun or value(level, "start") or 1)
        last[name] = {each: count for each, count in counts.items() if each <= depth}
        run = etree.Element(f"{word}r")
        etree.SubElement(run, f"{word}t").text = f"{MARK}{NUMERALS.get(form or '', '1')}{counts[depth]}{MARK}"
        paragraph.insert(int(paragraph.find(f"{word}pPr") is not None), run)
        if value(style, "name") in CODE:
            # It is shown as an item.
            paragraph.find(f"{word}pPr").remove(paragraph.find(f"{word}pPr/{word}pStyle"))


def _name_headings(styles: Any) -> None:
    """Give a style that is based on a heading, as those of a company are, the heading's name."""
    word = str(styles.tag).rpartition("}")[0] + "}"
    by_id = {style.get(f"{word}styleId"): style for style in styles.iter(f"{word}style")}

    def value(style: Any, path: str) -> str:
        found = style.find("/".join(word + each for each in path.split("/")))
        return "" if found is None else found.get(f"{word}val") or ""

    for style in by_id.values():
        based: Any = style
        # At most as often as there are styles: they may name each other in a circle.
        for _ in by_id:
            if based is None or value(based, "pPr/outlineLvl") == BODY:
                break
            if re.fullmatch(r"(?i)heading \d", name := value(based, "name")):
                if (own := style.find(f"{word}name")) is not None:
                    own.set(f"{word}val", name)
                break
            based = by_id.get(value(based, "basedOn"))


def _with_text(root: Any) -> set[str]:
    """The names of the elements with a text in them."""
    texts = (node for node in root.iter() if str(node.tag).endswith("}t") and node.text)
    return {str(each.tag).rpartition("}")[2] for node in texts for each in node.iterancestors()}
