"""A line of the doctor's page."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class Finding:
    """What was looked at and found; `note` is worth knowing, `wrong` stops something that this machine is set up for.

    `remedy` is a command or what to do; empty where nothing is to be done.
    """

    name: str
    state: State
    found: str
    remedy: str = ""
