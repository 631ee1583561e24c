"""The losses and their options are those of the installed TRL."""

import ast
import inspect
import textwrap

import pytest
from trl import DPOTrainer

from notewriter.training.run.losses import LOSSES, NEEDS

TRL_LOSSES = [name for name, loss in LOSSES.items() if loss.is_of_trl]


def test_the_losses_are_the_branches_of_trls_loss() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(DPOTrainer._compute_loss)))
    branches = [
        node.comparators[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and ast.unparse(node.left) == "loss_type"
        and isinstance(node.comparators[0], ast.Constant)
    ]
    assert sorted(branches) == sorted(TRL_LOSSES)


@pytest.mark.parametrize("loss", TRL_LOSSES)
def test_label_smoothing_is_refused_where_trls_loss_does_not_read_it(loss: str) -> None:
    source = inspect.getsource(DPOTrainer._compute_loss)
    branch = source.split(f'loss_type == "{loss}"')[1].split("elif loss_type ==")[0]
    assert ("label_smoothing" in branch) == LOSSES[loss].reads("label_smoothing")


def test_every_option_of_a_loss_is_refused_with_the_others() -> None:
    assert all(loss in NEEDS[option][1] for loss in LOSSES for option in LOSSES[loss].options)
