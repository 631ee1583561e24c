"""Word files, with the texts that mammoth leaves out."""

import io
import zipfile

import pytest
from corpus_files import docx

from notewriter.corpora import word

MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def run(text):
    return f"<w:r><w:t>{text}</w:t></w:r>"


@pytest.fixture
def read(tmp_path):
    """The HTML of a paragraph of a Word file."""

    def read(paragraph, styles=""):
        content = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(docx("HERE"))) as parts, zipfile.ZipFile(content, "w") as changed:
            for name in parts.namelist():
                text = parts.read(name).decode().replace(run("HERE"), paragraph)
                text = text.replace("<w:document ", f'<w:document xmlns:m="{MATH}" ')
                changed.writestr(name, text.replace("</w:styles>", f"{styles}</w:styles>"))
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
