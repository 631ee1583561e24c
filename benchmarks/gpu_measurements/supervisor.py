"""Measurements taken in another process, which may die or hang without harm to the others."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

from .plan import Measurement
from .results import Record, Results

START = 240
"""Seconds in which the process that measures has to have imported its libraries."""


class Worker:
    """A process that takes measurements, and what it says, line by line."""

    def __init__(self, command: list[str], request: Record, environment: dict[str, str], log: IO[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def say(self, seconds: float) -> Record | None:
        """What it says next; None where it has ended.

        Raises:
            TimeoutError: it says nothing for so long.
        """
        try:
            line = self.lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def end(self) -> int:
        """End it and what it started; returns its status."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
        return self.process.wait()


def supervise(
    wanted: list[Measurement], results: Results, start: Callable[[list[Measurement]], Worker], deadline: float
) -> None:
    """Take measurements until none are left or the time is up (`time.monotonic()`), in as many processes as need be."""
    left = [each for each in wanted if not results.finished(each.name)]
    while left and time.monotonic() < deadline:
        worker, current, until, asked = start(left), None, time.monotonic() + START, len(left)
        try:
            while (said := worker.say(min(until, deadline) - time.monotonic())) is not None:
                if "header" in said:
                    results.add_header(said["header"])
                elif "begins" in said:
                    current = next(each for each in left if each.name == said["begins"])
                    until = time.monotonic() + current.limit
                else:
                    results.add(said)
                    tell(said)
                    left = [each for each in left if each.name != said["name"]]
                    current, until = None, time.monotonic() + START
            reason = f"the process ended with status {worker.end()}"
        except TimeoutError:
            reason = f"no result within {current.limit if current else START} s"
        finally:
            worker.end()
        if time.monotonic() >= deadline:
            return
        if current is not None:
            record = {"name": current.name, "options": current.options, "outcome": "failed", "reason": reason}
            results.add(record)
            tell(record)
            left = [each for each in left if each is not current]
        elif left and len(left) == asked:
            sys.exit(f"nothing could be measured: {reason}; {results.stream.name}.log tells why")


def tell(record: Record) -> None:
    """Say what came out of a measurement, in a line."""
    reason = f": {record['reason'].splitlines()[0][:160]}" if "reason" in record else ""
    verdict = (", right" if record["right"] else ", WRONG") if "right" in record else ""
    seconds = f", {record['seconds']:.3f} s a step" if isinstance(record.get("seconds"), float) else ""
    sys.stdout.write(f"{record['name']}: {record['outcome']}{reason}{verdict}{seconds}\n")
    sys.stdout.flush()
