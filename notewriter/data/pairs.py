"""`notewriter pairs`: make preference pairs by running methods in the sampling rollout (DNAlign)."""

from functools import partial
from pathlib import Path

from notewriter.data.building import Work, build, load_inputs, read_settings
from notewriter.data.dataset.contents import PAIRS
from notewriter.data.dataset.pairs import read_quotas
from notewriter.data.recipe import check_models, read_recipe
from notewriter.data.sampling import pairs_by_stage, roll_out, roll_out_open_stages


def main(argv: list[str]) -> None:
    """Make pairs; running the command again resumes it."""
    settings = read_settings(PAIRS, argv, prog="notewriter pairs", description=__doc__)
    recipe = read_recipe(settings.arguments)
    check_models(recipe, settings.models)
    parts, selection = load_inputs(settings)

    def begin(journal: Path) -> tuple[int, Work]:
        quotas = read_quotas(settings.arguments, selection, journal)
        return quotas.to_do(), partial(roll_out_open_stages, recipe=recipe, quotas=quotas)

    work = partial(roll_out, recipe=recipe)
    build(PAIRS, settings, parts, selection, work, description="rolling out", count=pairs_by_stage, begin=begin)
