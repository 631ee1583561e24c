"""Text that UTF-8 can encode, and its hash."""

from hashlib import blake2b


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can represent but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def hash64(text: str) -> int:
    """A hash of 64 bits, the same in every process; the largest value is never returned."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") % (
        2**64 - 1
    )
