"""Parsing model replies: any text in, a value or None out; nothing is ever evaluated."""

import json
import re
from collections.abc import Sequence
from typing import Any

from notewriter.ground.text import ends_with_abbreviation, first_sentence
from notewriter.models.thoughts import after_thinking, without_thinking

_MARK = re.compile(
    r"\s*(<[^\s<>]{1,40}>|\[[A-Za-z_/-]{2,30}\]|\u25c1[^\u25b7\n]{1,30}\u25b7"
    # A heading of few words, such as "**Thinking Process:**".
    r"|[#*_ ]*(?:[\w']+ ){0,3}(?:think|thought|reason|analys)\w*(?: \w+){0,2}[*_]*(?:[:\n]|\.\.\.))",
    re.IGNORECASE,
)


def unknown_mark(text: str, prompt: str) -> str:
    """The beginning of a reply, if it is a mark or a heading about thinking that its prompt does not name.

    Empty if there is none. It may begin a thought in marks that `after_thinking` does not know.
    """
    found = _MARK.match(after_thinking(text))
    return found[1].strip() if found and found[1].casefold() not in prompt.casefold() else ""


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with exactly these keys, to which a reply can be held."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_DECODER = json.JSONDecoder(strict=False)

# Next to strings, which stay.
_NO_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|,(?=(?:\s|//[^\n]*+)*+[}\]])', re.DOTALL)


_STRAIGHT = str.maketrans("“”", '""')


def json_at(text: str, start: int) -> Any:
    """The JSON value that begins at a place of a text.

    Models write what JSON forbids: line breaks within strings, comments, commas after the last item, and curly
    quotation marks around strings.

    Raises:
        ValueError, RecursionError: there is none; also for numbers with thousands of digits.
    """
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        if text.startswith("“", error.pos):
            return _DECODER.raw_decode(text.translate(_STRAIGHT), start)[0]
        if text[error.pos : error.pos + 1] not in ("/", ",", "}", "]"):
            raise
        return _DECODER.raw_decode(_NO_JSON.sub(r"\1", text[start:]))[0]


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The first JSON object (`json_at`) in a reply, possibly in a code fence or surrounded by prose; None without one.

    Thinking is skipped.
    """
    text = after_thinking(text)
    for match in re.finditer(r"\{", text):
        try:
            value = json_at(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


# `"True" or "False"`, `True | False` and `True/False`, copied from a prompt, are neither.
_OR_ELSE = r"""["'\u201c\u201d*,\s]*(?:\bor\b|[|/])["'\u201c\u201d*,\s]*(?:true|false)\b"""
_STATUS = re.compile(
    r"""status["'\u201d*_]*\s*(?:[:=\uff1a]|is\b)\s*["'\u201c*_]*(true|false)(?![^\W_])"""
    rf"(?!{_OR_ELSE})",
    re.IGNORECASE,
)
_STATUS_ALONE = re.compile(rf"\A\W*(true|false)(?!\W*or\b|{_OR_ELSE})(?=\s*(?:[^\w\s]|\n|\Z))", re.IGNORECASE)


def parse_status(text: str) -> bool | None:
    """DeepNote's adaptive decision, `{"status": "True"}` or `{"status": "False"}`; None if it is neither.

    Single quotes, unquoted values, code fences, surrounding text and the bare word that begins a reply are accepted.
    Thinking is skipped.
    """
    text = after_thinking(text)
    words = {word.lower() for word in _STATUS.findall(text) or _STATUS_ALONE.findall(text)}
    return {"true": True, "false": False}.get(words.pop()) if len(words) == 1 else None


# The character after the number must end the statement, so that a truncated id is not accepted.
_BEST_AND_WORST = re.compile(
    r"""\b(best|worst)_id["']?\s*[:=]\s*["']?\s*(\d{1,9})\s*["']?\s*(?://|[,;}\n])""", re.ASCII | re.IGNORECASE
)


def parse_best_and_worst(text: str, candidates: int) -> tuple[int, int] | None:
    """The judge's `{"best_id": i, "worst_id": j}` as zero-based indices; None unless both name a candidate.

    Single quotes, code fences and surrounding text are accepted. Thinking is skipped.
    """
    pairs = {(key.lower(), int(id)) for key, id in _BEST_AND_WORST.findall(after_thinking(text))}
    ids = dict(pairs)
    if len(pairs) != 2 or len(ids) != 2 or not all(1 <= id <= candidates for id in ids.values()):
        return None
    return ids["best"] - 1, ids["worst"] - 1


# The character after the word must end the statement, so that `"yes" or "no"`, copied from the prompt, is neither.
_CORRECT = re.compile(
    r"\bcorrect[\s\"'*_]*[:=\uff1a][\s\"'*_]*(yes|no|true|false)(?=[\"'*_]*[ \t]*(?://|[},.;\n]|\Z))", re.IGNORECASE
)


def parse_correct(text: str) -> bool | None:
    """A judge's `{"correct": "yes"}` or `{"correct": "no"}`; None if it is neither or both.

    Single quotes, true and false, code fences, surrounding text and the bare word are accepted. Thinking is skipped.
    """
    text = after_thinking(text)
    words = {word.lower() for word in _CORRECT.findall(text)} or {text.strip().strip("\"'.*").lower()}
    verdicts = {{"yes": True, "true": True, "no": False, "false": False}.get(word) for word in words}
    return verdicts.pop() if len(verdicts) == 1 else None


_RATING = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)(?:\s*(?:/|out of)\s*(\d{1,3}))?\s*", re.ASCII | re.IGNORECASE)


def parse_ratings(text: str, criteria: Sequence[str], highest: int) -> dict[str, float] | None:
    """A judge's `{"<criterion>": 3, ...}`, each from 0 to `highest`; None unless every criterion has such a rating.

    A rating may be a string such as "3", "3.5" or "3/5"; the number after the slash must be `highest`.
    """
    reply = parse_json_object(text) or {}
    values = {key.strip().lower(): value for key, value in reply.items()}
    ratings = {}
    for criterion in criteria:
        match = _RATING.fullmatch(str(values.get(criterion)))
        if match is None or int(match[2] or highest) != highest or float(match[1]) > highest:
            return None
        ratings[criterion] = float(match[1])
    return ratings


def parse_evidence(text: str) -> list[str] | None:
    """The non-empty strings of a judge's `{"evidence": ["...", ...]}`; None if there is no such list."""
    pieces = (parse_json_object(text) or {}).get("evidence")
    pieces = [pieces] if isinstance(pieces, str) else pieces
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        return None
    return [piece.strip() for piece in pieces if piece.strip()]


def parse_verdict(text: str, words: Sequence[str]) -> str | None:
    """The verdict of a reply, one of some (lower-case) words: the last that stands alone, or else ends the reply.

    `Yes.`, `**No**` and `Verdict: no` stand alone, as a sentence or a line. A reply without either may begin with its
    verdict ("No, the builder is missing"), also behind a label. None if there is no verdict: "yes or no" and "yes/no",
    copied from the prompt, are none, nor is a word that its clause denies ("I cannot say yes"). Thinking is skipped.
    """
    text = after_thinking(text).strip()
    one = rf"({'|'.join(map(re.escape, words))})"
    alone = [re.fullmatch(rf"(?:.*[:\uff1a])?\W*{one}\W*", each, re.IGNORECASE) for each in _STATEMENT.split(text)]
    text = re.sub(rf"\b{one}\b[^\w|/]*(?:\b(?:or|and)\b|[|/])[^\w|/]*{one}\b", "", text, flags=re.IGNORECASE)
    ends = re.search(rf"(?<!\w){one}\W*\Z", text, re.IGNORECASE)
    if ends and _DENIAL.search(_CLAUSE.split(text[: ends.start()])[-1]):
        ends = None
    begins = re.match(rf"(?:\W*\w+\W*[:\uff1a])?\W*{one}\s*(?=[^\w\s]|\n)", text, re.IGNORECASE)
    found = next(filter(None, (*reversed(alone), ends, begins)), None)
    return found[1].lower() if found else None


_STATEMENT = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE = re.compile(r"[,.;:!?\n]|\b(?:so|hence|thus|therefore)\b", re.IGNORECASE)
_DENIAL = re.compile(r"\b(?:not|never|cannot|neither|nor)\b|n['\u2019]t\b", re.IGNORECASE)


def is_nothing(text: str) -> bool:
    """Whether a reply is empty, or the single word "nothing", which prompts ask for where there is nothing to write."""
    return not text.strip() or (len(text.split()) == 1 and parse_verdict(text, ("nothing",)) is not None)


_LIST_MARK = re.compile(r"^(?:(?:[-*\u2022]|\(?(?:\d{1,2}|[a-z])\)|\d{1,2}\.)\s+|\d{1,2}\u3001)")
_FENCE = re.compile(r"```\w*")
_MARKED = re.compile(r"([*_]{1,3}|[\"'`])((?:(?!\1).)+)\1")


def parse_lines(text: str) -> list[str]:
    """The lines of a list without bullets, numbers, emphasis and quotation marks.

    Case-insensitive duplicates, fences and lines that introduce what follows, with a colon at their end, are dropped.
    """
    items: dict[str, str] = {}
    for line in after_thinking(text).splitlines():
        item = _unmarked(_LIST_MARK.sub("", _unmarked(line)))
        if item and not _FENCE.fullmatch(item) and not item.endswith((":", "\uff1a")):
            items.setdefault(item.casefold(), item)
    return list(items.values())


def _unmarked(line: str) -> str:
    """A line without emphasis or quotation marks around all of it."""
    return _MARKED.sub(r"\2", line.strip()) if _MARKED.fullmatch(line.strip()) else line.strip()


# `No #5 leaves Oslo` is a number, not a verdict.
_NOTE = re.compile(r"\b(YES|NO(?![ \t]+#\d))[ \t*_]*[#\uff03][ \t*_]*", re.IGNORECASE)
_WRAPPED = re.compile(r"(```\w*\n|[\"'`])((?:(?!\1).)*?)\s*(?:```|\1)", re.DOTALL)
_NOTE_LINE = re.compile(rf"^[ \t*_\"'`]*{_NOTE.pattern}", re.IGNORECASE | re.MULTILINE)


def parse_note(text: str) -> str | None:
    """The notes of a note-taker's `YES#<notes>`, an empty string for `NO#...`, or None if it is neither.

    The last verdict counts: of those that begin a line, or else of all. Several notes in a row are one. A fence or
    quotation marks around the reply are no part of it.
    """
    text = after_thinking(text).strip()
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[2]
    verdicts = [*_NOTE_LINE.finditer(text)] or [*_NOTE.finditer(text)]
    if not verdicts:
        return None
    noes = [place for place, verdict in enumerate(verdicts) if verdict[1].upper() == "NO"]
    notes = verdicts[noes[-1] + 1 if noes else 0 :]
    ends = [*(verdict.start() for verdict in notes[1:]), len(text)][: len(notes)]
    return "\n".join(text[verdict.end() : end].strip() for verdict, end in zip(notes, ends, strict=True))


_DECISION = re.compile(
    r"\bdecision[\s\"'*_(]*[:=\uff1a][\s\"'*_(\[]*(true|false)(?=[\"'*_)\]]*[ \t]*(?:[},.;\n]|\Z))", re.IGNORECASE
)


def parse_decision(text: str) -> bool | None:
    """The last decision of a judge's `Explanation: ...` and `Decision: TRUE` or `FALSE`; None without one.

    `"TRUE" or "FALSE"`, copied from the prompt, is none. Thinking is skipped.
    """
    decisions = _DECISION.findall(after_thinking(text))
    return decisions[-1].lower() == "true" if decisions else None


_ANSWER = re.compile(
    r"(?:(?<![^\W_])(?:answer(?:\s+is)?[\s*_]*[:\uff1a]|(?:so|thus|hence|therefore),? the (?:final )?answer is\b"
    r"|the final answer is\b)|^[ \t]*(?:#+[ \t*_]*|[*_]{2,3})(?:final )?answer[ \t*_]*\n)[\s*_:]*",
    re.IGNORECASE | re.MULTILINE,
)
_BOX = re.compile(r"\\boxed\s*\{(?:\s*\\text\s*\{([^{}]*)\}\s*|((?:[^{}]|\{[^{}]*\})*))\}")


def boxed(text: str) -> str:
    """The text in the last box of a reply (`\\boxed{...}`), as models write answers in LaTeX; empty without one."""
    *_, box = [None, *_BOX.finditer(text)]
    return (box[1] or box[2] or "").strip() if box else ""


def parse_answer(text: str) -> str:
    """The answer that a reply states, empty if there is none: the text after the last mark of one, or in a box there.

    Marks are "Answer:", "answer is:", "So the answer is" and the heading "Answer". Without a mark the last box counts.
    A single sentence loses its full stop, since it rarely is a sentence: "Mira." is a name.
    """
    text = without_thinking(text)
    matches = list(_ANSWER.finditer(text))
    stated = text[matches[-1].end() :] if matches else ""
    answer = boxed(stated if matches else text) or stated.strip().rstrip("*_")
    if first_sentence(answer) != answer or ends_with_abbreviation(answer):
        return answer
    return answer.removesuffix(".").rstrip("*_")


def next_sentence(reply: str, answer_style: str) -> str:
    """The first sentence of a reply, or its first line if that sentence states an answer in the style `list` or `long`.

    Such an answer may have several sentences, or numbers that look like the ends of some. A list mark is no part of it.
    """
    reply = _LIST_MARK.sub("", reply.strip()).strip()
    sentence = first_sentence(reply)
    if answer_style in ("list", "long") and parse_answer(sentence):
        return reply.partition("\n")[0].rstrip()
    return sentence
