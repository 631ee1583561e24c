"""The elements of a page: which are text, and which stand for others by the names that generators of manuals give them.

What only navigates is no text: by HTML's own elements and roles, or by the names that generators and MediaWiki give it.
"""

import re
from typing import Any

HEADINGS = {f"h{level}": level for level in range(1, 7)}
"""Headings -> their levels."""

NO_TEXT = {
    "audio", "base", "canvas", "datalist", "dialog", "embed", "iframe", "input", "link", "meta", "nav",
    "noframes", "noscript", "object", "option", "rp", "rt", "script", "select", "style", "svg", "template", "textarea",
    "title", "track", "video",
}  # fmt: skip
ROLES = {"navigation", "banner", "contentinfo", "search", "doc-toc", "tablist", "dialog"}
NAMES = {
    # MediaWiki
    "mw-editsection", "mw-ref", "navbox", "hatnote", "sistersitebox", "side-box", "ambox", "asbox", "shortdescription",
    "noprint", "mw-jump-link", "catlinks", "printfooter", "siteSub",
    # Manuals
    "sphinxsidebar", "headerlink", "viewcode-link", "linenos", "lineno", "linenumbers", "navheader", "navfooter",
    "docnav", "toc", "quickview", "toplang", "bottomlang", "page-metadata", "hash-link", "copybtn", "footer",
    "footer-text", "page-header", "skip-link", "rustdoc-toolbar", "ttc", "wy-nav-side", "rst-versions",
    "onlyprint", "prev-next-area", "bd-header-article", "col-sidebar", "classifier-delimiter",
    # LaTeXML
    "ltx_note_mark", "ltx_tag_note", "ltx_role_footnotemark", "ltx_listing_data", "ltx_tag_listingline",
}  # fmt: skip
"""Ids and classes of elements that are no part of the text."""

FRAME = {"footer", "footer-text", "page-header"}
"""Those of `NAMES` that rows and cells of a table may have, such as the row of sums."""

TABLE_PARTS = {"thead", "tbody", "tfoot", "tr", "th", "td"}

ONLY_AS = {
    **{"reference": "sup", "sidebar": "table", "references": "ol", "reflist": "div"},
    **dict.fromkeys(("gutter", "rouge-gutter", "blob-num", "hljs-ln-numbers"), "td"),
}
"""Classes that mean no text on this element alone, such as the numbers of lines of code."""

GRIDS = {"summary-table", "details-table"}
"""Classes of Javadoc's tables, whose cells have no rows around them; the first cell of each is a `col-first`."""

SPANS = {"ltx_p": "p", "ltx_tabular": "table", "ltx_tr": "tr", "ltx_td": "td", "ltx_listingline": "div"}
"""Class of a `<span>` -> the element for which it stands in a line, as LaTeXML writes tables that are scaled."""

BOXES = {"note", "tip", "important", "warning", "caution", "ltx_theorem", "ltx_proof"}
"""Classes of boxes of DocBook and LaTeXML, whose headings do not stand above the text that follows the box."""

TABS = {"tabs", "tabbed-labels"}
"""Classes of elements with the names of panels in labels, beside the role `tablist`."""

_NAVIGATES = re.compile(
    r"(?i)(.*[-_])?(\w*nav(bar|igation|header|footer|path)?|menu|(bread)?crumbs?|side-?bar|toc|pag(er|ination))([-_].*)?"
    r"|contents|header|footer|related(-\w+)?|path|topics?|up|next|prev(ious)?|lang(uages)?|list-of-\w+"
)
"""Ids and classes of elements that are no part of the text if most of it is links."""

LINKS = 0.6
"""Share of characters in links from which on an element only navigates."""


def pruned(tree: Any) -> Any:
    """A page without elements that are no text. Without a `<body>` the parser leaves the text in the head."""
    for bar in [each for each in tree.iter() if each.get("role") == "tablist" or TABS & classes_of(each)]:
        _name_panels(bar)
    for node in list(tree.iterdescendants()):
        if _is_text(node):
            _rewrite(node)
        else:
            node.drop_tree()
    return tree


def classes_of(node: Any) -> set[str]:
    """The classes of an element."""
    return {*(node.get("class") or "").split()}


def _name_panels(bar: Any) -> None:
    """Put the name of each tab of a bar above its panel, where as many follow the bar or are in what follows it."""
    tabs = [each for each in bar.iterdescendants() if each.get("role") == "tab" or each.tag == "label"]
    following = list(bar.itersiblings())
    panels = next((each for each in (following, [*following[0]] if following else []) if len(each) == len(tabs)), [])
    for tab, panel in zip(tabs, panels, strict=False):
        name = panel.makeelement("p")
        name.text, name.tail, panel.text = tab.text_content(), panel.text, None
        panel.insert(0, name)
    if panels:
        bar.drop_tree()


