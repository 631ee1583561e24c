"""Supervised fine-tuning on chains, prompts with completions, or the better side of pairs.

ReaRAG's SFT (arXiv 2503.21729, equation 2): the loss is on what the assistant wrote, thoughts and actions; question,
instructions and observations are masked. It is found for any chat template by rendering each conversation up to each
turn, as a server does.

    accelerate launch --config_file configs/accelerate/zero3.yaml training/train_sft.py \
        --config configs/sft/rearag_glm4-9b.yaml --data data/chains

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. A run that was stopped
goes on from its last checkpoint when the same command is given again; a run that is finished says so.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl import ModelConfig, SFTConfig, SFTTrainer, get_peft_config, get_quantization_config

from notewriter import config
from notewriter.errors import UserError, run
from training import checks, common, conversations, pairs
from training.throughput import Metered

PACKABLE = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
"""Attention that keeps packed conversations apart: FlashAttention by their lengths, the others by a mask."""

OURS = ("assistant_only_loss", "completion_only_loss", "chat_template_path", "eos_token", "pad_token", "dataset_kwargs")
"""Options of SFTConfig that decide what is trained, which is decided here."""


TRAINED = ["input_ids", "labels", "length"]
"""What the trainer gets; `length` is for `train_sampling_strategy: group_by_length`."""


@dataclass(kw_only=True)
class Arguments(common.Arguments):
    """What is ours; the rest is TRL's SFTConfig and ModelConfig."""

    data: str = field(
        metadata={
            "help": "A folder with train.parquet and (for evaluation) dev.parquet, or one Parquet or JSON Lines file; "
            "rows have messages, or prompt and completion, or prompt and chosen. Texts in place of messages are one "
            "message of the user and one of the assistant."
        }
    )
    mix: dict[str, Annotated[float, Interval(gt=0)]] = field(
        default_factory=dict,
        metadata={
            "help": "Other data to mix in, file -> rows of it for each row of data, drawn with the seed: "
            '{"general.parquet": 0.5}. For evaluation it is left out.'
        },
    )
    split_turns: bool = field(
        default=False,
        metadata={
            "help": "Make each turn of the assistant a row of its own, for chat templates that show earlier turns "
            "differently from how they were written (Qwen3 strips their thoughts)."
        },
    )


@dataclass
class Configuration(common.BatchConfiguration, SFTConfig):
    """TRL's SFTConfig with a batch size that does not depend on the number of processes, and fp32 on the CPU."""

    def __post_init__(self) -> None:
        for option in OURS:
            if getattr(self, option):
                raise UserError(
                    f"{option}: has no place here; the assistant's turns are trained, under the chat template of the "
                    "model's folder (chat_template.jinja there changes it)"
                )
        if self.packing and (self.packing_strategy != "bfd" or self.max_length is None):
            raise UserError(
                "packing: needs packing_strategy bfd, which keeps conversations whole and apart, and a max_length"
            )
        super().__post_init__()


class Trainer(Metered, SFTTrainer):
    """TRL's SFTTrainer with the throughput in its log."""


def main(argv: list[str]) -> None:
    """One SFT run, or what is left of it; see `common.train`.

    Raises:
        UserError: the model, the data or the configuration cannot be trained with, or `output_dir` holds another run.
    """
    arguments, training, model = config.parse(
        [Arguments, Configuration, ModelConfig], argv, prog="notewriter train-sft", description=__doc__
    )
    if training.packing and (model.attn_implementation or "sdpa") not in PACKABLE:
        raise UserError(
            f"packing: {model.attn_implementation} may not keep packed conversations apart; give --packing false, or "
            f"--attn_implementation with one of {', '.join(PACKABLE)}"
        )
    common.train("sft", arguments, training, model, option="data", load=load, build=build, mix=arguments.mix)


def load(
    arguments: Arguments,
    training: Configuration,
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    files: dict[str, Path],
) -> tuple[dict[str, Dataset], dict[str, int]]:
    """Token ids and labels of each split, and how many rows were dropped as too long.

    Raises:
        UserError: a row is no conversation, is too long, or would be trained wrongly.
    """

    def tokens(file: Path) -> tuple[Dataset, int]:
        rows = conversations.tokenize(
            conversations.read(file, arguments.split_turns), tokenizer, stops, file, training.dataset_num_proc
        )
        return pairs.fit(rows, training.max_length, file, arguments.drop_long_rows)

    datasets: dict[str, Dataset] = {}
    dropped: dict[str, int] = {}
    for split, file in files.items():
        datasets[split], dropped[split] = tokens(file)
    others = {path: tokens(pairs.find(path, "mix")["train"])[0] for path in arguments.mix}
    checks.prepare({str(files[split]): dataset for split, dataset in datasets.items()} | others, tokenizer, stops)
    datasets["train"] = conversations.mix(datasets["train"], others, arguments.mix, training.seed)
    return datasets, dropped


def build(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: dict[str, Dataset],
    arguments: Arguments,
    training: Configuration,
    model: ModelConfig,
) -> Trainer:
    """The trainer of a base model on the conversations of `load`."""
    tokens = {split: dataset.select_columns(TRAINED) for split, dataset in datasets.items()}
    trainer = Trainer(
        model=base,
        args=training,
        train_dataset=tokens["train"],
        eval_dataset=tokens["dev"] if training.eval_strategy != "no" else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model),
        quantization_config=get_quantization_config(model),
    )
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=False)
    return trainer


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
