"""Blocks of a pipeline file: stages that are repeated, over values or in rounds of training, and stages of other files.

A file is expanded when it is read: what runs it, here or on Slurm, sees plain stages.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground.config import check_mapping, read_mapping
from notewriter.ground.errors import UserError
from notewriter.ground.typed import misfit

PROJECT = Path(__file__).resolve().parents[3]
"""The folder of configs/, training/ and slurm/; `$project` in a pipeline file."""

MAX_STAGES = 1_000
"""Each is a job of a cluster, whose queue takes 10,000 unless the site has raised MaxJobCount."""

Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True)
class RoundScore:
    """The score that has to rise from round to round: `metric` in metrics.json of `run`, which has `$round` in it."""

    metric: Text
    run: Text


@dataclass(frozen=True)
class Each:
    """Stages repeated for each of several sets of variables."""

    each: Annotated[list[dict[str, str | int | float]], MinLen(1)]
    stages: Annotated[list[dict[str, Any]], MinLen(1)]


@dataclass(frozen=True)
class Rounds:
    """Stages repeated in rounds of training, each from the model of the round before.

    Attributes:
        rounds: how many, at most. `$round` is 1, 2, ...
        start: the model of the first round; `$previous` there.
        model: the model that a round trains, with `$round` in it; `$previous` in the round after.
        earlier: path -> number, with `$round` in the path; `$earlier` is a JSON object of these for all earlier
            rounds, such as the pairs to mix in and their share.
        while_rising: end the rounds after the first that does not raise this score above the best before it. Round 0
            is the start, if there is such a run.
    """

    rounds: Annotated[int, Interval(ge=1)]
    start: Text
    model: Text
    stages: Annotated[list[dict[str, Any]], MinLen(1)]
    earlier: dict[str, float] = field(default_factory=dict)
    while_rising: RoundScore | None = None


@dataclass(frozen=True)
class Include:
    """The stages of another file, whose variables have their values there unless this file has others."""

    include: Text


BLOCKS = {"each": Each, "rounds": Rounds, "include": Include}
"""The kinds of blocks, by the key that tells them from a stage."""


def expand(content: dict[str, Any], path: Path, place: str = "", includers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The content of a pipeline file with plain stages in place of blocks, and what included files add.

    These are their variables, and their results unless the file has its own.

    `place` names the block that the content is from, `includers` are the files through which `path` is included.

    Raises:
        UserError: a block lacks a key, or has an unknown one or a value of the wrong type, a file includes itself, or
            there are more than `MAX_STAGES`.
    """
    variables = content.get("variables", {})
    stages: list[Any] = []
    for number, entry in enumerate(content["stages"]):
        here = f"{place or path}: stages[{number}]"
        kind = next((each for key, each in BLOCKS.items() if isinstance(entry, dict) and key in entry), None)
        if kind is None:
            stages.append(entry)
            continue
        check_mapping(entry, kind, here)
        if kind is Include:
            other = path.parent / filled(entry["include"], {"project": str(PROJECT)})
            chain = (*includers, path.resolve())
            if other.resolve() in chain:
                raise UserError(f"{here}: {other} includes itself; remove the include")
            inner = expand(_read(other, path), other, includers=chain)
            variables = inner.get("variables", {}) | variables
            content = {key: inner[key] for key in ("results",) if key in inner} | content
            stages += inner["stages"]
            continue
        repetitions = len(entry["each"]) if kind is Each else entry["rounds"]
        for done, (values, added) in enumerate(_each(entry) if kind is Each else _rounds(entry)):
            block = {"stages": [filled(stage, values) for stage in entry["stages"]]}
            repeated = expand(block, path, here, includers)
            # The first tells how many there will be.
            _check_number(len(stages) + (repetitions - done) * max(len(repeated["stages"]), 1), here)
            variables = repeated.get("variables", {}) | variables
            stages += [stage | added if isinstance(stage, dict) else stage for stage in repeated["stages"]]
    _check_number(len(stages), place or str(path))
    return content | {"stages": stages} | ({"variables": variables} if variables else {})


def _check_number(stages: int, place: str) -> None:
    if stages > MAX_STAGES:
        raise UserError(
            f"{place}: comes to {stages:,} stages, more than {MAX_STAGES:,}; lower rounds, list fewer values in each, "
            "or use several pipelines"
        )


def _read(path: Path, includer: Path) -> dict[str, Any]:
    _, content = read_mapping(path, f"{includer} includes it")
    if misfit(content, dict[str, Any]) or not isinstance(content.get("stages"), list):
        raise UserError(f"{path}: has no list of stages; {includer} includes them")
    if not isinstance(content.get("variables", {}), dict):
        raise UserError(f"{path}: variables must be a mapping, name: value; {includer} includes them")
    return content


Repetition = tuple[dict[str, str], dict[str, Any]]
"""The variables of a repetition, and the keys that its stages get."""


def _each(block: Mapping[str, Any]) -> Iterator[Repetition]:
    for values in block["each"]:
        yield {name: str(value) for name, value in values.items()}, {}


def _rounds(block: Mapping[str, Any]) -> Iterator[Repetition]:
    def of(text: str, number: int) -> str:
        return str(filled(text, {"round": str(number)}))

    score = block.get("while_rising")
    for number in range(1, block["rounds"] + 1):
        before = range(1, number)
        previous = of(block["model"], number - 1) if before else block["start"]
        shares = {of(path, each): share for each in before for path, share in block.get("earlier", {}).items()}
        added: dict[str, Any] = {"earlier": shares}
        if score:
            runs = [of(score["run"], each) for each in (0, *before)]
            added["while_rising"] = {"metric": score["metric"], "runs": runs}
        yield {"round": str(number), "previous": previous}, added


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """A value of a file with these variables replaced in all its texts; other variables are left."""
    if isinstance(value, str):
        return re.sub(
            r"\$\$|\$(?:(\w+)|\{(\w+)\})", lambda found: values.get(found[1] or found[2] or "", found[0]), value
        )
    if isinstance(value, list):
        return [filled(each, values) for each in value]
    if isinstance(value, dict):
        return {filled(key, values): filled(each, values) for key, each in value.items()}
    return value
