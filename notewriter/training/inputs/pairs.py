"""Preference pairs, read, tokenised and checked row by row before any training time is spent on them."""

import logging
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import jinja2
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase
from trl import DPOConfig, KTOConfig

from notewriter.artifacts.pairs import SCORES, SIDES, margin
from notewriter.ground.errors import UserError, one_line
from notewriter.training.inputs import checks, forms, rendering, rows, written
from notewriter.training.inputs.forms import Row
from notewriter.training.options import PairArguments

logger = logging.getLogger(__name__)

FEATURES: dict[str, Any] = {
    **dict.fromkeys(("prompt", *SIDES), rows.MESSAGES),
    **rows.GIVEN,
    **{column: Value("string") for column in ("stage", "question_id", "row")},
    **{column: Value("float64") for column in SCORES},
    **rows.SAID,
}
"""The columns of a pair that training reads; all others of the file stay on disk."""

TOKENISED: dict[str, Any] = {
    **dict.fromkeys(("prompt_ids", "chosen_ids", "rejected_ids"), List(Value("int64"))),
    "diverging": Value("string"),
    "unread": rows.SAID["unread"],
    "length": Value("int64"),
}
"""The columns that `tokenize` adds. `datasets` would take the type of a side that KTO's first rows lack for null."""


def load(
    files: Mapping[str, Path],
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    training: DPOConfig | KTOConfig,
    arguments: PairArguments,
) -> tuple[dict[str, Dataset], dict[str, int]]:
    """The tokenised and checked pairs of each split, and how many were dropped as too long.

    The training split has the pairs of `mix` too.

    Raises:
        UserError: a row is not a pair, is too long, or would be trained wrongly.
    """

    def tokens(file: Path, trained: bool) -> Dataset:
        labelled = isinstance(training, KTOConfig)
        dataset = tokenize(read(file, labelled), tokenizer, stops, file, training.dataset_num_proc)
        if arguments.min_margin is None or not trained:
            return dataset
        if file == files["train"] and all(margin is None for margin in margins_of(dataset)):
            raise UserError(f"{file}: min_margin needs scores, and these pairs have none; leave min_margin out")
        return with_margin(dataset, arguments.min_margin, file)

    datasets, dropped = checks.load(files, tokens, tokenizer, stops, training, arguments)
    if not arguments.train_end_of_turn:
        datasets = {split: without_end_of_turn(dataset, stops) for split, dataset in datasets.items()}
    return datasets, dropped


def without_end_of_turn(dataset: Dataset, stops: frozenset[int]) -> Dataset:
    """Tokenised and checked pairs whose sides go up to the first of `stops`, which ends the turn.

    Only white space follows this token in a side, so no other token's score depends on it: the loss becomes that over
    the other tokens.
    """

    def words(pair: dict[str, Any]) -> dict[str, Any]:
        sides = {
            f"{side}_ids": list(takewhile(lambda token: token not in stops, pair[f"{side}_ids"])) for side in SIDES
        }
        return sides | {"length": len(pair["prompt_ids"]) + max(map(len, sides.values()))}

    shortened: Dataset = dataset.map(words, desc="Leaving out the end of turn")
    return shortened


def unpaired(dataset: Dataset, batch: int, seed: int) -> Dataset:
    """The sides of tokenised pairs as rows of their own, in a random order, for KTO.

    Columns: `prompt_ids`, `completion_ids`, `label` (whether it is the chosen one), `length` (of both), and
    `KL_completion_ids`. The last is the completion of the row before it in its batch of `batch` rows, and of the last
    row for the first: the mismatched completions from which KTO estimates its divergence (Ethayarajh et al. 2024, arXiv
    2402.01306, section 4.1).
    """

    def sides(pairs: dict[str, list[Any]]) -> dict[str, list[Any]]:
        apart = [
            (prompt, ids, side == "chosen")
            for side in SIDES
            for prompt, ids in zip(pairs["prompt_ids"], pairs[f"{side}_ids"], strict=True)
            if ids
        ]
        return {
            "prompt_ids": [prompt for prompt, _, _ in apart],
            "completion_ids": [ids for _, ids, _ in apart],
            "label": [label for _, _, label in apart],
            "length": [len(prompt) + len(ids) for prompt, ids, _ in apart],
        }

    def mismatched(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"KL_completion_ids": rows["completion_ids"][-1:] + rows["completion_ids"][:-1]}

    apart = dataset.map(sides, batched=True, remove_columns=dataset.column_names, desc="Splitting pairs into sides")
    rows: Dataset = apart.shuffle(seed=seed).map(mismatched, batched=True, batch_size=batch, desc="Mismatching")
    return rows


def with_margin(dataset: Dataset, least: float, path: Path) -> Dataset:
    """The pairs whose scores differ by at least `least`, and those without scores.

    Raises:
        UserError: none is left.
    """
    margins = margins_of(dataset)
    kept = [row for row, each in enumerate(margins) if each is None or each >= least]
    if not kept:
        most = max(each for each in margins if each is not None)
        raise UserError(f"{path}: no margin reaches min_margin {least}; give --min_margin {most:.4g} or less")
    logger.info(
        "%s: %d of %d pairs dropped as below min_margin %s", path, len(margins) - len(kept), len(margins), least
    )
    selected: Dataset = dataset.select(kept)
    return selected


