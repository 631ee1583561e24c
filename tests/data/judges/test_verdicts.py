"""What a judge of somebody else's returns or raises is checked where it is called."""

import asyncio
import json
import re

import pytest

from notewriter.data.judges import JUDGES
from notewriter.data.judges.case import judge
from notewriter.data.judges.tie_breaking import NO_REASON, decide
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.models.client import RequestRefused


@pytest.fixture
def load_judge(tmp_path):
    """The judge of a file whose line 4 is its function."""

    def load(code):
        file = tmp_path / "mine.py"
        file.write_text(
            "from notewriter.data.judges.case import Verdict, by_score, judge\n"
            "from notewriter.ground.text import tokens\n"
            f"@judge('note')\n{code}\n"
        )
        place = f"{file}:mine"
        plugins._LOADED.pop(place, None)
        JUDGES.pop(place, None)
        plugins.load(place)
        return JUDGES[place]

    return load


ASYNC = "async def mine(case): return "


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (f"{ASYNC}by_score(case, [1 / 0])", "ended in ZeroDivisionError: division by zero (mine.py:4)"),
        (f"{ASYNC}by_score(case, [tokens(3)])", "ended in AttributeError: 'int' object .* (mine.py:4)"),
        (f"{ASYNC}by_score(case, [1.0])", "returned 1 scores for 3 candidates"),
        (f"{ASYNC}by_score(case, [0.0, 1.0, 0.5, 0.7])", "ended in IndexError: list index out of range (mine.py:4)"),
        (f"{ASYNC}by_score(case, [1.0, float('nan'), 0.0])", "returned a Verdict whose scores[1] must be .*, not nan"),
        (f"{ASYNC}Verdict(0, 1, scores=[1.0, 0.0])", "returned 2 scores for 3 candidates"),
        (f"{ASYNC}Verdict(0, 9)", "returned candidate 9, and there are 0 to 2; None is no candidate"),
        (f"{ASYNC}Verdict(-1, 0)", "returned candidate -1, and there are 0 to 2"),
        (f"{ASYNC}Verdict(0, 1, worst=[1, 3])", "returned candidate 3, and there are 0 to 2"),
        (f"{ASYNC}Verdict(0, 0)", "returned candidate 0 as both chosen and rejected"),
        (f"{ASYNC}Verdict(0.0, 1)", "returned a Verdict whose chosen must be int | None, not 0.0"),
        (f"{ASYNC}Verdict('0', '1')", "returned a Verdict whose chosen must be int | None, not '0'"),
        (f"{ASYNC}Verdict(reason=None)", "returned a Verdict whose reason must be str, not None"),
        (f"{ASYNC}None", "returned None, which is no Verdict"),
        (f"{ASYNC}(0, 1)", "returned (0, 1), which is no Verdict"),
        ("def mine(case): return Verdict(0, 1)", "is no async function; write `async def`"),
        ("async def mine(): return Verdict(0, 1)", "ended in TypeError: mine() takes 0 positional arguments"),
    ],
)
def test_a_fault_names_the_judge_the_question_the_stage_and_the_judges_own_line(code, fault, load_judge, make_case):
    mine, (case, _) = load_judge(code), make_case(list("abc"))
    with pytest.raises(UserError) as error:
        asyncio.run(decide([mine], case))
    said = str(error.value)
    assert said.startswith(f"question q1: judge {mine.name} of deepnote/init_note ")
    assert re.search(f" {re.escape(fault).replace(re.escape('.*'), '.*')}", said), said
    # A decorated function begins at its decorator.
    assert re.search(r" \(mine\.py:[34]\); correct it there$", said), said


@pytest.mark.parametrize("code", ["Verdict()", "Verdict(chosen=1)", "Verdict(rejected=1)", "Verdict(0, 1, alike=True)"])
def test_a_verdict_with_neither_a_pair_nor_a_reason_is_counted_as_such(code, load_judge, make_case):
    verdict = asyncio.run(decide([load_judge(f"{ASYNC}{code}")], make_case(list("abc"))[0]))
    assert verdict.reason == NO_REASON


@pytest.mark.parametrize("scores", ["by_score(case, np.float32(%s))", "Verdict(0, 1, list(np.float32(%s)))"])
def test_scores_of_numpy_become_plain_numbers(scores, load_judge, make_case):
    mine = load_judge(f"{ASYNC}{scores % [0.5, 0, 0.25]}\nimport numpy as np")
    verdict = asyncio.run(decide([mine], make_case(list("abc"))[0]))
    assert json.dumps(verdict.scores) == "[0.5, 0.0, 0.25]"


def test_a_refusal_of_the_endpoint_and_an_end_from_outside_are_no_faults_of_the_judge(load_judge, make_case):
    refusing = load_judge("async def mine(case): await case.ask(None)")

    def refuse(variables):
        raise RequestRefused("too long")

    case, _ = make_case(list("abc"), reply=refuse)
    assert asyncio.run(decide([refusing], case)).refusal == "too long"

    def cancel(variables):
        raise asyncio.CancelledError

    case, _ = make_case(list("abc"), reply=cancel)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(decide([refusing], case))


@pytest.mark.parametrize("kinds", [["nota"], ["note", "nota"], [lambda case: None]])
def test_a_kind_that_there_is_not_and_a_decorator_without_brackets_are_refused_where_they_stand(kinds):
    with pytest.raises(ValueError, match=r"@judge: .* is no kind; write @judge\(\) or some of \('note', "):
        judge(*kinds)
