"""A page of HTML keeps its structure and loses what only navigates."""

import pytest

from notewriter.corpora.webpage import read
from notewriter.ground.errors import UserError

PANELS = "<div role=tabpanel><p>Run apt.</p></div><div role=tabpanel hidden><p>Run apk.</p></div>"
BLOCKS = "<div class=tabbed-block><p>Run apt.</p></div><div class=tabbed-block>Run apk.</div>"


def text(html: str | bytes) -> str:
    return read("page", html).text


@pytest.mark.parametrize(
    "frame", ["{}", "<main>{}</main>", "<article>{}</article>", "<table><tr><td>{}</td></tr></table>"]
)
def test_headings_are_kept_whatever_is_around_them(frame):
    sections = "".join(f"<h2>{n}. Part</h2><p>{'The pump of Tolen runs all night. ' * 8}</p>" for n in range(20))
    page = read("page", f"<html><body>{frame.format('<h1>Pumps</h1>' + sections)}</body></html>")
    assert [heading.title for heading in page.headings] == ["Pumps", *(f"{n}. Part" for n in range(20))]
    assert all(page.text[each.start :].startswith("#" * each.level + f" {each.title}") for each in page.headings)
    assert page.title == "Pumps"


def test_text_that_looks_like_markdown_makes_no_heading_and_hides_none():
    page = read("page", "<p># one</p><p>```</p><p>&lt;script&gt;</p><h2>Two</h2>")
    assert [heading.title for heading in page.headings] == ["Two"]


def test_code_keeps_its_lines_and_tabs_in_lists_and_in_sentences():
    html = "<ol start=4><li>Run<pre>make\n\tall\n\n```</pre></li><li>Wait</li></ol><p>Call <code>a\nb</code>.</p>"
    assert text(html) == "4. Run\n   ````\n   make\n   \tall\n\n   ```\n   ````\n5. Wait\n\nCall a b."


def test_lines_of_code_may_be_elements_and_line_numbers_go():
    html = "<pre><span class=linenos>1</span><div>one;</div><span class=linenos>2</span><div>two;</div></pre>"
    assert text(html) == "```\none;\ntwo;\n```"


def test_a_table_with_a_line_of_code_in_each_row_is_code():
    lines = [("1", "def f():"), ("2", "    return 1")]
    rows = "\n".join(
        f"<tr>\n  <td class='blob-num'>{number}</td>\n  <td class='blob-code'><i>{line}</i></td>\n</tr>"
        for number, line in lines
    )
    assert text(f"<p>So:</p><table>{rows}</table>") == "So:\n\n```\ndef f():\n    return 1\n```"
    gutter = "<td class='gutter'><pre>1\n2</pre></td><td class='code'><pre>def f():\n    return 1</pre></td>"
    assert text(f"<p>So:</p><table><tr>{gutter}</tr></table>") == "So:\n\n```\ndef f():\n    return 1\n```"
    # As a place in a grid it is a name like any other.
    assert text("<div class='row gutter'><p>Text.</p></div>") == "Text."


def test_lines_of_code_with_a_name_above_them_stay_lines():
    """As Material for MkDocs sets a block with a title and numbers."""
    code = "<tr><td class=linenos><pre>1</pre></td><td class=code><pre>def f():\n    return 1</pre></td></tr>"
    table = f"<table><tr><th class=filename colspan=2>pump.py</th></tr>{code}</table>"
    assert text(table) == "pump.py\n\n```\ndef f():\n    return 1\n```"


@pytest.mark.parametrize(
    "html",
    [
        "<div class=fragment><div class=line>if (on) {</div>\n<div class=line>  run();</div></div>",
        "<blockquote class=SCodeFlow><table><tr><td>if (on) {</td></tr><tr><td>&nbsp;&nbsp;run();</td></tr></table>",
    ],
)
def test_code_of_doxygen_and_racket_keeps_its_lines(html):
    assert text(f"<p>So:</p>{html}") == "So:\n\n```\nif (on) {\n  run();\n```"


def test_a_contract_of_racket_stays_in_its_row():
    row = "<tr><td>bar</td><td>:</td><td><table class=RktBlk><tr><td>(or/c int?</td></tr></table></td></tr>"
    assert text(f"<table>{row}</table>").splitlines()[0] == "| bar | : | (or/c int? |"


