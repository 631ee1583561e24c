"""What a dataset is made of, pairs, replies from the gold evidence or chains, and how its journal becomes one."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa

from notewriter import __version__
from notewriter.artifacts import chains, pairs
from notewriter.artifacts.journal import remaining
from notewriter.artifacts.rollouts import (
    JOURNAL,
    ChainRollout,
    Drop,
    GoldRollout,
    PairsRollout,
    read_chain_rollouts,
    read_gold_rollouts,
    read_pairs_rollouts,
    steps_of,
)
from notewriter.artifacts.statistics import NAME, OF_NOTHING, write_statistics
from notewriter.data.dataset.balance import balanced, count_kinds
from notewriter.data.dataset.card import CHAINS_CARD, GOLD_CARD, OVERLAPPING, PAIRS_CARD, CardKind, write_card, yields
from notewriter.data.dataset.faults import chain_fault, usual_pair_lengths, within_lengths
from notewriter.data.dataset.hygiene import hygiene_statistics, write_drops
from notewriter.data.dataset.quotas import Quotas, within_quotas
from notewriter.data.dataset.selection import Selection
from notewriter.data.dataset.splits import write_splits
from notewriter.data.dataset.tallies import ChainsTally, PairsTally, ShortcutsTally, StagesTally
from notewriter.data.options import ChainsArguments, GoldArguments, PairsArguments, SelectionArguments
from notewriter.evaluation.metrics.text import token_f1
from notewriter.ground.errors import UserError
from notewriter.methods.rearag import STEP
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import config_hash
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.rehearsal import estimated

Options = TypeVar("Options", bound=SelectionArguments)


class Made(NamedTuple):
    """What was made of a journal: a summary for the terminal, how many rows, and why others were not."""

    summary: str
    rows: int
    dropped: Counter[str]


@dataclass(frozen=True)
class Contents(Generic[Options]):
    """What a dataset is made of.

    Args:
        options: the dataclass of the options of the command that builds it.
        record: the type of a line of its journal.
        to_do: how many of the questions are missing from its journal.
        finish: writes the dataset of a journal: the rows in the questions' order, stats.json, and the card.
    """

    options: type[Options]
    record: type
    to_do: Callable[[Options, Selection, Path], int]
    finish: Callable[[Options, Path, Selection, dict[str, Any]], Made]


def check_made(made: Made, folder: Path, errors: Counter[str]) -> None:
    """Check that something was made, else rename stats.json to `OF_NOTHING`; `errors` are those of the questions.

    Raises:
        UserError: nothing was; gives the commonest reason.
    """
    (folder / OF_NOTHING).unlink(missing_ok=True)
    if made.rows:
        return
    (folder / NAME).rename(folder / OF_NOTHING)
    # The endpoints' own words before the kinds that they fall into.
    reasons = (errors + made.dropped).most_common(1)
    why = "".join(f"; the commonest reason, {times} times: {reason}" for reason, times in reasons)
    raise UserError(
        f"{folder}: nothing was made{why or ' of no question'}; correct that, and run again (with --retry_errors if "
        "requests were refused)"
    )


# --- Pairs ---------------------------------------------------------------------------------------


def read_quotas(arguments: PairsArguments, selection: Selection, journal: Path) -> Quotas:
    """The quotas, less the pairs that the journal already has."""
    quotas = Quotas(list(arguments.stages), arguments.quotas, selection.questions, arguments.quota_block, selection.dev)
    for record in read_pairs_rollouts(journal, selection.questions):
        quotas.add(record)
    return quotas


def _pairs_to_do(arguments: PairsArguments, selection: Selection, journal: Path) -> int:
    return read_quotas(arguments, selection, journal).to_do()


def _finish_pairs(arguments: PairsArguments, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
    """Reads the journal twice: for the usual lengths, and to write the pairs."""
    journal, questions = folder / JOURNAL, selection.questions
    usual = usual_pair_lengths(row for record in read_pairs_rollouts(journal, questions) for row in record["rows"])
    records = within_lengths(usual, read_pairs_rollouts(journal, questions))
    tally = PairsTally(arguments.stages, selection.dev)
    kept = within_quotas(arguments.quotas, records, selection.dev, arguments.dev_share)
    answers = {question.id: question.answers for question in questions}
    shortcuts = ShortcutsTally(answers)

    def add(record: PairsRollout) -> None:
        tally.add(record)
        shortcuts.add(record)

    counts = _write_rows(folder, pairs.COLUMNS, selection, arguments.dataset, kept, add)
    totals = {**tally.totals(), **({"quotas": arguments.quotas} if arguments.quotas else {})}
    judges = {
        stage: ", ".join([names] if isinstance(names, str) else names) for stage, names in arguments.stages.items()
    }
    more = {"judges": judges, "shortcuts": shortcuts.totals()}
    statistics = _describe(arguments, folder, config, selection, PAIRS_CARD, counts, totals, **more)
    return _made(statistics, PAIRS_CARD, folder, tally.training, shortcuts.warnings())


# --- Replies from the gold evidence --------------------------------------------------------------


def _finish_gold(arguments: GoldArguments, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
    journal, questions = folder / JOURNAL, selection.questions
    kinds = count_kinds(read_gold_rollouts(journal, questions), arguments.balanced_stages)
    kept = balanced(read_gold_rollouts(journal, questions), kinds)
    tally = StagesTally(arguments.gold_stages, GOLD_CARD.name)
    counts = _write_rows(folder, chains.GOLD_COLUMNS, selection, arguments.dataset, kept, tally.add)
    statistics = _describe(arguments, folder, config, selection, GOLD_CARD, counts, tally.totals())
    return _made(statistics, GOLD_CARD, folder)


# --- Chains --------------------------------------------------------------------------------------


def _finish_chains(arguments: ChainsArguments, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
    """A kept chain follows the instruction that the student gets at evaluation, whatever the teacher's was."""
    prompts = Prompts(config["prompts_dir"], config.get("words") or {})
    by_id = {question.id: question for question in selection.questions}

    def judged(record: ChainRollout) -> dict[str, Any]:
        question = by_id[record["question_id"]]
        # Plain F1: a chain may finish with a sentence, which the rule for a bare yes or no would fail.
        f1 = max((token_f1(record["trace"]["answer"], gold) for gold in question.answers), default=0.0)
        if fault := chain_fault(record, f1, arguments):
            return {**record, "rows": [], "drops": [Drop(stage=STEP.name, reason=fault)]}
        row: chains.Chain = {
            "schema": chains.SCHEMA,
            "messages": prompts.render(STEP.name, turns=record["turns"], question=question.question),
            "question_id": question.id,
            "f1": f1,
            "steps": steps_of(record),
        }
        return {**record, "rows": [row], "drops": []}

    records = map(judged, read_chain_rollouts(folder / JOURNAL, selection.questions))
    tally = ChainsTally()
    counts = _write_rows(folder, chains.COLUMNS, selection, arguments.dataset, records, tally.add)
    statistics = _describe(arguments, folder, config, selection, CHAINS_CARD, counts, tally.totals())
    return _made(statistics, CHAINS_CARD, folder)


