"""A recipe is read from options, which stay as they were given."""

import dataclasses

from notewriter.data.options import PairsArguments
from notewriter.data.recipe import read_recipe


def test_the_dataset_says_what_scores_where_the_options_do_not() -> None:
    arguments = PairsArguments(
        dataset="hotpotqa", output_dir="pairs", index="index", stages={"deepnote/init_note": ["outcome"]}
    )
    given = dataclasses.asdict(arguments)

    recipe = read_recipe(arguments)

    assert recipe.rules.family == "hotpotqa"
    assert dataclasses.asdict(arguments) == given
