"""The options of training are TRL's, read as its own parser reads them."""

import argparse
import copy
import types

import pytest
from trl import DPOConfig, ModelConfig, TrlParser

from notewriter.ground.options import DEFAULTS
from notewriter.ground.parser import parser_of
from notewriter.training.options import DPOArguments, DPOConfiguration, SFTArguments, SFTConfiguration

WORDS = ("1", "-1", "0.5", "true", "none", "no", "bfloat16", "sigmoid", "adamw_torch", "linear", "x")


class Trl(TrlParser):
    """TRL's parser, which would pass all metadata of a field to argparse."""

    @staticmethod
    def _parse_dataclass_field(parser, field):
        field = copy.copy(field)
        field.metadata = types.MappingProxyType({k: v for k, v in field.metadata.items() if k not in DEFAULTS})
        TrlParser._parse_dataclass_field(parser, field)


def described(action):
    return {
        "kind": type(action),
        "choices": list(action.choices) if action.choices else None,
        **{name: getattr(action, name) for name in ("dest", "nargs", "const", "default", "required", "help")},
    }


def converted(action, word):
    try:
        return action.type(word) if action.type else word
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return "refused"


@pytest.mark.parametrize(
    "kinds", [(DPOArguments, DPOConfiguration, ModelConfig), (SFTArguments, SFTConfiguration, ModelConfig)]
)
def test_every_option_is_read_as_trl_reads_it(kinds):
    ours = {tuple(action.option_strings): action for action in parser_of(kinds)._actions}
    theirs = {tuple(action.option_strings): action for action in Trl(kinds)._actions}
    own = [("--config",), ("--plugins",)]
    assert [*theirs, *own] == [*ours]
    for spelling, action in theirs.items():
        if action.dest == "gradient_checkpointing":
            # TRL's is a switch; with `auto` it stays one, which may stand alone and takes what TRL's takes.
            switch = next(each for each in TrlParser(DPOConfig)._actions if each.dest == action.dest)
            assert described(ours[spelling]) == described(action) | {"nargs": "?", "const": True}
            words = [word for word in WORDS if converted(switch, word) != "refused"]
            assert [converted(ours[spelling], word) for word in words] == [converted(switch, word) for word in words]
            continue
        # The help of a switch has `--x false`, and so need not have `--no_x`.
        told = {"help": argparse.SUPPRESS} if isinstance(action, argparse._StoreFalseAction) else {}
        assert described(ours[spelling]) == described(action) | told, spelling
        # Mappings are JSON in ours; theirs would call `dict` on the text.
        if getattr(action.type, "__name__", "") not in ("dict", "ParallelismConfig"):
            for word in WORDS:
                assert converted(ours[spelling], word) == converted(action, word), (spelling, word)
