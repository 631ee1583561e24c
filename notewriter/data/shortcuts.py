"""`notewriter shortcuts`: one HTML page about what separates chosen from rejected beside what they say.

DPO learns whatever tells the two sides apart. If the chosen side is nearly always the longer one, or the rejected side
is nearly always cut, that is what it learns. For each stage and each feature of a text (length, form, words copied from
the prompt, ...) the page shows in how many pairs the chosen side has more of it, and how well the feature alone, and
all of them together, name the chosen side of pairs.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.data.dataset.shortcuts import write_shortcuts
from notewriter.ground.config import parse

logger = logging.getLogger(__name__)


@dataclass
class ShortcutsArguments:
    """The pairs, and where to write the page."""

    pairs: str = field(metadata={"help": "a folder written by `notewriter pairs`, or any with train.parquet of pairs"})
    output: str = field(default="shortcuts.html", metadata={"help": "the HTML file to write; works offline"})


def main(argv: list[str]) -> None:
    """Write the page."""
    (arguments,) = parse(ShortcutsArguments, argv, prog="notewriter shortcuts", description=__doc__)
    for line in write_shortcuts(Path(arguments.output), Path(arguments.pairs)):
        logger.warning("%s", line)
    logger.info("%s; open it in a browser", arguments.output)
