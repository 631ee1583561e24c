"""What the fields of options say of them, and what follows from it."""

from dataclasses import dataclass, field, fields

from notewriter.ground.options import defaults, differences, marked, names_of, option, where_set, with_effect


@dataclass
class Run:
    question: str = ""
    output_dir: str = field(default="runs", metadata={"effect": False, "of": "output"})
    shards: dict[str, int] = field(default_factory=dict, metadata={"effect": where_set})
    batch: int = field(default=1, metadata={"effect": "total"})
    total: int | None = None


@dataclass
class Model:
    model: str = field(default="a", metadata={"of": "model"})
    address: str = field(default="", metadata={"effect": lambda value: bool(value), "of": "model"})
    key: str = field(default="", metadata={"secret": True})


def test_an_option_is_a_field_with_a_default_its_help_and_further_metadata():
    @dataclass
    class Arguments:
        rows: int = option(3, "how many", effect=False)

    assert Arguments().rows == 3
    assert fields(Arguments)[0].metadata == {"help": "how many", "effect": False}


def test_options_are_named_by_what_their_fields_say():
    assert names_of(Run, effect=False) == {"output_dir"}
    assert names_of(Run, Model, of="model") == {"model", "address"}
    assert names_of(Run, Model, secret=True) == {"key"}
    assert names_of(Run, of="run") == {"question", "shards", "batch", "total"}


def test_a_setting_without_effect_is_no_part_of_what_a_run_is():
    assert with_effect({"question": "q", "output_dir": "x"}, Run) == {"question": "q"}


def test_a_function_gives_what_of_a_value_has_an_effect():
    assert with_effect({"address": "http://a"}, Model) == {"address": True}
    assert with_effect({"shards": {}}, Run) == {}
    assert with_effect({"shards": {"a": 1}}, Run) == {"shards": {"a": 1}}


def test_a_setting_may_have_an_effect_only_where_another_is_not_set():
    assert with_effect({"batch": 2, "total": 8}, Run) == {"total": 8}
    assert with_effect({"batch": 2, "total": None}, Run) == {"batch": 2, "total": None}


def test_a_setting_that_no_field_describes_counts():
    assert with_effect({"other": 1}, Run) == {"other": 1}


def test_runs_differ_in_settings_with_an_effect():
    before = {"question": "q", "output_dir": "x", "model": "a"}
    now = before | {"output_dir": "y", "model": "b"}
    assert differences(with_effect(before, Run, Model), with_effect(now, Run, Model), {}) == {"model": ("a", "b")}


def test_an_option_newer_than_a_run_makes_no_difference_at_its_default():
    usual = defaults(Run, Model)
    assert differences({"question": "q"}, {"question": "q", "model": "a"}, usual) == {}
    assert differences({"question": "q"}, {"question": "q", "model": "b"}, usual) == {"model": (None, "b")}


def test_inherited_fields_are_described_without_changing_the_library_that_has_them():
    @dataclass
    class Mine(Model):
        pass

    marked(Mine, ["model"], effect=False)
    assert names_of(Mine, effect=False) == {"model"}
    assert names_of(Model, effect=False) == frozenset()
    assert [each.name for each in fields(Mine)] == [each.name for each in fields(Model)]
