"""Formulas of pages and Word files, in which a power stays a power."""

import pytest
from lxml import etree, html

from notewriter.corpora.formulas import of_mathml, of_word


@pytest.mark.parametrize(
    ("mathml", "written"),
    [
        ("<mi>x</mi><mo>=</mo><mn>1</mn>", "x = 1"),
        ("<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>", "x_i^2"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></mfrac>", "(a + b)/2"),
        (
            "<msub><mi>a</mi><mi>k</mi></msub><mo>&#x2062;</mo><mfrac><mn>2</mn><mn>5</mn></mfrac><mi>π</mi>",
            "a_k 2/5 π",
        ),
        ("<mfrac linethickness=0><mi>n</mi><mi>k</mi></mfrac><mtext>&nbsp;for&nbsp;all</mtext>", "n; k for all"),
        (
            "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr><mtr><mtd><mn>2</mn></mtd></mtr></mtable>",
            "1 0; 2",
        ),
        ("<msqrt><mi>x</mi></msqrt><mroot><mi>y</mi><mn>3</mn></mroot>", "√(x)√[3](y)"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>", "∑_(i = 1)^n"),
    ],
)
def test_signs_of_a_page(mathml, written):
    assert of_mathml(html.fragment_fromstring(f"<math>{mathml}</math>")) == written


@pytest.mark.parametrize(
    ("tex", "written"),
    [
        (r"\displaystyle=50\%", r"=50\%"),
        ("\\log p(y_%\n{w}|x)\\\\%\n\\leq 1", r"\log p(y_{w}|x)\\\leq 1"),
    ],
)
def test_tex_is_one_line_without_comments_and_sizes(tex, written):
    """LaTeXML breaks long lines with the mark of a comment."""
    annotation = f"<annotation encoding=application/x-tex>{tex}</annotation>"
    assert of_mathml(html.fragment_fromstring(f"<math><semantics><mi>a</mi>{annotation}</semantics></math>")) == written
    assert of_mathml(html.fragment_fromstring(f"<math alttext='{tex}'><mi>a</mi></math>")) == written


def run(text):
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("omml", "written"),
    [
        (run("E=m") + f"<m:sSup><m:sSupPr/><m:e>{run('c')}</m:e><m:sup>{run('2')}</m:sup></m:sSup>", "E=mc^2"),
        (f"<m:sSub><m:e>{run('x')}</m:e><m:sub>{run('i+1')}</m:sub></m:sSub>", "x_(i+1)"),
        (f"<m:f><m:num>{run('1')}</m:num><m:den>{run('12')}</m:den></m:f>", "1/12"),
        (f"<m:rad><m:deg/><m:e>{run('2')}</m:e></m:rad>", "√(2)"),
        (f"<m:rad><m:deg>{run('3')}</m:deg><m:e>{run('8')}</m:e></m:rad>", "√[3](8)"),
        (
            f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{run('i=1')}</m:sub><m:sup>{run('n')}</m:sup>"
            f"<m:e>{run('i')}</m:e></m:nary>",
            "∑_(i=1)^n i",
        ),
        (f"<m:nary><m:sub/><m:sup/><m:e>{run('f')}</m:e></m:nary>", "∫ f"),
        (f"<m:d><m:e>{run('a')}</m:e><m:e>{run('b')}</m:e></m:d>", "(a|b)"),
        (f"<m:d><m:dPr><m:begChr m:val='['/><m:endChr m:val=''/></m:dPr><m:e>{run('a')}</m:e></m:d>", "[a"),
        (f"<m:func><m:fName>{run('sin')}</m:fName><m:e>{run('x')}</m:e></m:func>", "sin x"),
        (
            f"<m:m><m:mr><m:e>{run('1')}</m:e><m:e>{run('0')}</m:e></m:mr>"
            f"<m:mr><m:e>{run('0')}</m:e><m:e>{run('1')}</m:e></m:mr></m:m>",
            "1, 0; 0, 1",
        ),
    ],
)
def test_signs_of_a_word_file(omml, written):
    namespace = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    assert of_word(etree.fromstring(f"<m:oMath xmlns:m='{namespace}'>{omml}</m:oMath>")) == written
