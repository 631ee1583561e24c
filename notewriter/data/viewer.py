"""`notewriter inspect`: one HTML page to browse pairs and chains, with the two sides of a pair as a diff."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.data.dataset.viewer import write_viewer
from notewriter.ground.config import parse

logger = logging.getLogger(__name__)


@dataclass
class InspectArguments:
    """What to show, and where to write the page."""

    pairs: str | None = field(default=None, metadata={"help": "a folder written by `notewriter pairs`"})
    chains: str | None = field(default=None, metadata={"help": "a folder of chains, whose rows have `messages`"})
    output: str = field(
        default="pairs.html", metadata={"help": "the HTML file to write; self-contained, works offline"}
    )


def main(argv: list[str]) -> None:
    """Write the page."""
    (arguments,) = parse(InspectArguments, argv, prog="notewriter inspect", description=__doc__)
    output = Path(arguments.output)
    write_viewer(output, _path(arguments.pairs), _path(arguments.chains))
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None
