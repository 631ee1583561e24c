"""Word files, with the texts that mammoth leaves out."""

import io
import zipfile

import pytest
from corpus_files import docx

from notewriter.corpora import word

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def run(text):
    return f"<w:r><w:t>{text}</w:t></w:r>"


@pytest.fixture
def read(tmp_path):
    """The HTML of a paragraph of a Word file."""

    def read(paragraph, styles="", numbering=""):
        content = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(docx("HERE"))) as parts, zipfile.ZipFile(content, "w") as changed:
            for name in parts.namelist():
                text = parts.read(name).decode().replace(run("HERE"), paragraph)
                text = text.replace("<w:document ", f'<w:document xmlns:m="{MATH}" ')
                changed.writestr(name, text.replace("</w:styles>", f"{styles}</w:styles>"))
            if numbering:
                changed.writestr("word/numbering.xml", f'<w:numbering xmlns:w="{WORD}">{numbering}</w:numbering>')
        (tmp_path / "a.docx").write_bytes(content.getvalue())
        return word.read("a.docx", tmp_path / "a.docx")

    return read


@pytest.mark.parametrize(
    ("paragraph", "html"),
    [
        (f'Table <w:fldSimple w:instr=" SEQ Table ">{run("4")}</w:fldSimple>', "4"),
        (f'<w:dir w:val="rtl">{run("نهر")}</w:dir>', "نهر"),
        (f'<w:bdo w:val="rtl">{run("נהר")}</w:bdo>', "נהר"),
        (f"<w:r><w:ruby><w:rt>{run('かわ')}</w:rt><w:rubyBase>{run('川')}</w:rubyBase></w:ruby></w:r>", "川"),
        ("<w:r><w:t>Osk</w:t><w:cr/><w:t>Tolen</w:t></w:r>", "Osk<br />Tolen"),
        ("<w:r><w:t>Osk</w:t><w:ptab/><w:t>Tolen</w:t></w:r>", "Osk\tTolen"),
        (f"{run('is ')}<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>{run('.')}", "is x=1."),
        ("<m:oMathPara><m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath></m:oMathPara>", "x=1"),
    ],
)
def test_text_that_the_library_leaves_out_is_read(read, paragraph, html, caplog):
    assert read(paragraph) == f"<p>{html}</p>"
    assert not caplog.text


@pytest.mark.parametrize(
    ("style", "html"),
    [
        ('<w:basedOn w:val="Heading2"/>', "<h3>Course</h3>"),
        ('<w:basedOn w:val="Other"/>', "<h3>Course</h3>"),
        ('<w:basedOn w:val="Mine"/>', "<p>Course</p>"),
        # As Word has the heading of a table of contents.
        ('<w:basedOn w:val="Heading2"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr>', "<p>Course</p>"),
    ],
)
def test_a_style_that_is_based_on_a_headings_is_a_heading(read, style, html):
    styles = {"Mine": style, "Other": '<w:basedOn w:val="Heading2"/>'}
    nameless = '<w:style w:type="paragraph" w:styleId="None"><w:basedOn w:val="Heading2"/></w:style>'
    written = "".join(
        f'<w:style w:type="paragraph" w:styleId="{name}"><w:name w:val="{name}"/>{each}</w:style>'
        for name, each in styles.items()
    )
    assert read(f'<w:pPr><w:pStyle w:val="Mine"/></w:pPr>{run("Course")}', written + nameless) == html


def test_text_in_an_unknown_element_is_told_of(read, caplog):
    assert read(f"{run('Osk ')}<w:future>{run('is long')}</w:future><w:empty/>") == "<p>Osk </p>"
    assert caplog.messages == ["a.docx: what is in future is not read"]


@pytest.mark.parametrize("name", ["Source Code", "HTML Preformatted", "Preformatted Text"])
def test_code_keeps_its_lines(read, name):
    style = f'<w:style w:type="paragraph" w:styleId="Code"><w:name w:val="{name}"/></w:style>'
    properties = '<w:pPr><w:pStyle w:val="Code"/></w:pPr>'
    lines = (
        f"{properties}<w:r><w:t>def f():</w:t><w:br/><w:t>    return 1</w:t></w:r></w:p><w:p>{properties}{run('f()')}"
    )
    assert read(lines, style) == "<pre>def f():<br />    return 1\nf()</pre>"


def test_an_author_whose_style_is_based_on_the_titles_is_no_title(read):
    """As Pandoc has it."""
    styles = (
        '<w:style w:type="paragraph" w:styleId="Author"><w:name w:val="Author"/><w:basedOn w:val="Title"/></w:style>'
    )
    assert read(f'<w:pPr><w:pStyle w:val="Author"/></w:pPr>{run("A. Tolen")}', styles) == "<p>A. Tolen</p>"


def test_text_that_word_does_not_show_is_left_out(read):
    hidden, shown = (f"<w:r><w:rPr><w:vanish{value}/></w:rPr><w:t>old </w:t></w:r>" for value in ("", ' w:val="0"'))
    assert read(f"{run('The ')}{hidden}{run('Osk')}") == "<p>The Osk</p>"
    assert read(f"{run('The ')}{shown}{run('Osk')}") == "<p>The old Osk</p>"


def test_items_of_a_list_have_the_numbers_that_word_shows(read):
    """A list goes on behind a paragraph of text, in its letters, and begins anew where the file says so."""

    def item(text, number, depth=0, style=""):
        place = f'<w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/>'
        return f"<w:pPr>{style}<w:numPr>{place}</w:numPr></w:pPr>{run(text)}"

    levels = "".join(
        f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{form}"/></w:lvl>'
        for depth, form in enumerate(["decimal", "lowerLetter", "bullet"])
    )
    anew = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>'
    numbering = f'<w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>' + "".join(
        f'<w:num w:numId="{number}"><w:abstractNumId w:val="0"/>{start}</w:num>'
        for number, start in ((1, ""), (2, anew))
    )
    code = '<w:style w:type="paragraph" w:styleId="Code"><w:name w:val="Source Code"/></w:style>'
    as_code = '<w:pStyle w:val="Code"/>'
    items = [item("gold", 1), item("a", 1, 1), item("b", 1, 1, as_code), run("Text."), item("silver", 1)]
    items += [item("c", 1, 1), item("dot", 1, 2), item("bronze", 2), item("tin", 2)]
    assert read("</w:p><w:p>".join(items), code, numbering) == (
        '<ol><li type="1" value="1">gold<ol><li type="a" value="1">a</li><li type="a" value="2">b</li></ol></li></ol>'
        '<p>Text.</p><ol><li type="1" value="2">silver<ol><li type="a" value="1">c<ul><li>dot</li></ul></li></ol></li>'
        '<li type="1" value="7">bronze</li><li type="1" value="8">tin</li></ol>'
    )
