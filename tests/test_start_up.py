"""A command starts without the libraries that it does not need."""

import subprocess
import sys

from notewriter.cli import COMMANDS

TRAINING = {"preflight", "train", "merge"}
"""The commands that use these libraries before their options are read."""

OF_DATA = {"quickstart", "pipeline", "corpus", "pairs", "gold", "chains", "inspect", "overlap", "table"}
OF_DATA |= {"publish", "app"}
"""The commands that use numpy, Parquet or Jinja before their options are read."""

LIBRARIES = ["trl", "transformers", "torch", "openai"]

PROGRAM = """
import contextlib, importlib, io, sys
from notewriter.cli import COMMANDS
libraries, *names = sys.argv[1:]
for name in names:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        importlib.import_module(COMMANDS[name][0]).main(["--help"])
    print(name, *sorted({*libraries.split()} & sys.modules.keys()))
"""


def imported_by(libraries, names):
    """The commands, each with those of the libraries that its help imports."""
    argv = [sys.executable, "-c", PROGRAM, " ".join(libraries), *names]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_help_of_a_command_imports_neither_libraries_of_training_nor_of_endpoints():
    names = [name for name in COMMANDS if name not in TRAINING]
    assert imported_by(LIBRARIES, names) == names


def test_the_help_of_a_command_that_makes_no_data_imports_no_library_that_is_slow_to_import():
    names = [name for name in COMMANDS if name not in TRAINING | OF_DATA]
    assert "evaluate" in names
    assert imported_by([*LIBRARIES, "numpy", "jinja2", "pyarrow", "pydantic_core"], names) == names
