"""Watching: the runs of pipelines, and run folders, from the files that they write; nothing is changed."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notewriter.app.application import Render
from notewriter.artifacts import best_checkpoint, run_record, statistics
from notewriter.artifacts.costs import read_costs
from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.rollouts import JOURNAL
from notewriter.evaluation.catalogue import HEADLINE, metric_named
from notewriter.experiments.run import RESULTS, Pipeline, read_pipeline
from notewriter.experiments.slurm import states
from notewriter.ground.errors import UserError
from notewriter.ground.recipes import find
from notewriter.models.prices import SPENT, spent_in
from notewriter.results.checkpoints import curves as scores_curves
from notewriter.rollouts.rehearsal import estimated
from notewriter.training.publishing.curves import curves, newest_log

PATH = "/watch"

RESULT_FILES = {RESULTS[command][1] for command in ("index", "pairs", "train", "evaluate")}
"""The last files that the commands write into their run folders."""

CHARTS = ("training", "scores")

JOURNALS = (JOURNAL, "traces.jsonl")

REFRESH = 5
"""Seconds between two looks at the files."""

DEPTH = 3
"""The depth below a named folder to which run folders are looked for."""


@dataclass(frozen=True)
class Watched:
    """The state of a run, for the page.

    Args:
        title: its name.
        state: how far it is.
        folder: where it works; None where that is unknown or does not exist yet.
        facts: its results, scores and costs, in words.
        charts: the names of its charts.
    """

    title: str
    state: str
    folder: Path | None
    facts: list[str]
    charts: list[str]


class Watching:
    """The watched places: pipeline files, and folders of runs or above them."""

    def __init__(self, names: Sequence[str]) -> None:
        """Read the pipelines.

        Raises:
            UserError: a name is neither a folder nor a pipeline.
        """
        self._named: list[tuple[str, Pipeline | Path]] = [
            (name, Path(name) if Path(name).is_dir() else read_pipeline(find(name))) for name in names
        ]
        self._lines = LineCounts()

    def groups(self) -> dict[str, list[Watched]]:
        """Pipeline or folder -> its runs, as they are now."""
        return {name: list(self._runs(what)) for name, what in self._named}

    def _runs(self, what: Pipeline | Path) -> Iterator[Watched]:
        if isinstance(what, Pipeline):
            for run, state, _, log in states(what):
                folders = {path.parent for path in run.results() if path.parent.is_dir()}
                # A run on this machine has no job that could say whether it is at work.
                shown = f"unfinished, log written {_ago(log)}" if state.startswith("ended") else state
                yield self._watched(run.title, shown, folders.pop() if len(folders) == 1 else None)
        else:
            for folder in _run_folders(what):
                ended = any((folder / name).is_file() for name in RESULT_FILES)
                state = "finished" if ended else f"unfinished, last written {_ago(folder)}"
                yield self._watched(os.path.relpath(folder, what), state, folder)

    def _watched(self, title: str, state: str, folder: Path | None) -> Watched:
        if folder is None:
            return Watched(title, state, None, [], [])
        facts: list[str] = []
        for about in (_questions, _pairs, _step, _score, _tokens, _paid, _to_come):
            try:
                facts += about(folder, self._lines)
            except (UserError, OSError) as error:
                facts.append(f"cannot be read: {error}")
        # Two of them may need the same file.
        return Watched(title, state, folder, [*dict.fromkeys(facts)], [name for name in CHARTS if _chart(folder, name)])

    def routes(self, render: Render) -> list[Route]:
        """The page, and a chart of a run."""

        # Not async: files are read in a thread.
        def page(request: Request) -> Response:
            groups: dict[str, list[Watched]] = {}
            error = ""
            try:
                groups = self.groups()
            except UserError as problem:
                error = str(problem)
            reply = render("watch.html.jinja", here=PATH, groups=groups, error=error)
            if error or any(run.state != "finished" for runs in groups.values() for run in runs):
                reply.headers["Refresh"] = str(REFRESH)
            return reply

        def chart(request: Request) -> Response:
            of, name = (request.query_params.get(key, "") for key in ("of", "name"))
            try:
                groups = self.groups()
            except UserError:
                # The page says why.
                groups = {}
            folders = {str(run.folder): run.folder for runs in groups.values() for run in runs if run.folder}
            drawn = _chart(folders[of], name) if of in folders and name in CHARTS else b""
            return Response(drawn, media_type="image/svg+xml") if drawn else Response("no such run or chart\n", 404)

        return [Route(PATH, page), Route(f"{PATH}/chart.svg", chart)]


class LineCounts:
    """A counter of the lines of growing files; it reads only their new parts."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int]] = {}

    def of(self, path: Path) -> int:
        """The number of whole lines in a file."""
        place, count = self._known.get(path, (0, 0))
        with open(path, "rb") as file:
            if place > file.seek(0, os.SEEK_END):
                # Written anew.
                place, count = 0, 0
            file.seek(place)
            while block := file.read(2**20):
                place += len(block)
                count += block.count(b"\n")
        self._known[path] = place, count
        return count


