"""From the journal of `chains` to a dataset: filter, split, count, write."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

from notewriter import __version__
from notewriter.artifacts.chains import COLUMNS, SCHEMA, Chain
from notewriter.artifacts.rollouts import JOURNAL, ChainRollout, read_chain_rollouts, steps_of
from notewriter.artifacts.statistics import CHAINS_STATISTICS_SCHEMA, ChainsStatistics, Estimated, write_statistics
from notewriter.data.dataset.card import CHAINS, write_card
from notewriter.data.dataset.hygiene import hygiene_statistics, write_drops
from notewriter.data.dataset.selection import Selection
from notewriter.data.dataset.splits import open_splits
from notewriter.data.dataset.statistics import ChainsTally, Made
from notewriter.data.options import ChainsArguments
from notewriter.evaluation.metrics.text import token_f1
from notewriter.ground.records import Question
from notewriter.methods.rearag import STEP
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import config_hash
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.rehearsal import estimated

FAULTS = {
    "malformed": "thought, action and observation do not follow each other",
    "invalid_actions": "an action could not be read",
    "unfinished": "the chain did not finish",
}
"""Events that a trace counts -> the reason for which its chain is dropped."""


def finish(arguments: ChainsArguments, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
    """Write the dataset of a finished journal: the chains in the questions' order, stats.json, and the card.

    Raises:
        UserError: a file cannot be written.
    """
    write_drops(folder, selection.drops)
    prompts = Prompts(config["prompts_dir"])
    by_id = {question.id: question for question in selection.members}

    tally = ChainsTally()
    with open_splits(folder, COLUMNS, selection.dev) as splits:
        for record in read_chain_rollouts(folder / JOURNAL, selection.members):
            question = by_id[record["question_id"]]
            # Plain F1: a chain may finish with a sentence, which the rule for a bare yes or no would fail.
            f1 = max((token_f1(record["trace"]["answer"], gold) for gold in question.answers), default=0.0)
            fault = chain_fault(record, f1, arguments)
            tally.add(record, f1, fault)
            if fault is None:
                splits.write(_row(record, f1, question, arguments.dataset, prompts))

    statistics: ChainsStatistics = {
        "schema": CHAINS_STATISTICS_SCHEMA,
        "questions": len(selection.members),
        "chains": splits.counts,
        **tally.totals(),
        **cast(Estimated, estimated(folder)),
        "hygiene": hygiene_statistics(selection.drops, selection.evaluation),
        "config_hash": config_hash(config, ChainsArguments, ModelArguments),
        "version": __version__,
    }
    write_statistics(folder, statistics)
    write_card(folder, config, statistics, CHAINS)
    return Made(_summary(statistics, folder), sum(splits.counts.values()), Counter(statistics["dropped"]))


def chain_fault(record: ChainRollout, f1: float, arguments: ChainsArguments) -> str | None:
    """Why a chain is not training data; None if it is (ReaRAG, section 3.2, and the checks of the authors' code).

    The first of these reasons is returned: the endpoint refused a request, `FAULTS`, a step without a thought, too few
    searches, a repeated query (optional), an F1 of 0.

    Args:
        record: the chain.
        f1: of the answer that it finished with, in [0, 1].
        arguments: which chains to keep.
    """
    counts = record["trace"]["counts"]
    steps = [turn["content"] for turn in record["turns"] if turn["role"] == "assistant"]
    if record["trace"]["error"]:
        return "the endpoint refused the request"
    for event, reason in FAULTS.items():
        if counts.get(event):
            return reason
    if not all(step.startswith("Thought") for step in steps):
        return "a step without a thought"
    if len(steps) - 1 - counts.get("repeated_queries", 0) < arguments.min_searches:
        return "too few searches"
    if arguments.drop_repeated_queries and counts.get("repeated_queries"):
        return "a query was repeated"
    if f1 == 0:
        return "the answer's F1 is 0"
    return None


def _row(record: ChainRollout, f1: float, question: Question, dataset: str, prompts: Prompts) -> Chain:
    """The chain after the instruction that the student gets at evaluation, whatever the teacher's was."""
    return {
        "schema": SCHEMA,
        "messages": prompts.render(STEP.name, turns=record["turns"], question=question.question),
        "question_id": question.id,
        "dataset": dataset,
        "f1": f1,
        "steps": steps_of(record),
    }


def _summary(statistics: ChainsStatistics, folder: Path) -> str:
    """What was built, and why the rest was not."""
    chains = statistics["chains"]
    lines = [f"{chains['train']} training and {chains['dev']} development chains in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in statistics["hygiene"]["questions_dropped"].items()]
    lines += [f"  dropped: {count} {fault}" for fault, count in statistics["dropped"].items()]
    return "\n".join(lines) + "\n"
