"""The cost of finished questions: calls and tokens by stage and role."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from notewriter.artifacts.statistics import UsageTotals


class Usage:
    """Totals over question records, which are not kept in memory."""

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, Counter[str]]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the calls in a question's record."""
        for stage, role, tokens in usage_of(record):
            self._tokens.setdefault(stage, {}).setdefault(role, Counter()).update(tokens)

    def to_dict(self, scale: float = 1) -> UsageTotals:
        """The totals, multiplied by `scale`."""
        tokens = {
            stage: {role: {key: round(value * scale) for key, value in usage.items()} for role, usage in roles.items()}
            for stage, roles in self._tokens.items()
        }
        in_all: Counter[str] = sum((Counter(usage) for roles in tokens.values() for usage in roles.values()), Counter())
        return {"tokens": tokens, "tokens_in_all": dict(in_all)}


def usage_of(record: Mapping[str, Any]) -> Iterator[tuple[str, str, Counter[str]]]:
    """Stage, role and tokens of each call in a record, from its `usage` or else the steps of its trace."""
    if "usage" in record:
        for usage in record["usage"]:
            yield usage["stage"], usage["role"], Counter(usage["tokens"])
        return
    for step in record.get("trace", record)["steps"]:
        if step["kind"] == "generate":
            completion = step["completion"]
            tokens = {key: completion[key] for key in ("prompt_tokens", "completion_tokens")}
            yield step["stage"], step["role"], Counter(calls=1, **tokens)