def _run_folders(above: Path) -> Iterator[Path]:
    """The folders with a record of a run, a folder itself first; those inside a run folder are its own."""
    for root, folders, files in os.walk(above):
        folders.sort()
        if run_record.NAME in files:
            yield Path(root)
        if run_record.NAME in files or len(Path(root).relative_to(above).parts) >= DEPTH:
            folders.clear()


def _done(folder: Path, lines: LineCounts) -> int | None:
    """The number of questions in a run's journal; None where it has none yet."""
    return next((lines.of(path) for name in JOURNALS if (path := folder / name).is_file()), None)


def _questions(folder: Path, lines: LineCounts) -> Iterator[str]:
    done = _done(folder, lines)
    if done is not None:
        try:
            expected = estimated(folder).get("estimate", {}).get("questions")
        except UserError:
            # `_to_come` reports it.
            expected = None
        yield f"{done:,}" + (f" of {expected:,}" if expected else "") + " questions"


def _pairs(folder: Path, lines: LineCounts) -> Iterator[str]:
    if (folder / statistics.NAME).is_file():
        made: Any = statistics.read_statistics(folder, "build it again")
        for name in statistics.COUNTED:
            if name in made:
                yield ", ".join(f"{count:,} {name} in {split}" for split, count in made[name].items())


def _step(folder: Path, lines: LineCounts) -> Iterator[str]:
    if log := newest_log(folder):
        loss = next((entry["loss"] for entry in reversed(log) if "loss" in entry), None)
        yield f"step {log[-1]['step']:,}" + ("" if loss is None else f", loss {loss:.3f}")


def _score(folder: Path, lines: LineCounts) -> Iterator[str]:
    if (path := folder / "metrics.json").is_file():
        scores = read_metrics(path).metrics
        if headline := next((name for name in (*HEADLINE, *scores) if name in scores), None):
            metric = metric_named(headline)
            yield f"{metric.label} {scores[headline].text(metric.decimals)}"


def _tokens(folder: Path, lines: LineCounts) -> Iterator[str]:
    if costs := read_costs(folder / "costs.json"):
        yield f"{costs.total.prompt_tokens:,} + {costs.total.completion_tokens:,} tokens"


def _paid(folder: Path, lines: LineCounts) -> Iterator[str]:
    if (path := folder / SPENT).is_file():
        yield f"{spent_in(path):,.2f} paid"


def _to_come(folder: Path, lines: LineCounts) -> Iterator[str]:
    """The remainder of a dry run's estimate."""
    estimate = estimated(folder).get("estimate")
    if estimate and not (folder / "costs.json").is_file():
        left = max(0.0, 1 - (_done(folder, lines) or 0) / estimate["questions"])
        total = estimate["tokens_in_all"]
        tokens = " + ".join(f"{left * total[name]:,.0f}" for name in ("prompt_tokens", "completion_tokens"))
        money = f", {left * estimate['money']:,.2f}" if "money" in estimate else ""
        yield f"to come, by the estimate: {tokens} tokens{money}"


def _chart(folder: Path, name: str) -> bytes:
    """A chart of a run as SVG; empty where there is nothing to draw, or a fact of the run says that it is damaged."""
    try:
        if name == "scores":
            evaluated = (folder / best_checkpoint.NAME).is_file()
            return scores_curves(folder).encode("utf-8", "replace") if evaluated else b""
        return curves(folder).encode("utf-8", "replace")
    except (UserError, OSError):
        return b""


def _ago(path: Path) -> str:
    """The age of a file, or of the newest file directly in a folder."""
    files = [path, *(path.iterdir() if path.is_dir() else ())]
    seconds = max(0.0, time.time() - max(map(_written, files)))
    for unit, size in (("s", 60), ("min", 60), ("h", 24)):
        if seconds < size:
            return f"{seconds:.0f} {unit} ago"
        seconds /= size
    return f"{seconds:.0f} days ago"


def _written(path: Path) -> float:
    """The time of a file's last change, in seconds since the epoch; 0 if it has just been renamed or removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
