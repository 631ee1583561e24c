"""stats.json beside a dataset: the yield of its construction, the reasons for drops, and the costs."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from notewriter.artifacts.reading import check_present, read_json, write_json
from notewriter.ground import typed
from notewriter.ground.errors import UserError

PAIRS_STATISTICS_SCHEMA = "notewriter/pairs-stats/1"
CHAINS_STATISTICS_SCHEMA = "notewriter/chains-stats/1"
GOLD_STATISTICS_SCHEMA = "notewriter/gold-stats/1"

NAME = "stats.json"

OF_NOTHING = "stats_of_nothing.json"
"""The name of stats.json where nothing was made: its presence marks a pipeline's stage as finished."""

COUNTED = ("pairs", "chains", "conversations")
"""The keys under which the statistics of each kind of dataset have its rows per split."""

Tokens = dict[str, dict[str, dict[str, int]]]
"""Stage -> role -> calls, prompt_tokens and completion_tokens."""


BEYOND_QUOTA = "beyond the quota"
"""The reason for leaving out a pair beyond its stage's quota; it counts as yielded."""


class StageYield(TypedDict):
    """The pairs of a stage, and the number of prompts without one, by reason."""

    pairs: int
    dropped: dict[str, int]


class AgreementRate(TypedDict):
    """The number of a judge's comparisons in two orders, and of those with one outcome in both; `rate` is the share."""

    asked: int
    agreed: int
    rate: float


class Shortcut(TypedDict):
    """The number of pairs with a feature higher on the chosen and on the rejected side, and the share it predicts."""

    chosen_higher: int
    rejected_higher: int
    predicts: float


class Shortcuts(TypedDict):
    """The shares of a stage's pairs whose chosen side is predicted by something other than its content.

    `features` are by name (`notewriter.rollouts.shortcuts`), those that predict most first; `together` is the share of
    pairs of held-out questions that all but those about content predict, None for few pairs.
    """

    pairs: int
    features: dict[str, Shortcut]
    together: float | None


class Overlap(TypedDict):
    """The overlap of the training questions with an evaluation file.

    `questions` are those of the file; `evaluation_questions_met` counts those of them that led to a drop. A training
    question that overlaps with several files counts for one of them.
    """

    questions: int
    training_questions_dropped: int
    evaluation_questions_met: int


class Hygiene(TypedDict):
    """Questions left out, by reason, and the overlap with each evaluation file."""

    questions_dropped: dict[str, int]
    evaluation_files: dict[str, Overlap]


class UsageTotals(TypedDict):
    """Calls and tokens by stage and role, and their sums."""

    tokens: Tokens
    tokens_in_all: dict[str, int]


_Yield = TypedDict("_Yield", {"yield": dict[str, float | None]})


class PairsTotals(UsageTotals, _Yield):
    """Sums over the rolled out questions.

    `questions_rolled_out` is below the number of questions if quotas ended the run. `stages` has the key `METHOD/*`
    for what ended a whole method. `yield` is the share of a stage's prompts that gave a pair, those beyond a quota
    included; None if it was not reached. `agreement` covers the prompts whose judge was asked in two orders and could
    be parsed both times. `unreadable_judge_replies` count also if other replies made a pair. `tokens` count every
    distinct call of a question once: candidates, judges, and answers that candidates were rolled forward to.
    """

    questions_rolled_out: int
    stages: dict[str, StageYield]
    agreement: dict[str, AgreementRate]
    unreadable_judge_replies: dict[str, int]


class ChainsTotals(UsageTotals):
    """Sums over the rolled out questions.

    `steps_of_the_kept` maps a number of steps to the number of kept chains; `mean_f1_of_the_kept`, in [0, 1], is None
    without any. `events` are counted over all chains, kept and dropped: the rate of invalid actions is
    invalid_actions / steps.
    """

    dropped: dict[str, int]
    steps_of_the_kept: dict[str, int]
    mean_f1_of_the_kept: float | None
    events: dict[str, int]


class GoldYield(TypedDict):
    """The conversations of a stage, and the number of prompts without one, by reason."""

    conversations: int
    dropped: dict[str, int]


class GoldTotals(UsageTotals):
    """Sums over the rolled out questions; `stages` has the key `METHOD/*` for what ended a whole method."""

    stages: dict[str, GoldYield]


class OverlapCheck(TypedDict):
    """The overlap of a finished dataset with an evaluation: its questions, those of the dataset, and which overlap.

    `overlapping` counts the dataset's questions by reason. `notewriter overlap` adds these to stats.json as `overlap`,
    by evaluation file or run; building the dataset again removes them.
    """

    questions: int
    training_questions: int
    overlapping: dict[str, int]


class _Statistics(TypedDict):
    """The statistics common to all datasets, with the dry run's estimate and the checks of overlap, if any."""

    schema: str
    questions: int
    hygiene: Hygiene
    config_hash: str
    version: str
    estimate: NotRequired[dict[str, Any]]
    overlap: NotRequired[dict[str, OverlapCheck]]


class PairsStatistics(_Statistics, PairsTotals):
    """The statistics of a dataset of pairs.

    `pairs` are the rows per split, `judges` maps a stage to its judges, `shortcuts` a stage to the features other than
    content that separate the sides of its pairs. `quotas`, where there were some, are the training pairs to keep per
    stage.
    """

    pairs: dict[str, int]
    judges: dict[str, str]
    quotas: NotRequired[dict[str, int]]
    shortcuts: NotRequired[dict[str, Shortcuts]]


class ChainsStatistics(_Statistics, ChainsTotals):
    """The statistics of a dataset of chains: `chains` are the rows per split."""

    chains: dict[str, int]


class GoldStatistics(_Statistics, GoldTotals):
    """The statistics of conversations from the gold evidence: `conversations` are the rows per split."""

    conversations: dict[str, int]


STATISTICS = {
    PAIRS_STATISTICS_SCHEMA: PairsStatistics,
    CHAINS_STATISTICS_SCHEMA: ChainsStatistics,
    GOLD_STATISTICS_SCHEMA: GoldStatistics,
}


def read_statistics(folder: Path, remedy: str) -> Any:
    """The statistics in a folder of training data.

    Raises:
        UserError: it has none, or they are damaged.
    """
    check_present(folder / NAME)
    if (record := own_statistics(folder, remedy)) is None:
        raise UserError(f"{folder / NAME}: is not the statistics of training data; {remedy}")
    return record


def own_statistics(folder: Path, remedy: str = "restore the file") -> Any:
    """The statistics in a folder; None where it has none, or a file of that name that is another program's.

    Raises:
        UserError: they are damaged.
    """
    path = folder / NAME
    record: Any = read_json(path, remedy) if path.is_file() else None
    kind: Any = STATISTICS.get(str(record.get("schema"))) if isinstance(record, dict) else None
    return kind and typed.read(record, kind, str(path), remedy)


def write_statistics(folder: Path, statistics: PairsStatistics | ChainsStatistics | GoldStatistics) -> None:
    """Write stats.json into a folder.

    Raises:
        UserError: it cannot be written.
    """
    write_json(folder / NAME, statistics)
