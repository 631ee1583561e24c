"""Faults of tokenised rows that training would silently learn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoConfig, PreTrainedTokenizerBase
from trl import DPOConfig, KTOConfig, SFTConfig

from notewriter.ground.errors import UserError
from notewriter.models.chat_template import templates_of
from notewriter.models.checkpoint import load as load_checkpoint
from notewriter.training.inputs import rows
from notewriter.training.inputs.rendering import opening_remedy, text_of
from notewriter.training.inputs.rows import IGNORED
from notewriter.training.options import PairArguments, SFTArguments

SHOWN = 5
"""Faults that an error names; further ones are counted."""

Sample = Mapping[str, Any]
"""`input_ids` and `labels`, with `stage`, `row`, and `side` where a pair has two."""


def pair_samples(pair: Mapping[str, Any]) -> list[Sample]:
    """The sides of a tokenised pair as they are trained: the completion is, the prompt is not."""
    prompt = pair["prompt_ids"]
    return [
        {
            "input_ids": prompt + pair[f"{side}_ids"],
            "labels": [IGNORED] * len(prompt) + pair[f"{side}_ids"],
            "stage": pair["stage"],
            "row": pair["row"],
            "side": side,
        }
        for side in ("chosen", "rejected")
        # A row of KTO has one.
        if pair[f"{side}_ids"]
    ]


def check_pairs(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], file: str) -> None:
    """Check pairs with the columns that `pairs.tokenize` adds.

    Raises:
        UserError: as `check`, or a pair whose sides are equal, or do not both begin with its prompt.
    """
    faults: list[tuple[Sample, str]] = []
    for pair in dataset:
        if pair["diverging"]:
            remedy = opening_remedy(tokenizer) or (
                "strip white space from the answer's beginning, or use a chat template that leaves a prompt unchanged"
            )
            faults.append((pair, f"its prompt is not the beginning of both sides: {pair['diverging']}; {remedy}"))
        elif pair["chosen_ids"] == pair["rejected_ids"]:
            faults.append((pair, "chosen and rejected are the same tokens; remove the row"))
        else:
            for sample in pair_samples(pair):
                if fault := sample_fault(sample, tokenizer, stops):
                    faults.append((pair, f"{sample['side']}: {fault}"))
    _raise(faults, len(dataset), file)


def check(samples: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], file: str) -> None:
    """Check conversations with the columns `input_ids` and `labels`.

    Raises:
        UserError: a row without trained tokens, a turn whose end token is not trained or is in the middle, a doubled
            beginning of sequence, or a padding token that is trained; names `file`, row, question and remedy.
    """
    faults = ((sample, sample_fault(sample, tokenizer, stops)) for sample in samples)
    _raise([(sample, fault) for sample, fault in faults if fault], len(samples), file)


def _raise(faults: Sequence[tuple[Sample, str]], rows: int, file: str) -> None:
    if not faults:
        return
    shown = "; ".join(f"{sample['row']}: {fault}" for sample, fault in faults[:SHOWN])
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    raise UserError(f"{file}: {len(faults)} fault(s) in {rows} rows: {shown}{more}")


def sample_fault(sample: Sample, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> str | None:
    """The part of a row that would be trained wrongly, with the remedy, or None."""
    ids, labels = sample["input_ids"], sample["labels"]
    runs = trained_runs(labels)
    if not runs:
        return "none of its tokens is trained (an all-zero mask); remove the row"
    if tokenizer.bos_token_id is not None and ids[:2] == [tokenizer.bos_token_id] * 2:
        return f"it begins with two {tokenizer.bos_token}; remove one from the messages or from the chat template"
    for start, end in runs:
        run = labels[start:end]
        if tokenizer.pad_token_id in run:
            return (
                f"the padding token {tokenizer.pad_token} is trained; name another token as pad_token in the model's "
                "tokenizer_config.json"
            )
        stopping = [number for number, token in enumerate(run) if token in stops]
        if not stopping or text_of(run[stopping[-1] + 1 :], tokenizer).strip():
            ends = tokenizer.decode(run[-3:])
            ending = ", ".join(tokenizer.convert_ids_to_tokens(sorted(stops))) or "none"
            return (
                f"the trained part ends in {ends!r} without a token that ends a turn ({ending}), so the model would "
                "never learn to stop; use a chat template that closes the assistant's turn, or name its token in "
                "eos_token_id of the model's generation_config.json"
            )
        if text_of([token for token in run[stopping[0] :] if token not in stops], tokenizer).strip():
            return (
                f"{tokenizer.decode(run[stopping[0]])} ends a turn in the middle of the trained part, where a server "
                "would stop; remove it from the assistant's text, or remove the row"
            )
        if not text_of(run[: stopping[0]], tokenizer).strip():
            return "the model's chat template writes only the end-of-turn token of this answer; remove the row"
    return None


def check_vocabulary(
    datasets: Mapping[str, Dataset], tokenizer: PreTrainedTokenizerBase, base: str, revision: str
) -> None:
    """Check that the model has an embedding of each token, also of those that were added to its tokenizer.

    Raises:
        UserError: it has not; names row and token.
    """
    configuration = load_checkpoint(AutoConfig, base, revision=revision).get_text_config()
    # Where it has none it is that of no language model, which is refused by its name.
    size = getattr(configuration, "vocab_size", None)
    if size is None or len(tokenizer) <= size:
        return
    for split, dataset in datasets.items():
        columns = [name for name in TOKENS if name in dataset.column_names]
        for row in dataset.select_columns([*columns, "row"]):
            if beyond := next((token for name in columns for token in row[name] or () if token >= size), None):
                name = tokenizer.convert_ids_to_tokens(beyond)
                raise UserError(
                    f"{split}: {row['row']}: holds {name!r}, token {beyond}, and {base} has only {size} embeddings: "
                    "tokens were added to its tokenizer alone; resize the model's embeddings, or use its original "
                    "tokenizer"
                )


TOKENS = ("input_ids", "prompt_ids", "chosen_ids", "rejected_ids")
"""The columns with token ids."""


def trained_runs(labels: Sequence[int]) -> list[tuple[int, int]]:
    """The start and the end (exclusive) of each run of trained tokens."""
    runs = []
    start = 0
    for trained, group in groupby(labels, lambda label: label != IGNORED):
        end = start + len(list(group))
        if trained:
            runs.append((start, end))
        start = end
    return runs


def choose_padding(tokenizer: PreTrainedTokenizerBase, trained: Iterable[int]) -> None:
    """Give a tokenizer without a padding token, or whose padding token is trained, another special token for padding.

    The trainer's default is the end of sequence. Among the tokens that are neither trained nor in the chat template,
    one with `pad` in its name comes first; if there is none, padding is unchanged.
    """
    trained = set(trained)
    template = "".join(templates_of(tokenizer, tokenizer.name_or_path).values())
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id not in trained:
        return
    free = [
        token.content
        for number, token in sorted(tokenizer.added_tokens_decoder.items())
        if token.special and number not in trained and token.content not in template
    ]
    if free:
        tokenizer.pad_token = next((token for token in free if "pad" in token.lower()), free[0])


def load(
    files: Mapping[str, Path],
    tokens: Callable[[Path, bool], Dataset],
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    training: DPOConfig | KTOConfig | SFTConfig,
    arguments: PairArguments | SFTArguments,
) -> tuple[dict[str, Dataset], dict[str, int]]:
    """The rows of each split with their tokens, mixed and checked, and how many were dropped as too long.

    Args:
        files: the file of each split.
        tokens: the tokenised rows of a file, and whether they are trained (not those of dev).
        tokenizer: gets a token for padding, if it has none or one that is trained.
        stops: the tokens at which a server stops.
        training: has the limit on lengths, and the seed of the mix.
        arguments: the treatment of long rows, and the mixed-in data.

    Raises:
        UserError: rows are too long, or as `check` and `check_pairs`.
    """

    def within(file: Path, trained: bool = True) -> tuple[Dataset, int]:
        return rows.within_length(tokens(file, trained), training.max_length, file, arguments.drop_long_rows)

    datasets: dict[str, Dataset] = {}
    dropped: dict[str, int] = {}
    for split, file in files.items():
        datasets[split], dropped[split] = within(file, split == "train")
    others = {path: within(file)[0] for path, file in rows.mixed_files(arguments.mix).items()}
    checked = {str(files[split]): dataset for split, dataset in datasets.items()} | others
    paired = all("chosen_ids" in dataset.column_names for dataset in checked.values())
    columns = ("chosen_ids", "rejected_ids") if paired else ("labels",)
    trained = {token for dataset in checked.values() for name in columns for row in dataset[name] for token in row}
    choose_padding(tokenizer, trained - {IGNORED})
    for name, dataset in checked.items():
        if training.process_index == 0:
            rows.say(name, dataset)
        (check_pairs if paired else check)(dataset, tokenizer, stops, name)
    datasets["train"] = rows.mix(datasets["train"], others, arguments.mix, training.seed)
    return datasets, dropped
