"""Tables as text: Markdown, LaTeX, HTML, and aligned for the terminal."""

from collections.abc import Sequence

from markupsafe import Markup

from notewriter.ground.terminal import escape_controls

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Caption, header and rows; the first column is text, the others are numbers."""


class Marked(str):
    """The text of a table's cell, with the HTML that stands for it on a page."""

    markup: Markup

    def __new__(cls, text: str, markup: Markup) -> "Marked":
        """A text with its HTML."""
        cell = super().__new__(cls, text)
        cell.markup = markup
        return cell

    def __html__(self) -> str:
        return self.markup


MARKDOWN = str.maketrans(
    {character: "\\" + character for character in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;", "\n": " "}
)
LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "✓": r"$\surd$", "\n": " "}
)


def markdown(tables: Sequence[Table]) -> str:
    """Tables as GitHub-flavoured Markdown; names and reasons are escaped."""
    parts = []
    for caption, header, rows in tables:
        lines = [_line(header), "|" + "|".join([" --- ", *[" ---: "] * (len(header) - 1)]) + "|", *map(_line, rows)]
        parts.append(f"**{caption.translate(MARKDOWN)}**\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.translate(MARKDOWN) for cell in cells) + " |"


def latex(tables: Sequence[Table]) -> str:
    r"""Tables as LaTeX, for `\input`; they need the package booktabs."""
    parts = []
    for caption, header, rows in tables:
        head, *body = map(_latex_line, (header, *rows))
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption.translate(LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule", head, r"\midrule", *body, r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]  # fmt: skip
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _latex_line(cells: Sequence[str]) -> str:
    line = " & ".join(cell.translate(LATEX) for cell in cells) + r" \\"
    # The rule or the line before would take what stands here as an argument.
    return "{}" + line if line.startswith(("[", "*")) else line


def html(table: Table, texts: int = 1) -> Markup:
    """A table's header and rows as HTML, escaped; the first `texts` columns are text.

    A row in which a text ends with `*` is of the class `sure`.
    """
    _, header, rows = table
    lines = [_html_line(row, "td", texts) for row in rows]
    return Markup("<table>\n<thead>{}</thead>\n<tbody>\n{}\n</tbody>\n</table>").format(
        _html_line(header, "th", texts), Markup("\n").join(lines)
    )


def _html_line(cells: Sequence[str], kind: str, texts: int) -> Markup:
    row = '<tr class="sure">' if any(cell.endswith("*") for cell in cells) else "<tr>"
    forms = [
        f"<{tag}>{{}}</{tag}>" if number < texts else f'<{tag} class="number">{{}}</{tag}>'
        for number in range(len(cells))
        for tag in ["th" if number == 0 else kind]
    ]
    return Markup(f"{row}{''.join(forms)}</tr>").format(*cells)


def aligned(tables: Sequence[Table]) -> str:
    """Tables for the terminal that are Markdown too, each below its caption if it has one.

    Names of files and datasets do not control the terminal; Markdown is not escaped.
    """
    parts = ((f"{caption}\n\n" if caption else "") + _aligned(header, rows) for caption, header, rows in tables)
    return escape_controls("\n".join(parts))


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = []
    for number, column in enumerate(map(list, zip(header, *rows, strict=True))):
        if number and any(cell.endswith(" *") for cell in column):
            # So that the numbers stand below each other.
            column = [cell if cell.endswith(" *") else f"{cell}  " for cell in column]
        width = max(map(len, column))
        columns.append([cell.rjust(width) if number else cell.ljust(width) for cell in column])
    rule = ["-" * (len(cells[0]) + 1) + (":" if number else "-") for number, cells in enumerate(columns)]
    head, *body = ["| " + " | ".join(line) + " |\n" for line in zip(*columns, strict=True)]
    return "".join([head, f"|{'|'.join(rule)}|\n", *body])
