"""Restricting the searches of a question to its own documents: R(q, doc) of ReaRAG (Algorithms 1 and 2)."""

from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.text import page_title
from notewriter.ground.typed import misfit
from notewriter.retrieval.protocol import Restriction, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinOptions:
    """`within`: a key of the question's metadata that lists ids or titles, or a JSON Lines file of them.

    `per_question.jsonl` of `notewriter corpus` is such a file.
    """

    within: str


class Scopes:
    """The documents of each question, from its metadata or from a file.

    Addresses of Wikipedia pages stand for their titles. Whether another name in the metadata is an id or a title is
    not known, so it stands for itself and for the title in the spelling of `page_title`.
    """

    def __init__(self, options: WithinOptions) -> None:
        self._key = options.within
        self._by_question = _read(Path(options.within)) if options.within.endswith(".jsonl") else None

    def of(self, question: Question | None) -> Scope:
        """The ids or titles of a question's documents, in their order.

        Raises:
            UserError: they are not known.
        """
        id = question.id if question else "ask"
        if self._by_question is not None:
            names: object = self._by_question.get(id)
            line = f"its line of question {id!r} lists nothing; list some"
            missing = f"{self._key}: {line if id in self._by_question else f'has no line for question {id!r}; add one'}"
        else:
            names = question.metadata.get(self._key) if question else None
            missing = f"within: question {id!r} has no list of ids or titles under {self._key!r} in its metadata"
        if not names or misfit(names, list[str]):
            raise UserError(f"{missing}, or leave out `within`")
        assert isinstance(names, list)
        titles = [page_title(name) if "wikipedia.org/wiki/" in name else name for name in names]
        if self._by_question is None:
            titles = [spelling for title in titles for spelling in (title, page_title(title))]
        return dict.fromkeys(titles)


class _Line(TypedDict):
    question_id: str
    passages: NotRequired[list[str]]
    passage_ids: NotRequired[list[str]]


def _read(path: Path) -> dict[str, list[str]]:
    """Question id -> its passages."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; within names a key of the questions' metadata or a file of passages")
    scopes: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for number, record in jsonl.read(path):
        place = f"{path}:{number}"
        problem = misfit(record, _Line, place)
        # `notewriter corpus --source per-question` writes `passage_ids`.
        key = "passage_ids" if "passage_ids" in record else "passages"
        if problem or key not in record:
            problem = problem or f"{place} has no {key!r}"
            raise UserError(f'{problem}; write {{"question_id": ..., "passages": [ids or titles]}} per line')
        if (first := places.setdefault(id := record["question_id"], place)) != place:
            raise UserError(f"{place}: question {id!r} has a line already, the one at {first}; remove one")
        scopes[id] = record[key]
    return scopes


def _identity(options: WithinOptions) -> str | None:
    """The SHA-256 of the file; None for a key of the metadata and for a missing file."""
    return file_digest(options.within) if options.within.endswith(".jsonl") and Path(options.within).is_file() else None


RESTRICTION = Restriction(is_local=True, options=WithinOptions, open=Scopes, identity=_identity)
