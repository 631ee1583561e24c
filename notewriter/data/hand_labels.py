"""`notewriter app labels`: how far automatic judges agree with people, and the people's labels as preference pairs.

The labels are those of `notewriter app`.
"""

import logging
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from notewriter.artifacts.hand_labels import read_labels_folder
from notewriter.artifacts.pairs import COLUMNS
from notewriter.data.by_hand.items import ByHandArguments, items_of
from notewriter.data.by_hand.measures import measures
from notewriter.data.by_hand.rows import rows_of
from notewriter.data.dataset.splits import write_splits
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.pages.tables import aligned

logger = logging.getLogger(__name__)


@dataclass
class HandLabelsArguments:
    """The options for using labels by hand."""

    output_dir: str | None = option(None, "folder for the labels as preference pairs, with the judge `human`")


def main(argv: list[str]) -> None:
    """Print the agreement, and write the pairs.

    Raises:
        UserError: there are no labels of the named pairs or runs, or no pair follows from them.
    """
    by_hand, arguments = parse(
        (ByHandArguments, HandLabelsArguments), argv, prog="notewriter app labels", description=__doc__
    )
    labels = read_labels_folder(Path(by_hand.labels))
    labelled = {item for own in labels.values() for item in own}
    items = items_of(by_hand, labelled.__contains__)
    sys.stdout.write(aligned(measures(items, labels)))
    if arguments.output_dir:
        folder = Path(arguments.output_dir)
        if folder.resolve() in {Path(name).resolve() for name in by_hand.pairs or ()}:
            raise UserError(f"{folder}: contains the pairs that were judged; choose another output_dir")
        dropped: Counter[str] = Counter()
        made = list(rows_of(items, labels, dropped))
        if not made:
            reason = dropped.most_common(1)[0][0]
            raise UserError(f"no pair follows from the labels: {reason}; label more of them, or leave out --output_dir")
        dev = {row["question_id"] for split, row in made if split == "dev"}
        folder.mkdir(parents=True, exist_ok=True)
        counts = write_splits(folder, COLUMNS, (row for _, row in made), dev)
        sys.stdout.write(f"\n{counts['train']} training and {counts['dev']} development pairs in {folder}\n")
        for reason, count in dropped.most_common():
            sys.stdout.write(f"  {count} left out: {reason}\n")
