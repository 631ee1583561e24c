"""`notewriter merge`: merge a LoRA adapter into its base model."""

from dataclasses import dataclass, field
from pathlib import Path

from notewriter.ground import config
from notewriter.models.checkpoint import Checkpoint
from notewriter.training.model.adapters import merge


@dataclass
class MergeArguments:
    """Merge a LoRA adapter into the base model that it was trained on.

    The sum is computed in float32 and stored in the type of the base model's weights. The tokenizer and chat template
    are the adapter's.
    """

    checkpoint: str = field(
        metadata={"help": "the adapter: its folder, as a training run with use_peft saves it, or its name on the hub"}
    )
    output_dir: str = field(metadata={"help": "the folder to create; it appears once it is complete"})


def main(argv: list[str]) -> None:
    """Command `notewriter merge`."""
    (arguments,) = config.parse(MergeArguments, argv, prog="notewriter merge", description=MergeArguments.__doc__)
    merge(Checkpoint(arguments.checkpoint).folder, Path(arguments.output_dir))
