"""Word files as HTML by mammoth, with what it leaves out: fields, formulas, other directions, texts with readings."""

import io
import logging
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from notewriter.corpora import formulas, webpage
from notewriter.corpora.source import INSTALL
from notewriter.ground.errors import UserError, one_line

logger = logging.getLogger(__name__)

HEADINGS = "\n".join(
    ["p[style-name='Title'] => h1:fresh", *(f"p[style-name='Heading {n}'] => h{n + 1}:fresh" for n in range(1, 6))]
)
"""The headings of a Word file, below its title (mammoth's style map; other styles are as it has them)."""

READ_AS = {
    **dict.fromkeys(("fldSimple", "dir", "bdo", "ruby", "rubyBase", "oMathPara"), "smartTag"),
    **{"cr": "br", "ptab": "tab"},
}
"""Element that mammoth leaves out with the text in it -> one that it reads alike."""

STYLES = "word/styles.xml"

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
            if size > webpage.MAX_BYTES:
                most = webpage.MAX_BYTES // 1_000_000
                raise UserError(f"{name}: is larger than {most} MB; split it into several files")
            parser = etree.XMLParser(resolve_entities=False, huge_tree=True)
            names = [each for each in parts.namelist() if not each.startswith(PICTURES)]
            roots = {each: etree.fromstring(parts.read(each), parser) for each in (*TEXTS, STYLES) if each in names}
            if STYLES in roots:
                _name_headings(roots[STYLES])
            texts = [root for each, root in roots.items() if each in TEXTS]
            for root in texts:
                _make_readable(root, etree)
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as prepared:
                for each in names:
                    prepared.writestr(each, etree.tostring(roots[each]) if each in roots else parts.read(each))
        result = mammoth.convert_to_html(content, style_map=HEADINGS, convert_image=lambda image: [])
    except (RecursionError, UserError):
        raise
    except (*DAMAGED, ExpatError, etree.XMLSyntaxError) as error:
        raise UserError(f"{name}: is a damaged or encrypted Word file ({one_line(error)}); save it again") from error
    ignored = {match[1] for each in result.messages if (match := re.search(r"ignored: .*?(\w+)$", each.message))}
    if lost := sorted(ignored & {local for root in texts for local in _with_text(root)}):
        logger.warning("%s: what is in %s is not read", name, " and ".join(lost))
    return str(result.value)


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
        elif local in READ_AS:
            node.tag = word + READ_AS[local]


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
            if re.fullmatch(r"(?i)title|heading \d", name := value(based, "name")):
                if (own := style.find(f"{word}name")) is not None:
                    own.set(f"{word}val", name)
                break
            based = by_id.get(value(based, "basedOn"))


def _with_text(root: Any) -> set[str]:
    """The names of the elements with a text in them."""
    texts = (node for node in root.iter() if str(node.tag).endswith("}t") and node.text)
    return {str(each.tag).rpartition("}")[2] for node in texts for each in node.iterancestors()}
