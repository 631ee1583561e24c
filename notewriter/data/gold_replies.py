"""`notewriter gold`: replies from the gold evidence as conversations for SFT, a warm start before preference learning.

The methods of `gold_stages` are run as for `notewriter pairs`. At these stages the reply is written from the gold
evidence, without sampling: the supporting facts that the passages contain, a query for the first one that is missing,
the gold answer. Where the evidence cannot reply (no supporting passage was found, or an answer that nothing in the
prompt tells), the model replies and nothing is trained. Each reply becomes a conversation, the prompt as at inference
and the reply as the assistant's turn, for `training/train_sft.py --data`.
"""

from functools import partial

from notewriter.data.building import build, load_inputs, read_settings
from notewriter.data.dataset.contents import GOLD
from notewriter.data.gold_rollout import roll_out
from notewriter.data.recipe import read_gold_recipe
from notewriter.data.sampling import pairs_by_stage


def main(argv: list[str]) -> None:
    """Write conversations; running the command again resumes it."""
    settings = read_settings(GOLD, argv, prog="notewriter gold", description=__doc__)
    recipe = read_gold_recipe(settings.arguments)
    parts, selection = load_inputs(settings)
    work = partial(roll_out, recipe=recipe)
    build(GOLD, settings, parts, selection, work, description="writing", count=pairs_by_stage)
