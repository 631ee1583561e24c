"""What the training steps are taken on: a setting, its random pairs, and how many tokens these are."""

from dataclasses import dataclass
from typing import Literal

import torch

Pair = dict[str, list[int]]
"""`prompt_ids`, `chosen_ids` and `rejected_ids`, as TRL's DPOTrainer names them."""


@dataclass(frozen=True)
class Setting:
    """What is trained, and how; everything else is as in the recipes in configs/dpo."""

    shape: str
    way: Literal["TRL", "shared"]
    mode: Literal["LoRA", "full"]
    """`LoRA`: bfloat16 weights, and the reference is the model without its adapter. `full`: float32 weights under
    autocast, and the reference is a second model."""
    prompt: int
    """Tokens; where lengths are ragged, on average."""
    completion: int
    batch: int
    """Pairs in a step."""
    checkpointing: bool = True
    ragged: bool = False

    @property
    def lora(self) -> bool:
        """Whether an adapter is trained."""
        return self.mode == "LoRA"


def random_pairs(setting: Setting, count: int, vocabulary: int) -> list[Pair]:
    """Pairs of random tokens; the same ones every time."""
    generator = torch.Generator().manual_seed(4)

    def tokens(mean: int) -> list[int]:
        length = mean
        if setting.ragged:
            length = int(torch.randint(mean // 2, mean + mean // 2 + 1, (), generator=generator))
        return torch.randint(3, vocabulary, (length,), generator=generator).tolist()

    return [
        {
            "prompt_ids": tokens(setting.prompt),
            "chosen_ids": tokens(setting.completion),
            "rejected_ids": tokens(setting.completion),
        }
        for _ in range(count)
    ]


@dataclass(frozen=True)
class StepTokens:
    """Tokens of an average step, and of its longest pair."""

    tokens: float
    """As TRL computes them: the prompt with each completion."""
    unique_tokens: float
    """As shared prompts compute them."""
    squares: float
    """The sum of the squares of the sequences' lengths."""
    longest: int
    """Of one pair, as it goes through the model in the setting's way."""


def step_tokens(setting: Setting, pairs: list[Pair]) -> StepTokens:
    """The tokens of the steps that train on some pairs."""
    lengths = [(len(pair["prompt_ids"]), len(pair["chosen_ids"]), len(pair["rejected_ids"])) for pair in pairs]
    steps = len(pairs) / setting.batch
    shared = setting.way == "shared"
    return StepTokens(
        tokens=sum(2 * p + c + r for p, c, r in lengths) / steps,
        unique_tokens=sum(p + c + r for p, c, r in lengths) / steps,
        squares=sum((p + c) ** 2 + (p + r) ** 2 for p, c, r in lengths) / steps,
        longest=max(p + c + r if shared else 2 * (p + max(c, r)) for p, c, r in lengths),
    )