def test_a_step_of_slides_is_no_code():
    assert text("<div class=fragment><p>One</p><p>step.</p></div>") == "One\n\nstep."


def test_a_table_of_javadoc_has_a_row_a_line():
    names = "<div class='table-header col-first'>Type</div><div class='table-header col-last'>Description</div>"
    row = "<div class=col-first><code>void</code></div><div class=col-last><div class=block>Stops it.</div></div>"
    assert text(f"<div class='summary-table two-column-summary'>{names}{row}</div>").splitlines()[::2] == [
        "| Type | Description |",
        "| void | Stops it. |",
    ]


def test_the_type_of_a_term_is_no_part_of_its_name():
    html = "<dl><dt>bar<span class=classifier>float</span></dt><dd>Pressure.</dd></dl>"
    assert text(html) == "bar : float\nPressure."
    assert text("<h3><code class=tsd-tag>Optional</code>bar</h3>") == "### Optional bar"


@pytest.mark.parametrize(
    ("bar", "panels"),
    [
        ("<div role=tablist><button role=tab>{}</button><button role=tab>{}</button></div>", PANELS),
        ("<ul role=tablist class=tabs><li role=tab>{}<li role=tab>{}</ul>", f"<div>{PANELS}</div>"),
        ("<div class=tabbed-labels><label>{}</label><label>{}</label></div>", f"<div>{BLOCKS}</div>"),
    ],
)
def test_a_tab_stands_above_its_panel(bar, panels):
    """Those of Sphinx, of Docusaurus, and of Material for MkDocs."""
    html = f"<p>So:</p><div>{bar.format('Debian', 'Alpine')}{panels}</div>"
    assert text(html) == "So:\n\nDebian\n\nRun apt.\n\nAlpine\n\nRun apk."


def test_an_element_may_be_a_heading_by_its_role():
    page = read(
        "page", "<h1>Mill</h1><div role=heading aria-level=3>Wheel</div><p>a</p><p role=heading>Door</p><p>b</p>"
    )
    assert [(each.level, each.title) for each in page.headings] == [(1, "Mill"), (3, "Wheel"), (2, "Door")]


def test_a_term_stands_above_its_definition():
    html = "<dl><dt>-q</dt><dt>--quiet</dt><dd><p>Says nothing.</p><p>At all.</p></dd></dl>"
    assert text(html) == "-q\n--quiet\nSays nothing.\n\nAt all."


def test_powers_indices_notes_and_formulas():
    html = (
        "<p>10<sup>6</sup> l of H<sub>2</sub>O in 1811<sup>3</sup>, the 21<sup>st</sup><sup><a href=#n1>1</a></sup>, "
        "log<sub>2</sub>10, <math><msup><mi>x</mi><mn>2</mn></msup></math>, "
        '<math alttext="{\\displaystyle a_{1}}"><mi>a</mi></math>, <img alt="$y$">, <img alt="a logo">.</p>'
    )
    assert text(html) == "10^6 l of H2O in 1811 [3], the 21st [1], log2 10, x^2, a_{1}, $y$, ."


def test_the_reading_beside_characters_is_no_part_of_the_word():
    assert text("<p>The <ruby>川<rp>(</rp><rt>かわ</rt><rp>)</rp></ruby> is long.</p>") == "The 川 is long."


def test_a_heading_that_unfolds_its_text_is_a_button():
    """The pattern of WAI-ARIA, and of Bootstrap's accordions."""
    html = (
        "<h1>FAQ</h1><h2><button aria-expanded=false>What is the Osk?</button></h2>"
        "<div hidden=until-found><p>A river.</p></div><h2>Tolen <button>Copy</button></h2><p>A town.</p>"
        "<button>More</button><h3 role=button>Send</h3>"
    )
    assert text(html) == "# FAQ\n\n## What is the Osk?\n\nA river.\n\n## Tolen\n\nA town."


def test_words_that_are_quoted_or_no_longer_true_say_so():
    assert text("<p>He said <q>yes</q>: <del>10</del> <ins>12</ins> pence.</p>") == 'He said "yes": ~~10~~ 12 pence.'


