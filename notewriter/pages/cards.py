"""Markdown cards for the Hugging Face Hub: YAML metadata and a body from a template."""

import re
from pathlib import Path

from huggingface_hub import CardData

from notewriter.pages import templates


def render_card(template: Path, data: CardData, **variables: object) -> str:
    """A card's text.

    Values come from models or users, so all that the template prints is escaped here rather than in the template.
    """
    body = templates(template.parent, escape_markdown).get_template(template.name).render(**variables)
    return f"---\n{data.to_yaml()}\n---\n\n" + re.sub(r"\n{3,}", "\n\n", body)


def escape_markdown(value: object) -> str:
    """A value as one line of plain text, in which neither Markdown nor HTML has an effect, even inside a table."""
    return re.sub(r"([\\`*\[\]<>|&~])", r"\\\1", " ".join(str(value).split()))
