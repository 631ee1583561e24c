"""Text that UTF-8 can encode."""


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can represent but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
