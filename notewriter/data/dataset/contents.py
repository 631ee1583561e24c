"""The contents of a dataset (pairs, replies from the gold evidence, or chains), and its making from a journal."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
    read_rollouts,
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
from notewriter.data.dataset.tallies import ChainsTally, PairsTally, StagesTally, Tally
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
    """The outcome of a journal: a summary for the terminal, the number of rows, and the reasons against the others."""

    summary: str
    rows: int
    dropped: Counter[str]


@dataclass(frozen=True)
class Contents(Generic[Options]):
    """The contents of a dataset.

    Args:
        options: the dataclass of the options of the command that builds it.
        record: the type of a line of its journal.
        columns: the columns of its rows.
        card: its card.
        records: the lines of a journal in the questions' order, with the rows to write and the reasons for others.
        tally: what counts them.
        to_do: how many of the questions are missing from its journal.
    """

    options: type[Options]
    record: type
    columns: pa.Schema
    card: CardKind
    records: Callable[[Options, Selection, Path, Mapping[str, Any]], Iterator[Any]]
    tally: Callable[[Options, Selection], Tally]
    to_do: Callable[[Options, Selection, Path], int]

    def finish(self, arguments: Options, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
        """Write the dataset of the journal in a folder, one row in memory at a time, with stats.json and the card."""
        tally = self.tally(arguments, selection)

        def rows() -> Iterator[dict[str, Any]]:
            for record in self.records(arguments, selection, folder / JOURNAL, config):
                tally.add(record)
                for row in record["rows"]:
                    yield {**row, "dataset": arguments.dataset}

        counts = write_splits(folder, self.columns, rows(), selection.dev)
        write_drops(folder, selection.drops)
        # Left by an earlier `notewriter overlap`, which has not seen these rows.
        (folder / OVERLAPPING).unlink(missing_ok=True)
        statistics: Any = {
            "schema": self.card.schema,
            "questions": len(selection.questions),
            self.card.name: counts,
            **tally.totals(),
            **estimated(folder),
            "hygiene": hygiene_statistics(selection.drops, selection.evaluation),
            "config_hash": config_hash(config, type(arguments), ModelArguments),
            "version": __version__,
        }
        write_statistics(folder, statistics)
        write_card(folder, config, statistics, self.card)
        reasons = sum((Counter(dropped) for _, dropped in yields(statistics, self.card).values()), Counter[str]())
        return Made(_summary(statistics, self.card, folder, tally.warnings()), sum(counts.values()), reasons)


def _summary(statistics: Mapping[str, Any], card: CardKind, folder: Path, warnings: Sequence[str]) -> str:
    """The summary of a dataset, a line per stage."""
    counts = statistics[card.name]
    lines = [f"{counts['train']} training and {counts['dev']} development {card.name} in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in statistics["hygiene"]["questions_dropped"].items()]
    for stage, (kept, dropped) in yields(statistics, card).items():
        listed = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        rest = f"dropped: {listed}" if dropped else "none dropped" if kept else "stage not reached"
        lines.append(f"  {stage}: {kept} {card.name}; {rest}")
        if agreement := statistics.get("agreement", {}).get(stage):
            agreed = f"{agreement['agreed']} of {agreement['asked']}"
            lines.append(f"    asked in two orders, the judge agreed with itself in {agreed} cases")
        if count := statistics.get("unreadable_judge_replies", {}).get(stage):
            lines.append(f"    {count} judge replies could not be parsed")
    lines += [f"  warning: {line}" for line in warnings]
    return "\n".join(lines) + "\n"


def check_made(made: Made, folder: Path, errors: Counter[str]) -> None:
    """Check that something was made, else rename stats.json to `OF_NOTHING`; `errors` are those of the questions.

    An empty train.parquet is removed, which other libraries cannot load.

    Raises:
        UserError: nothing was; gives the commonest reason.
    """
    (folder / OF_NOTHING).unlink(missing_ok=True)
    if made.rows:
        return
    (folder / NAME).rename(folder / OF_NOTHING)
    (folder / "train.parquet").unlink()
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
    for record in read_rollouts(journal, selection.questions, PairsRollout):
        quotas.add(record)
    return quotas


def _pairs_to_do(arguments: PairsArguments, selection: Selection, journal: Path) -> int:
    return read_quotas(arguments, selection, journal).to_do()


def _pairs(
    arguments: PairsArguments, selection: Selection, journal: Path, config: Mapping[str, Any]
) -> Iterator[PairsRollout]:
    """Reads the journal twice, first for the usual lengths."""
    questions = selection.questions
    usual = usual_pair_lengths(
        row for record in read_rollouts(journal, questions, PairsRollout) for row in record["rows"]
    )
    records = within_lengths(usual, read_rollouts(journal, questions, PairsRollout))
    return within_quotas(arguments.quotas, records, selection.dev, arguments.dev_share)


def _pairs_tally(arguments: PairsArguments, selection: Selection) -> PairsTally:
    answers = {question.id: question.answers for question in selection.questions}
    return PairsTally(arguments.stages, selection.dev, arguments.quotas, answers)


# --- Replies from the gold evidence --------------------------------------------------------------


def _conversations(
    arguments: GoldArguments, selection: Selection, journal: Path, config: Mapping[str, Any]
) -> Iterator[GoldRollout]:
    kinds = count_kinds(read_rollouts(journal, selection.questions, GoldRollout), arguments.balanced_stages)
    return balanced(read_rollouts(journal, selection.questions, GoldRollout), kinds)


def _conversations_tally(arguments: GoldArguments, selection: Selection) -> StagesTally:
    return StagesTally(arguments.gold_stages, GOLD_CARD.name)


# --- Chains --------------------------------------------------------------------------------------


def _chains(
    arguments: ChainsArguments, selection: Selection, journal: Path, config: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """A kept chain follows the instruction that the student gets at evaluation, whatever the teacher's was."""
    prompts = Prompts(config["prompts_dir"], config["words"])
    by_id = {question.id: question for question in selection.questions}

    def judged(record: ChainRollout) -> dict[str, Any]:
        question = by_id[record["question_id"]]
        # Plain F1: a chain may finish with a sentence, which the rule for a bare yes or no would fail.
        f1 = max((token_f1(record["trace"]["answer"], gold) for gold in question.answers), default=0.0)
        if fault := chain_fault(record, f1, arguments):
            return {**record, "rows": [], "drops": [Drop(stage=STEP.name, reason=fault)]}
        row: chains.Conversation = {
            "schema": chains.SCHEMA,
            "messages": prompts.render(STEP.name, turns=record["turns"], question=question.question),
            "question_id": question.id,
            "f1": f1,
            "steps": steps_of(record),
        }
        return {**record, "rows": [row], "drops": []}

    return map(judged, read_rollouts(journal, selection.questions, ChainRollout))


def _missing(arguments: SelectionArguments, selection: Selection, journal: Path) -> int:
    return remaining(journal, selection.questions)


PAIRS = Contents(PairsArguments, PairsRollout, pairs.COLUMNS, PAIRS_CARD, _pairs, _pairs_tally, _pairs_to_do)
GOLD = Contents(
    GoldArguments, GoldRollout, chains.GOLD_COLUMNS, GOLD_CARD, _conversations, _conversations_tally, _missing
)
CHAINS = Contents(
    ChainsArguments, ChainRollout, chains.COLUMNS, CHAINS_CARD, _chains, lambda *_: ChainsTally(), _missing
)
