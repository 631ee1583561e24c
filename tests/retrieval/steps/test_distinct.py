"""Passages that repeat the text or title of another one."""

import asyncio

import pytest

from notewriter.ground.records import Passage
from notewriter.retrieval.steps.distinct import Distinct, DistinctOptions


@pytest.mark.parametrize(
    ("field", "passages"),
    [
        ("title", [Passage("1", "", "The Osk is a river."), Passage("2", " ", "Tolen is a town.")]),
        ("text", [Passage("https://a", "Osk", ""), Passage("https://b", "Tolen", "")]),
    ],
)
def test_passages_without_a_title_or_text_do_not_repeat_each_other(field, passages):
    step = Distinct(DistinctOptions(distinct=field))
    assert asyncio.run(step.apply("osk", [*passages, passages[0]], 3)) == passages
