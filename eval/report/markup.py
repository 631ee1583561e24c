"""The report's main tables as Markdown and LaTeX."""

from collections.abc import Sequence

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Caption, header and rows; the first column is text, the others are numbers."""

MARKDOWN = str.maketrans(
    {character: "\\" + character for character in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;", "\n": " "}
)
LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "\n": " "}
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
        head, *body = (" & ".join(cell.translate(LATEX) for cell in cells) + r" \\" for cells in (header, *rows))
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption.translate(LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            r"\end{table}",
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
