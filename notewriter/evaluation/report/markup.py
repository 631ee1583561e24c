"""Tables as text: Markdown, LaTeX, and aligned for the terminal."""

from collections.abc import Sequence

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Caption, header and rows; the first column is text, the others are numbers."""

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
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            r"\end{table}",
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _latex_line(cells: Sequence[str]) -> str:
    line = " & ".join(cell.translate(LATEX) for cell in cells) + r" \\"
    # The rule or the line before would take what stands here as an argument.
    return "{}" + line if line.startswith(("[", "*")) else line


def aligned(tables: Sequence[Table]) -> str:
    """Tables for the terminal, each below its caption; columns of numbers are aligned right."""
    lines = []
    for caption, header, rows in tables:
        columns = list(zip(header, *rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        numbers = [all(cell[:1].isdecimal() for cell in column[1:] if cell) for column in columns]
        lines += [caption, ""]
        for line in (header, *rows):
            cells = (
                cell.rjust(width) if is_number else cell.ljust(width)
                for cell, width, is_number in zip(line, widths, numbers, strict=True)
            )
            lines.append("  ".join(cells).rstrip())
        lines.append("")
    return "\n".join(lines)