def margins_of(dataset: Dataset) -> list[float | None]:
    """The margin of each pair's scores; None for a pair without scores."""
    return [margin(pair) for pair in dataset.select_columns(list(SCORES))]


def read(path: Path, labelled: bool = False) -> Dataset:
    """The pairs of a file, with the columns of `FEATURES`; with `labelled` also rows of KTO, pairs of one side.

    Raises:
        UserError: as `stream`.
    """

    def made() -> Iterator[dict[str, Any]]:
        return ({column: pair[column] for column in FEATURES} for pair in stream(path, labelled))

    return rows.cached(path, made, Features(**FEATURES), labelled)  # type: ignore[no-untyped-call]


def stream(path: Path, labelled: bool = False) -> Iterator[Row]:
    """The rows of a file as pairs (`forms.pair`). A row without `stage` gets the file's name as its stage.

    Raises:
        UserError: the file cannot be read, has no rows, or a row is not a pair; names file and row.
    """
    return (rows.in_form(path, row, forms.pair, labelled) for row in rows.read(path))


def tokenize(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    path: Path,
    processes: int | None = None,
) -> Dataset:
    """Add each pair's tokens under the model's chat template, exactly as they are trained.

    New columns:

    - `prompt_ids`: the prompt, including the opening of the assistant's turn;
    - `chosen_ids` and `rejected_ids`: the sides after it, with a token that ends the turn where the template leaves it
      open (`rendering.end_of_turn`; `stops` are the tokens at which a server stops);
    - `length`: the tokens of the prompt and the longer completion;
    - `diverging`: how a side differs from the prompt that it should begin with, or empty.

    Raises:
        UserError: the template refuses a row (some know no system role); names file and row.
    """

    own = written.own_tokens(tokenizer, stops)

    def tokens(pairs: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made = [dict(zip(pairs, values, strict=True)) for values in zip(*pairs.values(), strict=True)]
        prompts, given = pairs["prompt"], [rendering.given(pair) for pair in made]
        try:
            unread = [_checked(pair, each, tokenizer, own) for pair, each in zip(made, given, strict=True)]
            ending = rendering.end_of_turn(tokenizer, stops)
            prompt_ids = rendering.render(prompts, tokenizer, generate=True, given=given)
            whole_ids = {
                side: rendering.render(
                    [prompt + (completion or []) for prompt, completion in zip(prompts, pairs[side], strict=True)],
                    tokenizer,
                    generate=False,
                    given=given,
                )
                for side in SIDES
            }
        except (jinja2.TemplateError, UserError) as error:
            if len(made) > 1:
                # Rendering the rows one by one shows which of them is refused.
                for pair in made:
                    tokens({name: [value] for name, value in pair.items()})
            reason = one_line(error)
            if not isinstance(error, UserError):
                reason = f"the model's chat template refuses it ({reason})"
            raise UserError(f"{path}: {pairs['row'][0]}: {reason}") from error
        columns: dict[str, list[Any]] = {"prompt_ids": prompt_ids, "diverging": [""] * len(made)}
        columns["unread"] = unread
        for side, whole in whole_ids.items():
            both = list(zip(prompt_ids, whole, pairs[side], strict=True))
            completions = [ids[len(prompt) :] if there else [] for prompt, ids, there in both]
            columns[f"{side}_ids"] = [
                [*ids, ending] if there and ending is not None and stops.isdisjoint(ids) else ids
                for ids, there in zip(completions, pairs[side], strict=True)
            ]
            columns["diverging"] = [
                earlier or (_difference(prompt, ids, side, tokenizer) if there else "")
                for earlier, (prompt, ids, there) in zip(columns["diverging"], both, strict=True)
            ]
        columns["length"] = [
            len(prompt) + max(len(chosen), len(rejected))
            for prompt, chosen, rejected in zip(prompt_ids, columns["chosen_ids"], columns["rejected_ids"], strict=True)
        ]
        return columns

    tokenized: Dataset = dataset.map(
        tokens,
        batched=True,
        batch_size=64,
        features=Features(**(dataset.features | TOKENISED)),  # type: ignore[no-untyped-call]
        num_proc=processes,
        new_fingerprint=rows.cache_key(dataset, tokenizer, stops, sys.modules[__name__]),
        desc=f"Tokenising {path.name}",
    )
    # From here on only tokens are read, so no JSON is parsed with them.
    tokenized.set_format(None)
    return tokenized


def _checked(
    pair: Row, given: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, own: Collection[str]
) -> list[str]:
    """The unused parts of a pair: columns of its file, and keys of messages that the template does not write."""
    prompt, unread = pair["prompt"], set(pair.get("unread", ()))
    for side in (side for side in SIDES if pair[side]):
        column = partial(_column, len(prompt), side)
        unread |= {*written.check(prompt + pair[side], {len(prompt)}, given, column, tokenizer, own)}
    return sorted(unread)


def _column(start: int, side: str, number: int) -> str:
    return side if number >= start else "prompt"


def _difference(prompt: list[int], ids: list[int], side: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The difference between a side of a pair and the prompt that it should begin with; empty if there is none."""
    if ids[: len(prompt)] == prompt:
        return ""
    parting = rendering.parting(ids, prompt)
    served, trained = (tokenizer.decode(part[parting : parting + 8]) for part in (prompt, ids))
    return f"a server renders {served!r} where the chat template has {trained!r} before {side}"
