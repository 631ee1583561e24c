"""Text that files and endpoints can hold."""


def without_surrogates(text: str) -> str:
    """The text without halves of surrogate pairs: JSON can hold them, but no endpoint takes and no file keeps them."""
    return text.encode("utf-8", "replace").decode("utf-8")
