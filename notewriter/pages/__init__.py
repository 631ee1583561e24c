"""Self-contained HTML pages."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from notewriter.ground import jsonl
from notewriter.ground.lazy import Lazy

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = Lazy("jinja2")

HERE = Path(__file__).parent
"""The folder of the templates, scripts and styles that pages share."""


def write_page(output: Path, template: Path, data: Mapping[str, object], **variables: object) -> None:
    """Render a template that extends `page.html.jinja` into one self-contained file.

    Variables are escaped in the template. The page's script inserts texts of models and corpora as text only, and its
    content security policy forbids all network requests.

    Args:
        output: the file to write.
        template: extends `page.html.jinja`.
        data: element id -> JSON-ready value, embedded for the page's script.
        variables: the template's variables.

    Raises:
        UserError: the file cannot be written.
    """
    embedded = {identifier: embed(value) for identifier, value in data.items()}
    digest = hashlib.sha256()
    for text in embedded.values():
        digest.update(text.encode())
    # The script's nonce is the digest of the data, which no text inside the data can predict.
    found = templates(template.parent).get_template(template.name)
    jsonl.write_text(output, found.generate(data=embedded, nonce=digest.hexdigest(), **variables))


def templates(folder: Path, finalize: Callable[[object], str] | None = None) -> "jinja2.Environment":
    """The templates of a folder, which find those of this one.

    All that they print is escaped as HTML, or made by `finalize`.
    """
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, HERE]),
        autoescape=finalize is None,
        finalize=finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def packed(value: object) -> str:
    """Deterministically compressed JSON as ASCII, for `unpack` in the page's script."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", jsonl.UNENCODABLE)
    return base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0)).decode()


def embed(value: object) -> Markup:
    """JSON for a script element, in ASCII; `<` is escaped, so it can neither end the element nor open a comment."""
    return Markup(json.dumps(value).replace("<", "\\u003c"))
