"""`notewriter shortcuts`: one HTML page about what separates chosen from rejected beside what they say.

DPO learns whatever tells the two sides apart. If the chosen side is nearly always the longer one, or the rejected side
is nearly always cut, that is what it learns. For each stage and each feature of a text (length, form, words copied from
the prompt, ...) the page shows in how many pairs the chosen side has more of it, and how well the feature alone names
the chosen side of pairs.
"""

import logging
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from notewriter.artifacts.pairs import SIDES, Pair, margin, read_pairs
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.shortcuts import (
    FEATURES,
    WARNING,
    Separation,
    Side,
    differences,
    separations,
    sides,
    warning,
)
from notewriter.data.dataset.splits import split_files
from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.ground.config import parse
from notewriter.pages import write_page

logger = logging.getLogger(__name__)

OPENINGS = 8
"""First words shown for each side."""


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


@dataclass
class Measures:
    """What is measured of a stage's pairs: a row a pair."""

    differences: list[list[float]] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    values: dict[str, list[list[float]]] = field(default_factory=lambda: {side: [] for side in SIDES})
    openings: dict[str, Counter[str]] = field(default_factory=lambda: {side: Counter() for side in SIDES})
    sources: dict[str, Counter[str]] = field(default_factory=lambda: {side: Counter() for side in SIDES})
    margins: list[float] = field(default_factory=list)

    def add(self, pair: Pair, answers: Sequence[str]) -> None:
        """Measure a pair; `answers` are its question's gold answers, if known."""
        both = sides(pair, answers)
        self.differences.append(differences(*both))
        self.questions.append(pair["question_id"])
        for name, side, source in zip(
            SIDES, both, (pair.get("chosen_source"), pair.get("rejected_source")), strict=True
        ):
            self.openings[name][" ".join(side.text.split()[:2])] += 1
            self.sources[name][source["kind"] if source else "unknown"] += 1
            self.values[name].append(_values(side))
        if (difference := margin(pair)) is not None:
            self.margins.append(difference)


def _values(side: Side) -> list[float]:
    return [float("nan") if (value := feature.value(side)) is None else value for feature in FEATURES]


def write_shortcuts(output: Path, folder: Path) -> list[str]:
    """Write the page about a folder of pairs, over both splits; returns a warning per stage that has a shortcut.

    Gold answers are those of the questions that the folder's configuration names, if they are still there.

    Raises:
        UserError: the folder has no train.parquet, a file does not contain pairs, or the page cannot be written.
    """
    stages = measure(folder)
    write_page(
        output,
        Path(__file__).with_name("shortcuts_page.html.jinja"),
        {},
        title=str(folder),
        strong=WARNING,
        stages=[_shown(name, stage) for name, stage in sorted(stages.items())],
    )
    return [line for name, stage in sorted(stages.items()) if (line := warning(name, stage.differences))]


def measure(folder: Path) -> dict[str, Measures]:
    """Every stage of a folder of pairs.

    Raises:
        UserError: the folder has no train.parquet, or a file does not contain pairs.
    """
    answers = _answers(folder)
    stages: dict[str, Measures] = {}
    for pair in tqdm(_pairs(folder), desc="measuring", unit=" pairs"):
        stages.setdefault(pair["stage"], Measures()).add(pair, answers.get(pair["question_id"], ()))
    return stages


def _pairs(folder: Path) -> Iterator[Pair]:
    for path in split_files(folder):
        yield from read_pairs(path)


def _answers(folder: Path) -> Mapping[str, Sequence[str]]:
    """Question id -> its gold answers; empty where the questions are not at hand."""
    if not (folder / CONFIG).is_file():
        return {}
    config = read_config(folder)
    path, dataset = config.get("path"), config.get("dataset")
    if not path or not isinstance(dataset, str) or dataset not in BENCHMARKS or not Path(path).exists():
        return {}
    return {question.id: question.answers for question in load_questions(dataset, path)}


def _shown(name: str, stage: Measures) -> dict[str, object]:
    """What the template shows of a stage; the features that predict most come first."""
    separated = list(zip(range(len(FEATURES)), FEATURES, separations(stage.differences), strict=True))
    rows = [
        {
            "feature": feature,
            "separation": separation,
            "plot": _plot(separation),
            **{side: _median([row[place] for row in stage.values[side]]) for side in SIDES},
        }
        for place, feature, separation in sorted(separated, key=lambda each: -each[2].predicts)
        if separation.higher or separation.lower
    ]
    return {
        "name": name,
        "pairs": len(stage.differences),
        "questions": len(set(stage.questions)),
        "rows": rows,
        "constant": [feature.name for _, feature, each in separated if not (each.higher or each.lower)],
        "sources": {side: counts.most_common() for side, counts in stage.sources.items()},
        "openings": {side: counts.most_common(OPENINGS) for side, counts in stage.openings.items()},
        "margin": _median(stage.margins),
        "warning": warning(name, stage.differences),
    }


def _median(values: Sequence[float]) -> float | None:
    numbers = [value for value in values if value == value]
    return statistics.median(numbers) if numbers else None


def _plot(separation: Separation) -> dict[str, float]:
    """Positions on an axis from 0 to 1 that is 240 units wide."""
    low, high = separation.interval
    return {"share": round(240 * separation.share, 1), "low": round(240 * low, 1), "high": round(240 * high, 1)}
