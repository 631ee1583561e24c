"""Options of every type, as a command would have them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Arguments:
    path: str = field(metadata={"help": "a file"})
    top_k: int = field(default=5, metadata={"help": "how many"})
    share: float = field(default=0.5, metadata={"help": "how much"})
    limit: int | None = field(default=None, metadata={"help": "at most"})
    greedy: bool = field(default=False, metadata={"help": "whether"})
    names: list[str] = field(default_factory=lambda: ["a"], metadata={"help": "who"})
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "what else"})
    order: str | None = field(default=None, metadata={"help": "which first", "choices": ["best", "worst"]})
    sizes: list[int] | None = field(default=None, metadata={"help": "how large"})


@dataclass
class Model:
    model: str | None = field(default=None, metadata={"help": "which"})
