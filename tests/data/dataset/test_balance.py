"""As many replies of one kind as of the other."""

from notewriter.data.dataset.balance import TOO_MANY, balanced, count_kinds


def record(number, *replies):
    rows = [{"stage": stage, "messages": [{"role": "assistant", "content": text}]} for stage, text in replies]
    return {"question_id": f"q{number}", "rows": rows, "drops": [], "usage": [], "traces": []}


def replies(records, stage):
    return [row["messages"][-1]["content"] for each in records for row in each["rows"] if row["stage"] == stage]


NOTES = [record(0, ("note", "NO#None."), ("note", "YES#Mira sang."), ("other", "NO#None."))]
NOTES += [record(number, ("note", "NO#None."), ("note", "NO#None.")) for number in range(1, 4)]
NOTES += [record(4, ("note", "YES#The Osk."))]


def kept(records, stages):
    return list(balanced(records, count_kinds(records, stages)))


def test_the_more_frequent_kind_is_cut_to_the_other_evenly_and_the_rest_is_counted():
    found = kept(NOTES, ["note"])
    # Of seven without notes the fourth and the seventh.
    assert [len(each["rows"]) for each in found] == [2, 0, 1, 1, 1]
    assert sorted(replies(found, "note")) == ["NO#None.", "NO#None.", "YES#Mira sang.", "YES#The Osk."]
    assert [len(each["drops"]) for each in found] == [1, 2, 1, 1, 0]
    assert found[1]["drops"] == [{"stage": "note", "reason": TOO_MANY}] * 2


def test_other_stages_and_stages_with_one_kind_of_reply_keep_everything():
    assert kept(NOTES, []) == NOTES
    assert replies(kept(NOTES, ["other"]), "other") == ["NO#None."]


def test_what_is_kept_does_not_depend_on_how_often_records_are_read():
    assert kept(NOTES, ["note"]) == kept(NOTES, ["note"])