def test_warnings_and_names_are_as_written():
    html = "<aside class=warning>Mind the <b>__init__</b> and *args; for (;;) {}.</aside>"
    assert text(html) == "Mind the __init__ and *args; for (;;) {}."


def test_a_table_that_places_text_is_read_as_text_and_one_of_data_by_rows():
    assert text("<table><tr><td>Menu</td><td><h2>A</h2><p>b</p></td></tr></table>") == "Menu\n\n## A\n\nb"
    rows = "<tr><th>Model<th>Part</tr><tr><td rowspan=2>A1<td>Filter</tr><tr><td>Seal</tr>"
    assert text(f"<table>{rows}</table>").splitlines()[-1] == "| A1 | Seal |"


def test_a_row_or_cell_of_a_table_may_be_called_its_footer():
    rows = "<tr><th>Part<th>Pence<tr><td>Oar<td>4<tr class=footer><td>Sum<td class=footer>4"
    assert text(f"<p>So:</p><table>{rows}</table>").splitlines()[-1] == "| Sum | 4 |"


def test_numbers_of_a_reversed_list_fall():
    items = "<li>gold<li>silver<li>bronze"
    assert text(f"<ol reversed>{items}</ol>") == "3. gold\n2. silver\n1. bronze"
    assert text(f"<ol reversed start=9>{items}</ol>") == "9. gold\n8. silver\n7. bronze"


def test_items_have_the_letters_and_roman_numerals_of_their_list():
    items = "<li>gold<li>silver"
    assert text(f"<ol type=a>{items}</ol>") == "a. gold\nb. silver"
    assert text(f"<ol type=I start=4>{items}</ol>") == "IV. gold\nV. silver"
    assert text(f"<ol class='upperalpha simple' start=26>{items}</ol>") == "Z. gold\nAA. silver"
    assert text(f"<ol style='list-style-type: lower-roman' start=899>{items}</ol>") == "dcccxcix. gold\ncm. silver"
    assert text("<ol><li type=a value=3>gold</li></ol>") == "c. gold"
    assert text(f"<ol type=a start=0>{items}</ol>") == "0. gold\na. silver"


@pytest.mark.parametrize("title", ["References", "Footer", "TOC", "Navigation", "Topics", "Next", "Menu"])
def test_a_section_may_be_called_as_what_navigates_is(title):
    """Generators make the ids of sections of their headings' words."""
    name = title.lower().replace(" ", "-")
    link = "<p><a href=w>The wells beside the river Osk</a></p>"
    section = f"<section id={name}><h2>1.2 {title}<a href=#>¶</a></h2>{link}</section>"
    assert text(f"<h1>Pumps</h1>{section}") == f"# Pumps\n\n## 1.2 {title}\n\nThe wells beside the river Osk"
    assert (
        text(f"<h1>Pumps</h1><h2 id={name}>{title}</h2>{link}")
        == f"# Pumps\n\n## {title}\n\nThe wells beside the river Osk"
    )
    assert text(f"<h1>Pumps</h1><p>Text.</p><div id={name}><a href=w>Wells</a></div>") == "# Pumps\n\nText."


def test_lists_of_references_and_metadata_that_are_no_encyclopedias_stay():
    """Those of Pandoc and Doxygen have the names of Wikipedia's."""
    html = "<p>So.</p><div class=references><p>Tolen 1811.</p></div><dl class=reflist><dt>Osk<dd>River.</dl>"
    assert text(html) == "So.\n\nTolen 1811.\n\nOsk\nRiver."
    assert (
        text("<p>So.</p><div class=metadata>Model A1</div><ol class=references><li>Census.</ol>") == "So.\n\nModel A1"
    )


def test_a_box_of_what_to_see_also_is_text():
    assert text("<p>So.</p><div class='admonition seealso'><a href=w>Wells</a></div><p>End.</p>") == (
        "So.\n\nWells\n\nEnd."
    )


def test_what_is_for_printers_alone_is_no_second_title():
    html = "<main><div class=onlyprint><h1>Pumps</h1></div><article><h1>Pumps</h1><p>Text.</p></article></main>"
    assert text(html) == "# Pumps\n\nText."


