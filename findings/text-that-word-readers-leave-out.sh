#!/usr/bin/env bash
# Four readers of Word files, one paragraph for each way in which Word writes text that it shows. Guess before running:
# all of them read all but the equation. Right for docx2txt alone; docx2python reads the equation too.
#
# mammoth 1.13.0, python-docx 1.2.0 (Document.paragraphs), docx2txt 0.9, docx2python 3.7.1. Output seen:
#   mammoth leaves out: simple field, right-to-left run, override run, ruby base, equation
#   python-docx leaves out: simple field, right-to-left run, override run, ruby base, equation, content control, insertion, text box
#   docx2txt leaves out: equation
#   docx2python leaves out: nothing
#
# Simple fields are the numbers of captions and references ("Table 4"), right-to-left runs are Arabic and Hebrew, a ruby
# base is the word itself below its reading. mammoth says so in `messages`, which few callers read; python-docx says
# nothing. A corpus made with either has holes in its sentences. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet mammoth==1.13.0 python-docx==1.2.0 docx2txt==0.9 docx2python==3.7.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import sys
import zipfile

import docx
import docx2txt
import mammoth
from docx2python import docx2python

OFFICE = "http://schemas.openxmlformats.org"
PACKAGE, RELATIONS = f"{OFFICE}/package/2006", f"{OFFICE}/officeDocument/2006/relationships"


def run(text):
    return f"<w:r><w:t>{text}</w:t></w:r>"


WAYS = {
    "plain run": run("ALPHA"),
    "complex field": '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> REF a </w:instrText></w:r>'
    f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{run("BRAVO")}<w:r><w:fldChar w:fldCharType="end"/></w:r>',
    "simple field": f'<w:fldSimple w:instr=" SEQ Table ">{run("CHARLIE")}</w:fldSimple>',
    "right-to-left run": f'<w:dir w:val="rtl">{run("DELTA")}</w:dir>',
    "override run": f'<w:bdo w:val="rtl">{run("ECHO")}</w:bdo>',
    "ruby base": f"<w:r><w:ruby><w:rt>{run('reading')}</w:rt><w:rubyBase>{run('FOXTROT')}</w:rubyBase></w:ruby></w:r>",
    "equation": "<m:oMath><m:r><m:t>GOLF</m:t></m:r></m:oMath>",
    "content control": f"<w:sdt><w:sdtContent>{run('HOTEL')}</w:sdtContent></w:sdt>",
    "insertion": f'<w:ins w:id="1" w:author="a">{run("INDIA")}</w:ins>',
    "text box": f"<w:r><w:pict><v:shape><v:textbox><w:txbxContent><w:p>{run('JULIETT')}</w:p></w:txbxContent>"
    "</v:textbox></v:shape></w:pict></w:r>",
}
WORDS = dict(zip(WAYS, "ALPHA BRAVO CHARLIE DELTA ECHO FOXTROT GOLF HOTEL INDIA JULIETT".split()))
spaces = (
    f'xmlns:w="{OFFICE}/wordprocessingml/2006/main" xmlns:m="{OFFICE}/officeDocument/2006/math" '
    f'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:r="{RELATIONS}"'
)
body = "".join(f"<w:p>{way}</w:p>" for way in WAYS.values())
main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
with zipfile.ZipFile("a.docx", "w") as parts:
    parts.writestr(
        "[Content_Types].xml",
        f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
    )
    parts.writestr(
        "_rels/.rels",
        f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="{RELATIONS}/officeDocument" '
        'Target="word/document.xml"/></Relationships>',
    )
    parts.writestr("word/document.xml", f"<w:document {spaces}><w:body>{body}</w:body></w:document>")

with open("a.docx", "rb") as file:
    texts = {"mammoth": mammoth.convert_to_html(file).value}
texts["python-docx"] = "\n".join(paragraph.text for paragraph in docx.Document("a.docx").paragraphs)
texts["docx2txt"] = docx2txt.process("a.docx")
texts["docx2python"] = docx2python("a.docx").text
lost = {name: [way for way, word in WORDS.items() if word not in text] for name, text in texts.items()}
for name, ways in lost.items():
    print(f"{name} leaves out: {', '.join(ways) or 'nothing'}")
inline = ["simple field", "right-to-left run", "override run", "ruby base", "equation"]
seen = {
    "mammoth": inline,
    "python-docx": [*inline, "content control", "insertion", "text box"],
    "docx2txt": ["equation"],
    "docx2python": [],
}
sys.exit(lost != seen)
PYTHON
