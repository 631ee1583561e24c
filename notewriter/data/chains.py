"""`notewriter chains`: have a teacher reason and search, and keep its chains for fine-tuning (ReaRAG)."""

from functools import partial

from notewriter.data.building import build, load_inputs, read_settings
from notewriter.data.dataset.contents import CHAINS
from notewriter.data.reasoning import check_decompositions, check_index, roll_out


def main(argv: list[str]) -> None:
    """Make chains; running the command again resumes it."""
    settings = read_settings(CHAINS, argv, prog="notewriter chains", description=__doc__)
    check_index(settings.arguments)
    parts, selection = load_inputs(settings)
    if not settings.arguments.reasoning:
        check_decompositions(selection.questions)
    work = partial(roll_out, arguments=settings.arguments)
    build(CHAINS, settings, parts, selection, work, description="reasoning")