def test_the_header_of_a_page_stays_if_it_has_a_heading():
    assert text("<div class=page-header><h2>Pumps</h2></div><p>Text.</p>") == "## Pumps\n\nText."
    assert text("<div class=page-header>Imprint</div><p>Text.</p>") == "Text."


def test_what_navigates_goes_and_links_of_the_text_stay():
    html = """<html><body><div class=navheader><a href=a>Prev</a></div><p><a href=i>Home</a> <a href=j>Up</a></p>
    <div role=navigation>Go</div><h1>Pumps<a href=#p>¶</a></h1><p>Pumps need care; see <a href=b>valves</a>.</p>
    <h2>See also</h2><ul><li><a href=c>Wells</a></li></ul><footer>Imprint</footer></body></html>"""
    assert text(html) == "# Pumps\n\nPumps need care; see valves.\n\n## See also\n\n- Wells"
    assert text(html.replace("<h2>See also</h2>", "")) == "# Pumps\n\nPumps need care; see valves."


def test_a_theme_may_name_the_whole_page_after_its_menu():
    links = "".join(f"<li><a href=p{number}>pump {number}</a></li>" for number in range(9))
    html = f"<div class=grid-for-nav><section class=nav-content-wrap><h1>Index</h1><ul>{links}</ul></section></div>"
    assert text(html).startswith("# Index\n\n- pump 0\n- pump 1")


def test_boxes_of_a_manual_that_are_called_sidebars_stay():
    assert text("<div class=sidebar><p>Why pumps fail.</p></div><div class=sidebar><a href=a>Next page</a></div>") == (
        "Why pumps fail."
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<p>Flüsse".encode(), "Flüsse"),
        ("<p>Flüsse".encode("utf-16"), "Flüsse"),
        ("<p>Flüsse".encode("latin-1"), "Flüsse"),
        ('<meta charset="koi8-r"><p>реки'.encode("koi8-r"), "реки"),
        ('<?xml version="1.0" encoding="shift_jis"?><p>川の水'.encode("shift_jis"), "川の水"),
    ],
)
def test_a_page_may_be_in_any_charset_that_it_declares(content, words):
    assert text(content) == words


@pytest.mark.parametrize("declared", ["", '<meta charset="punycode">', '<meta charset="nothing">'])
def test_a_page_in_no_known_charset_is_refused(declared):
    with pytest.raises(UserError, match="is not UTF-8 and declares"):
        text(declared.encode() + "<p>川の水".encode("shift_jis"))


def test_the_only_article_is_not_the_page_without_its_title():
    """JSDoc has a class and what it is for above the article of its methods."""
    article = f"<article><h2>Methods</h2><p>{'It pumps. ' * 9}</p></article>"
    assert text(f"<div id=main><h1>Pump</h1><p>A pump.</p>{article}</div>").startswith("# Pump\n\nA pump.\n\n## Meth")


@pytest.mark.parametrize("name", ["prev-next-area", "bd-header-article", "col-sidebar"])
def test_what_themes_of_sphinx_and_typedoc_have_around_a_page_goes(name):
    frame = f"<div class={name}><a href=a><p>next</p><p>Wells</p></a><p>Theme: light or dark</p></div>"
    assert text(f"<main><h1>Pumps</h1><p>Text.</p>{frame}</main>") == "# Pumps\n\nText."


def test_a_page_as_confluence_exports_it():
    html = """<body><div id=main-header><div id=breadcrumb-section><ol id=breadcrumbs><li><a href=i>Space</a></ol></div>
    <h1 id=title-heading>Pumps</h1></div><div class=page-metadata>By A</div><div id=main-content><h2>Filters</h2>
    <table class=confluenceTable><tr><th>Model<th>Life</tr><tr><td>A1<td>2 years</tr></table></div>
    <div id=footer role=contentinfo>Generated</div></body>"""
    assert text(html) == "# Pumps\n\n## Filters\n\n| Model | Life |\n| --- | --- |\n| A1 | 2 years |"


