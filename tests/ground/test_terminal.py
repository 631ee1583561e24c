"""Text on a terminal is readable and cannot control it."""

import logging
import re
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from notewriter.ground.terminal import Formatter, escape_controls


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs"])))
def test_no_text_at_all_gets_a_control_character_through(text):
    safe = escape_controls(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", safe)


def test_text_of_any_script_stays_as_it_is():
    text = "Bogusław\n\tשלום 漢字 می‌خواهم 👩‍🚀"
    assert escape_controls(text) == text


def test_messages_of_the_log_are_harmless():
    record = logging.LogRecord("notewriter", logging.INFO, "", 0, "%s: is gone", ("\x1b]0;title\x07",), None)
    assert Formatter().format(record) == r"\x1b]0;title\x07: is gone"


def test_an_error_of_a_command_and_what_it_logs_are_harmless():
    command = """
import logging
from notewriter.ground.errors import UserError, run
def main():
    logging.getLogger("notewriter").warning("loud \\x1b[2J")
    raise UserError("file \\x9b31m\\u202e: is broken; fix it")
run(main)
"""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "loud \\x1b[2J\nerror: file \\x9b31m\\u202e: is broken; fix it\n"


def test_half_a_character_is_printed_as_an_escape():
    command = """
import sys
from notewriter.ground.errors import UserError, run
def main():
    sys.stdout.write("caf\\udce9\\n")
    raise UserError("caf\\udce9: is gone; look for it")
run(main)
"""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "caf\\udce9\n")
    assert done.stderr == "error: caf\\udce9: is gone; look for it\n"
