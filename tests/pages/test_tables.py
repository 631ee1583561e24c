from notewriter.pages.tables import aligned, html, latex, markdown

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


def test_html_is_escaped_and_marks_sure_rows():
    text = html(TABLE)
    assert '<th></th><th class="number">run_1|x</th>' in text
    assert '<tr class="sure"><th>Token F1</th><td class="number">0.5 [0.4 to 0.6] *</td></tr>' in text
    assert html(("", ["<b>"], [["<i>"]])).count("&lt;") == 2


def test_a_table_in_the_terminal_is_markdown_below_its_caption():
    table = ["metric", "after"], [["f1", "0.500"], ["calls", "12.0"]]
    lines = ["| metric | after |", "|--------|------:|", "| f1     | 0.500 |", "| calls  |  12.0 |"]
    assert aligned([("", *table)]).splitlines() == lines
    assert aligned([("", *table), ("Costs", *table)]).splitlines() == [*lines, "", "Costs", "", *lines]


def test_names_in_a_table_do_not_control_the_terminal():
    assert "judge \\x1b[2J" in aligned([("", ["judge"], [["judge \x1b[2J"]])])