# --- What they share -----------------------------------------------------------------------------


def _write_rows(
    folder: Path,
    columns: pa.Schema,
    selection: Selection,
    dataset: str,
    records: Iterable[Any],
    add: Callable[[Any], None],
) -> dict[str, int]:
    """Write the rows of records, each of which `add` counts; returns the rows per split."""

    def rows() -> Iterator[dict[str, Any]]:
        for record in records:
            add(record)
            for row in record["rows"]:
                yield {**row, "dataset": dataset}

    return write_splits(folder, columns, rows(), selection.dev)


def _describe(
    arguments: SelectionArguments,
    folder: Path,
    config: dict[str, Any],
    selection: Selection,
    card: CardKind,
    counts: dict[str, int],
    totals: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """Write dropped_questions.jsonl, stats.json and the card; returns the statistics."""
    write_drops(folder, selection.drops)
    # Of a check by `notewriter overlap`, which has not seen these rows.
    (folder / OVERLAPPING).unlink(missing_ok=True)
    statistics: Any = {
        "schema": card.schema,
        "questions": len(selection.questions),
        card.name: counts,
        **totals,
        **estimated(folder),
        "hygiene": hygiene_statistics(selection.drops, selection.evaluation),
        **more,
        "config_hash": config_hash(config, type(arguments), ModelArguments),
        "version": __version__,
    }
    write_statistics(folder, statistics)
    write_card(folder, config, statistics, card)
    return dict(statistics)


def _made(
    statistics: Mapping[str, Any],
    card: CardKind,
    folder: Path,
    training: Mapping[str, int] = MappingProxyType({}),
    warnings: Sequence[str] = (),
) -> Made:
    """What was made, a line per stage; `training` are the rows of the train split, where stages have quotas."""
    counts, reasons = statistics[card.name], Counter[str]()
    lines = [f"{counts['train']} training and {counts['dev']} development {card.name} in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in statistics["hygiene"]["questions_dropped"].items()]
    for stage, (kept, dropped) in yields(statistics, card).items():
        reasons.update(dropped)
        listed = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        rest = f"dropped: {listed}" if dropped else "none dropped" if kept else "stage not reached"
        lines.append(f"  {stage}: {kept} {card.name}; {rest}")
        if agreement := statistics.get("agreement", {}).get(stage):
            agreed = f"{agreement['agreed']} of {agreement['asked']}"
            lines.append(f"    asked in two orders, the judge agreed with itself in {agreed} cases")
        if count := statistics.get("unreadable_judge_replies", {}).get(stage):
            lines.append(f"    {count} judge replies could not be parsed")
        if training.get(stage, 0) < (quota := statistics.get("quotas", {}).get(stage, 0)):
            lines.append(f"    below its quota of {quota}")
    lines += [f"  warning: {line}" for line in warnings]
    return Made("\n".join(lines) + "\n", sum(counts.values()), reasons)


def _missing(arguments: SelectionArguments, selection: Selection, journal: Path) -> int:
    return remaining(journal, selection.questions)


PAIRS = Contents(PairsArguments, PairsRollout, _pairs_to_do, _finish_pairs)
GOLD = Contents(GoldArguments, GoldRollout, _missing, _finish_gold)
CHAINS = Contents(ChainsArguments, ChainRollout, _missing, _finish_chains)
