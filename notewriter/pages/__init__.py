"""HTML pages that are one file each: what the report and the page of pairs have in common."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from notewriter import jsonl


def write_page(output: Path, template: Path, data: Mapping[str, Any], **variables: Any) -> None:
    """Render a template that extends `page.html.jinja` into one self-contained file.

    `data` (element id -> JSON-ready value) is embedded for the page's script, which puts texts of models and
    corpora on the page as text only; in the template every variable is escaped. The page's own policy forbids it
    any network request.

    Raises:
        UserError: the file cannot be written.
    """
    embedded = {identifier: embed(value) for identifier, value in data.items()}
    digest = hashlib.sha256()
    for text in embedded.values():
        digest.update(text.encode())
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The page's one script carries the digest of the data, which no text in the data can foretell.
    parts = environment.get_template(template.name).generate(data=embedded, nonce=digest.hexdigest(), **variables)
    jsonl.write_text(output, parts)


def packed(value: Any) -> str:
    """JSON, compressed and in ASCII, for `unpack` of the page's script; the same value gives the same text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", jsonl.UNENCODABLE)
    return base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0)).decode()


def embed(value: Any) -> Markup:
    """JSON for a script element: no `<` can end the element or open a comment, and all is ASCII."""
    return Markup(json.dumps(value).replace("<", "\\u003c"))
