"""The overlap of finished training data with evaluations, for stats.json and the dataset card."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from notewriter.artifacts.parquet import read_rows
from notewriter.artifacts.reading import pick, read_json
from notewriter.artifacts.run_folder import read_config
from notewriter.artifacts.statistics import (
    CHAINS_STATISTICS_SCHEMA,
    GOLD_STATISTICS_SCHEMA,
    NAME,
    PAIRS_STATISTICS_SCHEMA,
    OverlapCheck,
    write_statistics,
)
from notewriter.data.dataset.card import CHAINS, GOLD, PAIRS, CardKind, write_card
from notewriter.data.dataset.hygiene import Seen, overlapping
from notewriter.data.dataset.splits import SPLITS
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.locks import locked
from notewriter.ground.records import Question

logger = logging.getLogger(__name__)

OVERLAPPING = "overlapping_questions.jsonl"
"""The training questions that overlap with evaluation questions, beside the data."""

KINDS: dict[str, CardKind] = {
    PAIRS_STATISTICS_SCHEMA: PAIRS,
    CHAINS_STATISTICS_SCHEMA: CHAINS,
    GOLD_STATISTICS_SCHEMA: GOLD,
}

REMEDY = "give a folder that pairs, chains or gold finished"


def load_runs(folders: Sequence[Path]) -> list[Seen]:
    """The questions of evaluation runs, as their configurations select them.

    Raises:
        UserError: a folder has no configuration, or its questions cannot be loaded.
    """
    return [Seen(question, str(folder)) for folder in folders for question in _selected(folder, read_config(folder))]


def check_data(folder: Path, evaluation: Sequence[Seen]) -> tuple[list[str], int]:
    """Compare the questions of a folder's rows with evaluation questions; write stats.json, the card and `OVERLAPPING`.

    Returns:
        A line per evaluation file or run, and the number of training questions that overlap with any.

    Raises:
        UserError: the folder is no finished dataset, or its questions cannot be loaded.
    """
    path = folder / NAME
    stats: Any = read_json(path, REMEDY)
    kind = KINDS.get(str(stats.get("schema"))) if isinstance(stats, dict) else None
    if kind is None:
        raise UserError(f"{path}: is not the statistics of training data; {REMEDY}")
    config = read_config(folder)
    used = {
        row["question_id"]
        for split in SPLITS
        if (folder / f"{split}.parquet").is_file()
        for row in read_rows(folder / f"{split}.parquet", ["question_id"], columns=["question_id"])
    }
    questions = [question for question in _selected(folder, config) if question.id in used]
    if len(questions) != len(used):
        raise UserError(f"{folder}: {len(used) - len(questions)} of its questions are not in {config['path']} any more")
    lines, drops, checks = [], [], dict[str, OverlapCheck]()
    for name, count in Counter(str(seen.evaluation_file) for seen in evaluation).items():
        # One by one, so that a question counts for each evaluation that it overlaps with.
        found = overlapping(questions, [seen for seen in evaluation if seen.evaluation_file == name])
        reasons = dict(sorted(Counter(drop.reason for drop in found).items()))
        drops += found
        checks[name] = {"questions": count, "training_questions": len(questions), "overlapping": reasons}
        told = "; ".join(f"{many}: {reason}" for reason, many in reasons.items())
        lines.append(
            f"{folder}: {len(found) or 'none'} of {len(questions)} questions overlap with the {count} of {name}"
            + (f" ({told})" if told else "")
        )
    with locked(folder):
        others = [drop for drop in _overlapping(folder) if drop["evaluation_file"] not in checks]
        jsonl.write(folder / OVERLAPPING, [*others, *(drop.to_dict() for drop in drops)])
        add_checks(folder, config, checks)
    return lines, len({drop.question.id for drop in drops})


def read_checks(folder: Path) -> dict[str, OverlapCheck]:
    """The checks of a dataset so far; empty before the first, or where there is no dataset yet."""
    if not (folder / NAME).is_file():
        return {}
    stats: Any = read_json(folder / NAME, REMEDY)
    checks: dict[str, OverlapCheck] = stats.get("overlap", {})
    return checks


def add_checks(folder: Path, config: Mapping[str, Any], checks: Mapping[str, OverlapCheck]) -> None:
    """Add checks to the statistics and the card of a dataset."""
    stats: Any = read_json(folder / NAME, REMEDY)
    stats["overlap"] = stats.get("overlap", {}) | checks
    write_statistics(folder, stats)
    write_card(folder, config, stats, KINDS[stats["schema"]])


def renew_checks(folder: Path, config: Mapping[str, Any], checks: Mapping[str, OverlapCheck], *, changed: bool) -> None:
    """Keep the checks of a dataset that was written again; where it has rows that they did not see, forget them."""
    if checks and changed:
        (folder / OVERLAPPING).unlink(missing_ok=True)
        logger.warning("%s: has rows that `notewriter overlap` has not checked; run it again", folder)
    elif checks:
        add_checks(folder, config, checks)


def _overlapping(folder: Path) -> list[dict[str, Any]]:
    file = folder / OVERLAPPING
    return [drop for _, drop in jsonl.read(file)] if file.is_file() else []


def _selected(folder: Path, config: Mapping[str, Any]) -> list[Question]:
    """The questions that a run's configuration selects."""
    named = pick(config, QuestionArguments)
    if not {"dataset", "path"} <= named.keys():
        raise UserError(f"{folder}: its configuration names no questions; give the folder of a run over questions")
    return load_selected(QuestionArguments(**named | {"output_dir": str(folder)}))