def test_a_footnote_of_latexml_is_in_brackets_in_its_sentence_and_below_its_heading():
    """As arXiv has papers in HTML: mark, mark again, number, text."""
    note = (
        "<span class='ltx_note ltx_role_footnote'><sup class=ltx_note_mark>2</sup><span class=ltx_note_outer>"
        "<sup class=ltx_note_mark>2</sup><span class='ltx_tag ltx_tag_note'>2</span>Of 1811.</span></span>"
    )
    page = read("page", f"<h1>Pumps{note} of Tolen</h1><p>A census{note}, and 12 pumps.</p>")
    assert page.text == "# Pumps of Tolen\n\nOf 1811.\n\nA census [Of 1811.], and 12 pumps."
    assert page.title == "Pumps of Tolen"


def test_items_of_latexml_have_the_marks_that_are_written_in_them():
    def item(mark):
        tag = f"<span class='ltx_tag ltx_tag_item'>{mark}</span>"
        return f"<li style='list-style-type:none;'>{tag} <div><p>Wait.</p></div></li>"

    assert text(f"<ul>{item('•')}</ul><ol>{item('(b)')}{item('2.')}</ol>") == "- Wait.\n\n(b) Wait.\n2. Wait."


def test_an_equation_that_latexml_sets_as_a_table_is_a_line():
    math = "<td></td><td><math alttext='p(y|x)'></math></td><td><math alttext='=1'></math></td>"
    assert text(f"<table class='ltx_equation ltx_eqn_table'><tr>{math}<td>(1)</td></tr></table>") == "p(y|x) =1 (1)"


def test_a_table_that_latexml_writes_in_a_line_has_its_rows():
    head = (
        "<span class=ltx_tr><span class=ltx_td></span><span class='ltx_td ltx_colspan ltx_colspan_2'>Bar</span></span>"
    )
    row = "<span class=ltx_tr><span class=ltx_td>A1</span><span class=ltx_td></span><span class=ltx_td>4</span></span>"
    table = f"<span class=ltx_tabular><span class=ltx_tbody>{head}{row}</span></span>"
    assert text(f"<p><span>{table}</span></p>").splitlines()[::2] == ["|  | Bar |  |", "| A1 |  | 4 |"]


@pytest.mark.parametrize("tag", ["div", "span"])
def test_code_of_latexml_keeps_its_lines_and_formulas(tag):
    data = "<div class=ltx_listing_data><a href=data:,a download>⬇</a></div>"
    number = "<span class='ltx_tag ltx_tag_listingline'>1</span>"
    lines = [f"{number}if <math alttext='n<1'><mi>n</mi></math>:", "", "<span>&nbsp;&nbsp;</span>run()"]
    html = "\n".join(f"<{tag} class=ltx_listingline>\n{line}\n</{tag}>" for line in lines)
    assert text(f"<p>So:</p><{tag} class='ltx_listing ltx_lstlisting'>{data}{html}</{tag}>") == (
        "So:\n\n```\nif n<1:\n\n  run()\n```"
    )


@pytest.mark.parametrize(
    "box", ["<div class=note><h3 class=title>Mind</h3>{}</div>", "<div class=ltx_proof><h6>Mind</h6>{}</div>"]
)
def test_the_heading_of_a_box_is_none_of_what_follows_the_box(box):
    """Those of DocBook and LaTeXML."""
    page = read("page", f"<h1>Mill</h1><h2>Wheel</h2>{box.format('<p>It turns.</p>')}<p>It is of oak.</p>")
    assert [heading.title for heading in page.headings] == ["Mill", "Wheel"]
    assert page.text.endswith("Mind\n\nIt turns.\n\nIt is of oak.")


def test_paragraphs_in_a_frame_of_latexml_are_no_picture():
    """As papers have prompts (tcolorbox)."""
    paragraphs = "<span class=ltx_p>Write a note.</span>\n<span class=ltx_p>Page: {page}</span>"
    box = "<svg class=ltx_picture><g><path d='M 0'></path><foreignObject>{}</foreignObject></g></svg>"
    framed = box.format(f"<span class='ltx_inline-block ltx_minipage'>{paragraphs}</span>")
    label = box.format("<span class=ltx_inline-block><span class=ltx_p>0.5</span></span>")
    assert text(f"<p>So:{framed}</p><p>{label}</p>") == "So:\n\nWrite a note.\n\nPage: {page}"
