from notewriter.evaluation.report.markup import latex, markdown

TABLE = ("50% of <b>", ["", "run_1|x"], [["Token F1", "0.5 [0.4 to 0.6] *"], ["a\\b\n", "{$}"]])


def test_markdown_escapes_what_would_be_markup():
    assert markdown([TABLE]).splitlines() == [
        "**50% of &lt;b&gt;**",
        "",
        r"|  | run\_1\|x |",
        "| --- | ---: |",
        r"| Token F1 | 0.5 \[0.4 to 0.6\] \* |",
        r"| a\\b  | {$} |",
    ]


def test_latex_escapes_what_would_be_commands():
    assert latex([TABLE]).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{50\% of \textless{}b\textgreater{}}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & run\_1\textbar{}x \\",
        r"\midrule",
        r"Token F1 & 0.5 [0.4 to 0.6] * \\",
        r"a\textbackslash{}b  & \{\$\} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_a_line_of_latex_is_no_argument_of_the_line_before():
    text = latex([("Runs", ["", "F1"], [["[a]", "0.5 [0.4, 0.6]"], ["*", "1"]])])
    assert "{}[a] & 0.5 [0.4, 0.6] \\\\\n{}* & 1 \\\\" in text
