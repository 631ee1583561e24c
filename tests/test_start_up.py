"""A command starts without the libraries that it does not need."""

import subprocess
import sys

from notewriter.cli import COMMANDS

TRAINING = {"preflight", "train", "merge"}
"""The commands that use these libraries before their options are read."""

PROGRAM = """
import contextlib, importlib, io, sys
from notewriter.cli import COMMANDS
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        importlib.import_module(COMMANDS[name][0]).main(["--help"])
    print(name, *sorted({"trl", "transformers", "torch", "openai"} & sys.modules.keys()))
"""


def test_the_help_of_a_command_imports_neither_libraries_of_training_nor_of_endpoints():
    names = [name for name in COMMANDS if name not in TRAINING]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == names
