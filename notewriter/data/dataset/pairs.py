"""From the journal of `pairs` to a dataset: filter, split, count, write."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from notewriter import __version__
from notewriter.artifacts.pairs import COLUMNS
from notewriter.artifacts.rollouts import JOURNAL, read_pairs_rollouts
from notewriter.artifacts.statistics import PAIRS_STATISTICS_SCHEMA, Estimated, PairsStatistics, write_statistics
from notewriter.artifacts.statistics import Quotas as QuotaStatistics
from notewriter.data.dataset.card import PAIRS, write_card
from notewriter.data.dataset.faults import usual_pair_lengths, within_lengths
from notewriter.data.dataset.hygiene import hygiene_statistics, write_drops
from notewriter.data.dataset.quotas import Quotas, shares_of, within_quotas
from notewriter.data.dataset.selection import Selection
from notewriter.data.dataset.shards import SHARDS
from notewriter.data.dataset.splits import open_splits
from notewriter.data.dataset.statistics import Made, PairsTally
from notewriter.data.options import PairsArguments
from notewriter.ground import jsonl
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import config_hash
from notewriter.rollouts.rehearsal import estimated


def read_quotas(arguments: PairsArguments, selection: Selection, journal: Path) -> Quotas:
    """The quotas, or a shard's parts of them, less the pairs that the journal already has."""
    shares = shares_of(arguments.quotas, arguments.shard)
    quotas = Quotas(list(arguments.stages), shares, selection.members, arguments.quota_block, selection.dev)
    for record in read_pairs_rollouts(journal, selection.members):
        quotas.add(record)
    return quotas


def to_do(arguments: PairsArguments, selection: Selection, journal: Path) -> int:
    """How many questions a run or a shard still has to roll out."""
    return read_quotas(arguments, selection, journal).to_do()


def finish(arguments: PairsArguments, folder: Path, selection: Selection, config: dict[str, Any]) -> Made:
    """Write the dataset of a finished journal: the pairs in the questions' order, stats.json, and the card.

    Reads the journal twice: for the usual lengths, and to write the pairs. One question is in memory at a time, and one
    batch of rows per split.

    Raises:
        UserError: a file cannot be written.
    """
    write_drops(folder, selection.drops)
    journal, questions, dev = folder / JOURNAL, selection.members, selection.dev
    shares = shares_of(arguments.quotas, arguments.shard)
    usual = usual_pair_lengths(row for record in read_pairs_rollouts(journal, questions) for row in record["rows"])

    tally = PairsTally(arguments.stages)
    training: Counter[str] = Counter()
    with open_splits(folder, COLUMNS, dev) as splits:
        records = within_lengths(usual, read_pairs_rollouts(journal, questions))
        for record in within_quotas(shares, records, dev, arguments.dev_share):
            tally.add(record)
            for row in record["rows"]:
                training[row["stage"]] += row["question_id"] not in dev
                splits.write({**row, "dataset": arguments.dataset})

    statistics: PairsStatistics = {
        "schema": PAIRS_STATISTICS_SCHEMA,
        "questions": len(questions),
        "pairs": splits.counts,
        **tally.totals(),
        **_quota_statistics(folder, shares),
        **cast(Estimated, estimated(folder)),
        "hygiene": hygiene_statistics(selection.drops, selection.evaluation),
        "judges": {
            stage: ", ".join([names] if isinstance(names, str) else names) for stage, names in arguments.stages.items()
        },
        "config_hash": config_hash(config, PairsArguments, ModelArguments),
        "version": __version__,
    }
    write_statistics(folder, statistics)
    write_card(folder, config, statistics, PAIRS)
    dropped = sum((Counter(each["dropped"]) for each in statistics["stages"].values()), Counter())
    return Made(_summary(statistics, folder, training), sum(splits.counts.values()), dropped)


def _quota_statistics(folder: Path, shares: dict[str, int]) -> QuotaStatistics:
    if not shares:
        return {}
    shards = folder / SHARDS
    count = jsonl.read_object(shards, dict[str, int], "remove it").get("shards", 1) if shards.exists() else 1
    return {"quotas": shares, "quotas_kept_in_shards": count}


def _summary(statistics: PairsStatistics, folder: Path, training: Mapping[str, int]) -> str:
    """What was built, one line per stage; `training` are the pairs of the train split."""
    lines = [f"{statistics['pairs']['train']} training and {statistics['pairs']['dev']} development pairs in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in statistics["hygiene"]["questions_dropped"].items()]
    for stage, yielded in statistics["stages"].items():
        dropped = ", ".join(f"{count} {reason}" for reason, count in yielded["dropped"].items())
        dropped = dropped or ("none dropped" if yielded["pairs"] else "stage not reached")
        lines.append(f"  {stage}: {yielded['pairs']} pairs; {dropped}")
        if agreement := statistics["agreement"].get(stage):
            agreed = f"{agreement['agreed']} of {agreement['asked']}"
            lines.append(f"    asked in two orders, the judge agreed with itself in {agreed} cases")
        if count := statistics["unreadable_judge_replies"].get(stage):
            lines.append(f"    {count} judge replies could not be parsed")
        if training.get(stage, 0) < (quota := statistics.get("quotas", {}).get(stage, 0)):
            lines.append(f"    below its quota of {quota}")
    if (shards := statistics.get("quotas_kept_in_shards", 1)) > 1:
        lines.append(
            f"  quotas were split over {shards} shards: as many pairs as a single run keeps, but not the same ones"
        )
    return "\n".join(lines) + "\n"
