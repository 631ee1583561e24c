"""From the journal of `gold` to a dataset: split, count, write."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

from notewriter import __version__
from notewriter.artifacts.chains import GOLD_COLUMNS
from notewriter.artifacts.rollouts import JOURNAL, read_gold_rollouts
from notewriter.artifacts.statistics import GOLD_STATISTICS_SCHEMA, Estimated, GoldStatistics, write_statistics
from notewriter.data.dataset.balance import balanced, count_kinds
from notewriter.data.dataset.card import GOLD, write_card
from notewriter.data.dataset.hygiene import hygiene_statistics, write_drops
from notewriter.data.dataset.selection import Selection
from notewriter.data.dataset.splits import open_splits
from notewriter.data.dataset.statistics import GoldTally, Made
from notewriter.data.options import GoldArguments
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import config_hash
from notewriter.rollouts.rehearsal import estimated


def finish(arguments: GoldArguments, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
    """Write the dataset of a finished journal: the conversations in the questions' order, stats.json, and the card.

    Raises:
        UserError: a file cannot be written.
    """
    write_drops(folder, selection.drops)
    tally = GoldTally(arguments.gold_stages)
    counts = count_kinds(read_gold_rollouts(folder / JOURNAL, selection.members), arguments.balanced_stages)
    with open_splits(folder, GOLD_COLUMNS, selection.dev) as splits:
        for record in balanced(read_gold_rollouts(folder / JOURNAL, selection.members), counts):
            tally.add(record)
            for row in record["rows"]:
                splits.write({**row, "dataset": arguments.dataset})
    statistics: GoldStatistics = {
        "schema": GOLD_STATISTICS_SCHEMA,
        "questions": len(selection.members),
        "conversations": splits.counts,
        **tally.totals(),
        **cast(Estimated, estimated(folder)),
        "hygiene": hygiene_statistics(selection.drops, selection.evaluation),
        "config_hash": config_hash(config, GoldArguments, ModelArguments),
        "version": __version__,
    }
    write_statistics(folder, statistics)
    write_card(folder, config, statistics, GOLD)
    dropped = sum((Counter(each["dropped"]) for each in statistics["stages"].values()), Counter())
    return Made(_summary(statistics, folder), sum(splits.counts.values()), dropped)


def _summary(statistics: GoldStatistics, folder: Path) -> str:
    """What was written, a line per stage."""
    counts = statistics["conversations"]
    lines = [f"{counts['train']} training and {counts['dev']} development conversations in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in statistics["hygiene"]["questions_dropped"].items()]
    for stage, yielded in statistics["stages"].items():
        dropped = ", ".join(f"{count} where {reason}" for reason, count in yielded["dropped"].items())
        lines.append(f"  {stage}: {yielded['conversations']}; " + (f"not {dropped}" if dropped else "none dropped"))
    return "\n".join(lines) + "\n"
