"""The page of results: sections of texts, tables and plots, as one HTML file, as Markdown and as LaTeX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from notewriter.ground import jsonl
from notewriter.pages import tables, write_page
from notewriter.pages.tables import Table


class Plot(NamedTuple):
    """A plot: its name among those of the page, and the SVG."""

    name: str
    svg: str


Part = str | Table | Plot
"""A paragraph, in Markdown where the page is, a table or a plot."""


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        id: its place on the page.
        title: its heading; empty for parts that belong to no heading.
        parts: its contents; a section without parts is left out.
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
    if isinstance(part, Plot):
        return Markup('<div class="plot">{}</div>').format(Markup(part.svg))
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
            text += [f"## {section.title}"] if section.title else []
            for part in section.parts:
                if isinstance(part, Plot):
                    jsonl.write_text(image := output.with_name(f"{output.stem}-{part.name}.svg"), [part.svg])
                    text.append(f"![{part.name}]({image.name})")
                else:
                    text.append(as_markdown(part))
    jsonl.write_text(output, ["\n\n".join(text) + "\n"])


def as_markdown(part: str | Table) -> str:
    """A paragraph or a table in Markdown."""
    return part if isinstance(part, str) else tables.markdown([part]).rstrip("\n")


def write_latex(output: Path, sections: Sequence[Section]) -> None:
    r"""Write a page's tables as LaTeX, for `\input`; they need the package booktabs.

    Raises:
        UserError: the file cannot be written.
    """
    shown = [
        part for section in sections if section.as_text for part in section.parts if not isinstance(part, str | Plot)
    ]
    jsonl.write_text(output, [tables.latex(shown)])
