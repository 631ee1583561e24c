"""Errors that a user can put right."""

import logging
import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user can put right: one line that names the file, line or key, and the remedy."""


def run(main: Callable[[], None]) -> None:
    """Run a command's main function; a `UserError` becomes one line on standard error and exit code 2."""
    # Other libraries' idea of information, such as a line a request, would hide the progress bar.
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for package in ("notewriter", "data_construction", "eval", "training"):
        logging.getLogger(package).setLevel(logging.INFO)
    try:
        main()
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what was finished is kept; the same command goes on from there\n")
        sys.exit(130)
