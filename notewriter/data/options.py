"""The options of `notewriter pairs`, `gold` and `chains`."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.data.gold_evidence import WRITERS
from notewriter.data.judges import JUDGES
from notewriter.data.judges.case import ComparisonArguments
from notewriter.datasets.questions import QuestionArguments
from notewriter.evaluation.metrics import FAMILIES
from notewriter.ground.options import names_in, option
from notewriter.methods import MAX_PASSAGES, MAX_STEPS, stages
from notewriter.methods.rearag import RETRIES

_GOLD_STAGES = ", ".join(name for name, stage in stages().items() if stage.kind in WRITERS and not stage.scored)


@dataclass(kw_only=True)
class SelectionArguments(QuestionArguments):
    """The options shared by the commands that make training data."""

    eval_files: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "card": False,
            "names": names_in,
            "help": "evaluation files, path -> dataset, e.g. {data/2wiki/dev.json: 2wikimultihopqa}; training "
            "questions that overlap with them are left out and counted",
        },
    )
    dev_share: Annotated[float, Interval(ge=0, lt=1)] = option(
        0.1, "share of the questions whose rows go to dev.parquet"
    )


@dataclass(kw_only=True)
class RolloutArguments(SelectionArguments):
    """The options for running the methods of the trained stages."""

    method_options: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"help": "method -> its options, e.g. {deepnote: {max_step: 1, max_failure: 1}}"}
    )
    top_k_range: list[Annotated[int, Interval(ge=1, le=MAX_PASSAGES)]] = field(
        default_factory=lambda: [3, 9],
        metadata={
            "help": "[least, most] passages per retrieval, drawn per question so that prompts vary in length, where "
            "method_options give no top_k; not for methods that read everything (their own top_k is 1,000 or more)"
        },
    )
    gold_note_words: Annotated[int, Interval(ge=1)] | None = option(
        None,
        "number of words up to which a first note of the gold evidence is filled with whole first sentences of the "
        "passages, in the order of the control lead; null: the evidence alone",
    )


@dataclass(kw_only=True)
class GoldArguments(RolloutArguments):
    """The stages whose replies are written from the gold evidence."""

    gold_stages: list[str] = field(
        metadata={
            "help": "stages to write conversations for; their methods are run, and the model plays the other stages. "
            f"Possible: {_GOLD_STAGES}"
        },
    )
    balanced_stages: list[str] = field(
        default_factory=list,
        metadata={
            "help": "gold stages with as many replies of one kind as of the other (notes on a document or none; a "
            "note that is better or not): the surplus of the more frequent kind is left out evenly"
        },
    )


@dataclass(kw_only=True)
class PairsArguments(ComparisonArguments, RolloutArguments):
    """The options of `notewriter pairs`: questions and methods, trained stages, and their judges."""

    stages: dict[str, Any] = field(
        metadata={
            "card": False,
            "names": names_in,
            "help": "stage -> judge, or a list of judges, each of which breaks the ties of those before it, e.g. "
            "{deepnote/init_note: [outcome, llm], vanilla/answer: metric}; runs the methods that the stages belong to. "
            f"Judges: {', '.join(JUDGES)}",
            "plugins": JUDGES,
        },
    )
    temperatures: list[float] = field(
        default_factory=lambda: [0.1, 0.5, 0.9], metadata={"help": "one candidate for each temperature x top_p"}
    )
    top_ps: list[float] = field(default_factory=lambda: [0.1, 0.5, 0.9], metadata={"help": "see temperatures"})
    gold_stages: list[str] = field(
        default_factory=list,
        metadata={
            "help": "stages where a text written from the gold evidence joins the candidates, marked in the pair; for "
            f"weak teachers. Possible at: {_GOLD_STAGES}"
        },
    )
    quotas: dict[str, Annotated[int, Interval(ge=1)]] = field(
        default_factory=dict,
        metadata={
            "help": "stage -> maximum number of training pairs, taken from the first questions; dev gets its share "
            "(dev_share) in addition. The run ends when every stage has its pairs"
        },
    )
    sample_full_stages: bool = option(
        True,
        "still sample and judge a stage that has its quota while a later stage of its method needs pairs, "
        "which then continues from the preferred candidate (DNAlign); false saves the calls",
    )
    quota_block: Annotated[int, Interval(ge=1)] = option(
        128,
        "quotas are checked between blocks of this many questions, which makes the pairs reproducible; "
        "use at least half of concurrency to keep the server busy",
    )
    family: str | None = option(
        None,
        f"metric family that scores answers; default: the dataset's. {', '.join(FAMILIES)}",
        plugins=FAMILIES,
        names=names_in,
    )


@dataclass(kw_only=True)
class ChainsArguments(SelectionArguments):
    """The options of `notewriter chains`: the teacher's reasoning, and the filter of its chains."""

    reasoning: bool = option(
        True,
        "false: the teacher gets the gold sub-questions and the gold answer and writes the whole chain in "
        "one reply, without searching (ReaRAG, Algorithm 3); needs a dataset with sub-questions, such as musique",
    )
    top_k: Annotated[int, Interval(ge=1, le=MAX_PASSAGES)] = option(3, "passages per search (the authors' code: 3)")
    max_step: Annotated[int, Interval(ge=1, le=MAX_STEPS)] = option(
        25, "maximum number of steps per chain (the authors' code: 25)"
    )
    retries: Annotated[int, Interval(ge=0, le=MAX_STEPS)] = option(
        RETRIES,
        "how often in one chain a reply without a parsable action is sampled again before the chain is dropped (the "
        "authors' code: 20); at a temperature near 0 the samples hardly differ",
    )
    min_searches: Annotated[int, Interval(ge=0)] = option(
        1, "drop chains with fewer searches: they answer from the teacher's memory"
    )
