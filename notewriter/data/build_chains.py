"""`notewriter chains`: have a teacher reason and search, and keep its chains for fine-tuning (ReaRAG)."""

from functools import partial
from typing import Annotated, Any, TypedDict

from annotated_types import MinLen

from notewriter.artifacts.rollouts import ChainRollout
from notewriter.data.building import build, load_inputs, read_settings
from notewriter.data.dataset.contents import CHAINS
from notewriter.data.options import ChainsArguments
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.text import tokens
from notewriter.ground.typed import misfit
from notewriter.methods.rearag import ACTIONS, TEACH, TEACH_WITH_GOLD, ReasoningChain, as_observation, as_step, reason
from notewriter.models.client import RequestRefused
from notewriter.rollouts.actions import parse_steps
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout


def main(argv: list[str]) -> None:
    """Make chains; running the command again resumes it."""
    settings = read_settings(CHAINS, argv, prog="notewriter chains", description=__doc__)
    check_index(settings.arguments)
    settings, parts, selection = load_inputs(settings)
    if not settings.arguments.reasoning:
        check_decompositions(selection.questions)
    work = partial(roll_out, arguments=settings.arguments)
    build(CHAINS, settings, parts, selection, work, description="reasoning")


def check_index(arguments: ChainsArguments) -> None:
    """Check that a teacher that searches has an index.

    Raises:
        UserError: it has none.
    """
    if arguments.reasoning and not (arguments.index or arguments.retriever):
        raise UserError("the teacher searches; add --index PATH (notewriter index builds one)")


class Hop(TypedDict):
    """A gold sub-question."""

    question: object
    answer: object


def check_decompositions(questions: list[Question]) -> None:
    """Check that every question comes with its gold sub-questions.

    Raises:
        UserError: one has none, or they are not objects with `question` and `answer`.
    """
    for question in questions:
        if misfit(question.metadata.get("decomposition"), Annotated[list[Hop], MinLen(1)]):
            raise UserError(
                f"reasoning: false needs the gold sub-questions, and question {question.id!r} has none "
                "(metadata: decomposition); use musique, or leave reasoning true"
            )


async def roll_out(question: Question, resources: Resources, arguments: ChainsArguments) -> dict[str, Any]:
    """Have the teacher write a chain for one question.

    Returns:
        A `ChainRollout`.
    """
    rollout = Rollout(question, "rearag", resources)
    chain = ReasoningChain()
    try:
        if arguments.reasoning:
            chain = await reason(
                question.question,
                rollout,
                TEACH,
                top_k=arguments.top_k,
                max_step=arguments.max_step,
                retries=arguments.retries,
            )
        else:
            chain = await write_at_once(question, rollout)
    except RequestRefused as refusal:
        rollout.trace.error = str(refusal)
    rollout.trace.answer = chain.answer or ""
    record: ChainRollout = {"question_id": question.id, "turns": chain.turns, "trace": rollout.trace.to_dict()}
    return dict(record)


async def write_at_once(question: Question, rollout: Rollout) -> ReasoningChain:
    """A chain in one reply, by a teacher that knows sub-questions, evidence and answer (ReaRAG, Algorithm 3)."""
    reply = await rollout.generate(
        TEACH_WITH_GOLD,
        question=question.question,
        answer=next((each for each in question.answers if tokens(each)), question.answers[0]),
        decomposition=question.metadata["decomposition"],
        evidence=question.supporting_facts,
    )
    chain = ReasoningChain()
    steps = parse_steps(reply, ACTIONS, "finish")
    if steps is None:
        rollout.count("malformed")
        return chain
    for number, (action, observation) in enumerate(steps, start=1):
        rollout.count("steps")
        chain.add("assistant", as_step(action, number))
        if action.name == "finish":
            chain.answer = action.argument
            return chain
        if action.argument in chain.searches:
            rollout.count("repeated_queries")
        chain.searches[action.argument] = observation
        chain.add("user", as_observation(observation, number))
    rollout.count("unfinished")
    return chain
