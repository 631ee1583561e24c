import pytest
from pair_rows import row

from notewriter.artifacts.journal import check_journal
from notewriter.artifacts.rollouts import ChainRollout, PairsRollout, read_rollouts
from notewriter.artifacts.traces import Trace
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question


def pairs_rollout(number=0, **changes):
    """A line as an earlier version wrote it: without `unreadable`, its row with the required columns only."""
    required = {key: row(number)[key] for key in ("prompt", "chosen", "rejected", "stage", "question_id")}
    return {
        "question_id": f"q{number}",
        "rows": [required],
        "drops": [{"stage": "deepnote/answer", "reason": "candidates too much alike"}],
        "agreements": [{"stage": "deepnote/init_note", "agreed": True}],
        "usage": [{"stage": "deepnote/init_note", "role": "notes", "tokens": {"calls": 9}}],
        "traces": [Trace(f"q{number}", "deepnote").to_dict()],
    } | changes


def test_a_journal_is_read_in_the_order_of_the_questions(tmp_path):
    journal = tmp_path / "rollouts.jsonl"
    jsonl.write(journal, map(pairs_rollout, (2, 0, 1)))
    check_journal(journal, PairsRollout)
    questions = [Question(f"q{number}", "Where?", ("Tolen",)) for number in range(4)]
    assert [record["question_id"] for record in read_rollouts(journal, questions, PairsRollout)] == ["q0", "q1", "q2"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rows": [row(0) | {"stage": 3}]}, r"rollouts\.jsonl:1: rows\[0\]: stage must be str, not 3"),
        ({"rows": [row(0) | {"top_k": "five"}]}, r"rows\[0\]: top_k must be int \| None, not 'five'"),
        ({"rows": [row(0) | {"chosen": ["x"]}]}, r"rows\[0\]: chosen\[0\] must be object, not 'x'"),
        ({"unreadable": [{"stage": "s"}]}, r"unreadable\[0\] has no 'replies'"),
        ({"traces": [{}]}, r"traces\[0\] has no 'question_id'"),
    ],
)
def test_a_line_of_another_form_is_named_with_its_key(tmp_path, changes, problem):
    journal = tmp_path / "rollouts.jsonl"
    jsonl.write(journal, [pairs_rollout(**changes)])
    with pytest.raises(UserError, match=problem):
        check_journal(journal, PairsRollout)


def test_the_journal_of_pairs_is_not_one_of_chains(tmp_path):
    journal = tmp_path / "rollouts.jsonl"
    jsonl.write(journal, [pairs_rollout()])
    with pytest.raises(UserError, match=r"rollouts\.jsonl:1 has no 'turns'"):
        check_journal(journal, ChainRollout)
