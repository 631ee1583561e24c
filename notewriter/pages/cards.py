"""Markdown cards of what is published: the YAML metadata of the Hugging Face Hub, and a body from a template."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import CardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_card(template: Path, data: CardData, **variables: Any) -> str:
    """A card's text.

    Whatever the template prints comes from a model or a user: escaped here, nothing can be forgotten there.
    """
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        finalize=escape_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    body = environment.get_template(template.name).render(**variables)
    return f"---\n{data.to_yaml()}\n---\n\n" + re.sub(r"\n{3,}", "\n\n", body)


def escape_markdown(value: object) -> str:
    """A value as one line of plain text: neither Markdown nor HTML in it has an effect, in a table or outside."""
    return re.sub(r"([\\`*\[\]<>|&~])", r"\\\1", " ".join(str(value).split()))
