"""Reading what models write: any text in, a value or None out, never evaluated."""

import json
import re
from typing import Any


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The first JSON object in a reply, also in a code fence, after prose or before it; None where there is none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError of its own
            continue
        if isinstance(value, dict):
            return value
    return None


_STATUS = re.compile(r"""["']?status["']?\s*[:=]\s*["']?(true|false)\b""", re.IGNORECASE)


def parse_status(text: str) -> bool | None:
    """DeepNote's adaptive decision, `{"status": "True"}` or `{"status": "False"}`; None where it says neither.

    Single quotes, bare true and false, fences and text around it are read too, and so is the bare word.
    """
    found = {word.lower() for word in _STATUS.findall(text)} or {text.strip().strip("\"'.").lower()}
    if len(found) != 1:
        return None
    return {"true": True, "false": False}.get(found.pop())


def parse_best_and_worst(text: str, candidates: int) -> tuple[int, int] | None:
    """The judge's `{"best_id": i, "worst_id": j}` as indices from 0; None unless both name a candidate."""
    reply = parse_json_object(text)
    if reply is None:
        return None
    ids = []
    for key in ("best_id", "worst_id"):
        value = reply.get(key)
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 10:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= candidates:
            return None
        ids.append(value - 1)
    return ids[0], ids[1]