def _rewrite(node: Any) -> None:
    """Make an element that is a heading, code or a table by its style alone one by its tag."""
    names = classes_of(node)
    if node.get("role") == "heading" and node.tag not in HEADINGS:
        node.tag = f"h{min(max(whole_number(node.get('aria-level'), 2), 1), 6)}"
    elif node.tag in {"h3", "h6"} and node.getparent().tag == "div" and BOXES & classes_of(node.getparent()):
        node.tag = "p"
    elif node.tag == "span" and (part := next(filter(None, map(SPANS.get, names)), None)):
        node.tag = part
        for name, number in re.findall(r"ltx_(colspan|rowspan)_(\d+)", node.get("class")):
            node.set(name, number)
    elif "ltx_note" in names:
        _set_apart(node)
    elif "ltx_listing" in names:
        node.tag = "pre"
        for line in node.iterdescendants("div", "span"):
            if "ltx_listingline" in classes_of(line):
                line.text, line.tail = (line.text or "").lstrip("\n"), None
    elif "classifier" in names:
        # Sphinx's types of a term.
        node.text = f" : {node.text or ''}"
    elif "tsd-tag" in names:
        # TypeDoc's `Optional`.
        node.tail = f" {node.tail or ''}"
    elif "SCodeFlow" in names or ("fragment" in names and node.find(".//div[@class='line']") is not None):
        # Racket's and Doxygen's code.
        node.tag = "pre"
        for line in node.iterdescendants("div", "tr"):
            line.tail = None
    elif GRIDS & names:
        node.tag = "table"
        rows: list[Any] = []
        for cell in list(node):
            if not rows or "col-first" in classes_of(cell):
                rows.append(node.makeelement("tr"))
            cell.tag = "th" if "table-header" in classes_of(cell) else "td"
            rows[-1].append(cell)
        node.extend(rows)


def _set_apart(note: Any) -> None:
    """Put a footnote of LaTeXML, which stands in its sentence, in brackets, and one of a heading below that."""
    heading = next((each for each in note.iterancestors(*HEADINGS) if each.getparent() is not None), None)
    if heading is None:
        note.text, note.tail = f" [{note.text or ''}", f"]{note.tail or ''}"
    else:
        note.drop_tree()
        note.tag, note.tail = "p", None
        heading.addnext(note)


def _is_text(node: Any) -> bool:
    if not isinstance(node.tag, str):
        return False
    role, style = node.get("role") or "", (node.get("style") or "").replace(" ", "").lower()
    if "button" in (node.tag, role):
        # Headings that unfold a text, as of answers to questions, are buttons; others have one beside their words.
        heading = next(node.iterancestors(*HEADINGS), None)
        return heading is not None and characters_in(heading.text_content()) == characters_in(node.text_content()) > 0
    if node.tag in NO_TEXT:
        # MathJax reads formulas in scripts, and LaTeXML draws frames around paragraphs.
        is_frame = node.tag == "svg" and any("ltx_minipage" in classes_of(each) for each in node.iter("span", "div"))
        return is_frame or (node.tag == "script" and (node.get("type") or "").startswith("math/tex"))
    is_folded = node.get("hidden") not in (None, "until-found")
    is_hidden = is_folded or node.get("aria-hidden") == "true" or "display:none" in style
    if is_hidden and role != "tabpanel" and node.find(".//math") is None:
        return False
    names = {*classes_of(node), _own_id(node)}
    dropped = NAMES & names
    if node.tag in TABLE_PARTS:
        dropped -= FRAME
    if "page-header" in dropped and has_heading(node):
        # Bootstrap's wrapper of titles.
        dropped.remove("page-header")
    if role in ROLES or dropped or any(ONLY_AS.get(each) == node.tag for each in names):
        return node.tag in {"main", "body", "html"}
    if node.tag in {"header", "footer"} and not _is_inside(node, "article", "main", "section", "blockquote"):
        return node.tag == "header" and node.find(".//h1") is not None
    if node.tag == "a" and (node.get("href") or "").startswith("#"):
        # The mark beside a heading that links to itself.
        return len(node) > 0 or any(map(str.isalnum, node.text_content()))
    is_aside = node.tag == "aside" or any(map(_NAVIGATES.fullmatch, names))
    if not is_aside or node.tag in {"a", "body", "html", *HEADINGS} or not only_navigates(node):
        return True
    # Themes name what is beside their menu after it.
    return any(each.tag in {"h1", "main"} or each.get("role") == "main" for each in node.iterdescendants())


def _own_id(node: Any) -> str:
    """An element's id; empty where generators make it of words, as they do for headings and their sections."""
    identifier = node.get("id") or ""
    heading = next(node.iter(*HEADINGS), None) if identifier else None
    if heading is None:
        return identifier
    return "" if heading is node or _letters(heading.text_content()) == _letters(identifier) else identifier


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.lower()))


def _is_inside(node: Any, *tags: str) -> bool:
    return next(node.iterancestors(*tags), None) is not None


def only_navigates(node: Any) -> bool:
    """Whether most of an element is links."""
    length = characters_in(node.text_content())
    return length > 0 and characters_in_links(node) >= LINKS * length


def characters_in_links(node: Any) -> int:
    """The characters of an element that are in links."""
    return sum(characters_in(link.text_content()) for link in node.iter("a") if link.get("href"))


def characters_in(text: str) -> int:
    """The characters of a text without white space."""
    return len("".join(text.split()))


def has_heading(node: Any) -> bool:
    """Whether an element is a heading or has one in it."""
    return next(node.iter(*HEADINGS), None) is not None


def whole_number(value: str | None, default: int) -> int:
    """The whole number in an attribute; the default where it has none."""
    return int(value) if value and re.fullmatch(r"-?[0-9]{1,9}", value) else default
