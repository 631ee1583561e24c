"""Reading YAML: what its aliases stand for, values that contain themselves, and numbers are bounded."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from notewriter.ground.errors import UserError
from notewriter.ground.yaml_files import check_mapping, read_mapping


@pytest.fixture
def read(tmp_path: Path):
    def read_text(text: str):
        (tmp_path / "run.yaml").write_text(text)
        return read_mapping(tmp_path / "run.yaml")[1]

    return read_text


def test_aliases_and_merged_mappings_repeat_no_key(read):
    assert read("path: x\noptions: {a: &a {b: 1}, c: *a, d: {<<: *a, b: 2}}\n")["options"] == {
        "a": {"b": 1},
        "c": {"b": 1},
        "d": {"b": 2},
    }


def aliases(lines: int, value: str) -> str:
    """Options in which each line names the line before it six times."""
    rows = [f"  a{each}: &a{each} {value.format(', '.join([f'*a{each - 1}'] * 6))}" for each in range(1, lines + 1)]
    return "\n".join(["path: x", "options:", "  a0: &a0 [x, y]", *rows, ""])


@pytest.mark.parametrize("value", ["[{}]", "{{b: [{}]}}", "{{a: [{}], <<: {{c: 1}}}}"])
@pytest.mark.parametrize("lines", [8, 600])
def test_what_aliases_stand_for_is_bounded_where_yaml_is_read(read, lines, value):
    """Six hundred lines stand for more values than there are atoms on earth; they are counted, not made."""
    start = time.process_time()
    with pytest.raises(UserError, match=r"run\.yaml: is not YAML \(its aliases \(\*name\) make .* characters of"):
        read(aliases(lines, value))
    assert time.process_time() - start < 2
    assert read(aliases(4, value))["options"]["a1"]


def test_a_long_text_that_many_aliases_name_is_bounded_too(read):
    names = ", ".join(["*a"] * 2000)
    with pytest.raises(UserError, match="its aliases"):
        read(f"path: &a {'x' * 1000}\nnames: [{names}]\n")


def test_a_merge_that_grows_with_every_line_is_bounded(read):
    lines = [f"  m{each}: &m{each} {{<<: [{', '.join([f'*m{each - 1}'] * 6)}]}}" for each in range(1, 30)]
    with pytest.raises(UserError, match="its aliases"):
        read("\n".join(["path: x", "options:", "  m0: &m0 {a: 1}", *lines, ""]))


@pytest.mark.parametrize("text", ["path: x\noptions: &a {b: *a}\n", "&a {path: x, options: {b: [*a]}}\n"])
def test_a_value_that_contains_itself_is_named(read, text):
    with pytest.raises(UserError, match=r"run\.yaml: is not YAML \(line \d: a value contains itself; write it out\)"):
        read(text)


@pytest.mark.parametrize("number", ["1" + ":01" * 400_000, "9" * 4_000, "0x" + "f" * 5_000, "1" * 200 + ".5"])
def test_a_number_of_many_digits_is_refused_before_it_is_read(read, number):
    start = time.process_time()
    with pytest.raises(UserError, match=r"is no (int|float)"):
        read(f"path: x\ntop_k: {number}\n")
    assert time.process_time() - start < 5


@dataclass
class Part:
    name: str
    size: int = 1


@dataclass
class Whole:
    first: Part | None = None
    listed: list[Part] = field(default_factory=list)
    named: dict[str, Part] = field(default_factory=dict)


def test_a_mapping_is_built_with_the_dataclasses_in_it():
    content = {"first": {"name": "a"}, "listed": [{"name": "b", "size": 2}], "named": {"x": {"name": "c"}}}
    assert check_mapping(content, Whole, "f.yaml") == Whole(Part("a"), [Part("b", 2)], {"x": Part("c")})


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"sizes": 1}, "f.yaml: unknown key 'sizes'; known are: first, listed, named"),
        ({"first": {"name": "a", "sizes": 1}}, "f.yaml: first: unknown key 'sizes'; known are: name, size"),
        ({"listed": [{"name": "a"}, {"name": "b", "sizes": 1}]}, r"f.yaml: listed\[1\]: unknown key 'sizes'"),
        ({"named": {"x": {"name": "a", "sizes": 1}}}, "f.yaml: named: x: unknown key 'sizes'"),
    ],
)
def test_a_key_that_a_dataclass_does_not_have_is_refused_wherever_it_is(content, place):
    with pytest.raises(UserError, match=place):
        check_mapping(content, Whole, "f.yaml")
