"""The page of results: sections of texts, tables and plots, as one HTML file, as Markdown and as LaTeX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from notewriter.ground import jsonl
from notewriter.pages import tables, write_page
from notewriter.pages.tables import Table

Part = str | Table
"""A paragraph, a table, or a plot: SVG as `Markup`."""


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        id: its place on the page.
        title: its heading.
        parts: what is in it; a section without parts is left out.
        beside: whether its tables and plots stand side by side where the page is wide.
        as_text: whether it is in Markdown and LaTeX too.
        texts: how many of the first columns of its tables are text.
    """

    id: str
    title: str
    parts: Sequence[Part]
    beside: bool = False
    as_text: bool = True
    texts: int = 1


def write(
    output: Path,
    title: str,
    intro: Sequence[str],
    sections: Sequence[Section],
    viewer: Mapping[str, str] | None = None,
) -> None:
    """Write a page as HTML.

    Args:
        output: the file.
        title: its heading.
        intro: paragraphs below the heading.
        sections: in their order.
        viewer: element id -> packed data of the viewer of questions and traces; None: without it.

    Raises:
        UserError: the file cannot be written.
    """
    write_page(
        output,
        Path(__file__).with_name("page_of_results.html.jinja"),
        viewer or {},
        title=title,
        intro=intro,
        sections=[each for each in sections if each.parts],
        html=_html,
    )


def _html(part: Part, texts: int) -> Markup:
    if isinstance(part, Markup):
        return Markup('<div class="plot">{}</div>').format(part)
    if isinstance(part, str):
        return Markup('<p class="soft">{}</p>').format(part)
    caption, _, rows = part
    heading = Markup("<h3>{}</h3>").format(caption) if caption else Markup()
    return Markup('<div class="scroll">{}{}</div>').format(heading, tables.html(part, texts) if rows else "")


def write_markdown(output: Path, title: str, intro: Sequence[str], sections: Sequence[Section]) -> None:
    """Write a page as Markdown, each plot as an SVG file beside it.

    Raises:
        UserError: a file cannot be written.
    """
    text = [f"# {title}", *intro]
    for section in sections:
        if section.as_text and section.parts:
            text.append(f"## {section.title}")
            for part in section.parts:
                if isinstance(part, Markup):
                    image = output.with_name(f"{output.stem}-{section.id}.svg")
                    jsonl.write_text(image, [part])
                    text.append(f"![{section.title}]({image.name})")
                else:
                    text.append(part if isinstance(part, str) else tables.markdown([part]).rstrip("\n"))
    jsonl.write_text(output, ["\n\n".join(text) + "\n"])


def write_latex(output: Path, sections: Sequence[Section]) -> None:
    r"""Write a page's tables as LaTeX, for `\input`; they need the package booktabs.

    Raises:
        UserError: the file cannot be written.
    """
    shown = [part for section in sections if section.as_text for part in section.parts if not isinstance(part, str)]
    jsonl.write_text(output, [tables.latex(shown)])
