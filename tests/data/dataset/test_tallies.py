from notewriter.data.dataset.tallies import PairsTally


def pair(stage, question_id, chosen="Mira.", rejected="Osk."):
    return {
        "prompt": [{"role": "user", "content": "Where was Mira born?"}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
        "stage": stage,
        "question_id": question_id,
    }


def pairs_totals(records, stages):
    tally = PairsTally(dict.fromkeys(stages, "reference"), (), {}, {})
    for each in records:
        tally.add(each)
    return tally.totals()


def record(rows=(), drops=(), agreements=(), usage=()):
    return {
        "rows": [pair(stage, "q1") for stage in rows],
        "drops": [{"stage": stage, "reason": reason} for stage, reason in drops],
        "agreements": [{"stage": stage, "agreed": agreed} for stage, agreed in agreements],
        "usage": [
            {"stage": stage, "role": role, "tokens": {"calls": 1, "prompt_tokens": prompt, "completion_tokens": 2}}
            for stage, role, prompt in usage
        ],
    }


RECORDS = [
    record(["note"], [("answer", "alike")], [("note", True)], [("note", "notes", 10), ("judge/best", "judge", 30)]),
    record([], [("note", "alike"), ("note", "beyond the quota")], [("note", False)], [("note", "notes", 5)]),
    record([], [("note", "alike"), ("m/*", "refused")], [("note", True)], [("note", "policy", 1)]),
]


def test_stages_tell_their_pairs_and_why_the_rest_was_dropped():
    assert pairs_totals(RECORDS, ["note", "answer", "query"])["stages"] == {
        "note": {"pairs": 1, "dropped": {"alike": 2, "beyond the quota": 1}},
        "answer": {"pairs": 0, "dropped": {"alike": 1}},
        "query": {"pairs": 0, "dropped": {}},
        "m/*": {"pairs": 0, "dropped": {"refused": 1}},
    }


def test_the_yield_counts_pairs_beyond_the_quota_and_is_unknown_for_a_stage_that_was_not_reached():
    assert pairs_totals(RECORDS, ["note", "answer", "query"])["yield"] == {"note": 0.5, "answer": 0.0, "query": None}


def test_agreement_is_the_share_of_judgements_that_two_orders_did_not_change():
    assert pairs_totals(RECORDS, ["note"])["agreement"] == {"note": {"asked": 3, "agreed": 2, "rate": 0.6667}}


def test_replies_of_a_judge_that_could_not_be_read_are_counted_and_an_old_journal_has_none():
    unread = [{"unreadable": [{"stage": "note", "replies": number}]} for number in (1, 2)]
    told = pairs_totals([*RECORDS, *(record() | each for each in unread)], ["note", "answer"])
    assert told["unreadable_judge_replies"] == {"note": 3}
    assert pairs_totals(RECORDS, ["note"])["unreadable_judge_replies"] == {}


def test_a_judge_that_never_agreed_with_itself_did_so_zero_times():
    told = pairs_totals([record([], [], [("note", False)])], ["note"])["agreement"]
    assert repr(told) == "{'note': {'asked': 1, 'agreed': 0, 'rate': 0.0}}"


def test_tokens_are_summed_up_by_stage_and_role_and_in_all():
    told = pairs_totals(iter(RECORDS), ["note"])
    assert told["questions_rolled_out"] == 3
    assert told["tokens"] == {
        "judge/best": {"judge": {"calls": 1, "prompt_tokens": 30, "completion_tokens": 2}},
        "note": {
            "notes": {"calls": 2, "prompt_tokens": 15, "completion_tokens": 4},
            "policy": {"calls": 1, "prompt_tokens": 1, "completion_tokens": 2},
        },
    }
    assert told["tokens_in_all"] == {"calls": 4, "prompt_tokens": 46, "completion_tokens": 8}


def test_what_separates_the_sides_is_counted_by_feature_and_warned_of():
    answers = {f"q{number}": ["Tolen"] for number in range(30)}
    tally = PairsTally({"note": ["outcome", "llm"]}, {"q7"}, {"note": 30}, answers)
    for number in range(30):
        tally.add(record() | {"rows": [pair("note", f"q{number}", f"Mira was born in Tolen {number}.", "Osk")]})
    assert (tally.totals()["judges"], tally.totals()["quotas"]) == ({"note": "outcome, llm"}, {"note": 30})
    told = tally.totals()["shortcuts"]["note"]
    assert (told["pairs"], told["together"]) == (30, 1.0)
    assert told["features"]["words"] == {"chosen_higher": 30, "rejected_higher": 0, "predicts": 1.0}
    assert told["features"]["gold answer"]["chosen_higher"] == 30 and told["features"]["refusal"]["predicts"] == 0.5
    assert list(told["features"].values())[-1]["predicts"] == 0.5
    below, line = tally.warnings()
    assert below == "note: 29 training pairs, below its quota"
    assert line.startswith("note: the side that ") and "100% of 30 pairs" in line
