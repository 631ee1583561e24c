from notewriter.rollouts.usage import Usage

TRACE = {
    "steps": [
        {"kind": "retrieve"},
        {
            "kind": "generate",
            "stage": "deepnote/init_note",
            "role": "notes",
            "completion": {"prompt_tokens": 10, "completion_tokens": 3, "text": "x"},
        },
    ]
}


def test_calls_are_summed_up_by_stage_and_role_whichever_way_a_record_tells_them():
    usage = Usage()
    tokens = {"calls": 2, "prompt_tokens": 5, "completion_tokens": 1}
    usage.add({"usage": [{"stage": "deepnote/init_note", "role": "notes", "tokens": tokens}], "traces": [TRACE]})
    usage.add({"trace": TRACE})
    usage.add(TRACE)
    expected = {"calls": 4, "prompt_tokens": 25, "completion_tokens": 7}
    assert usage.to_dict() == {"tokens": {"deepnote/init_note": {"notes": expected}}, "tokens_in_all": expected}


def test_a_sample_is_scaled_to_the_whole():
    usage = Usage()
    usage.add(TRACE)
    assert usage.to_dict(2.5)["tokens_in_all"] == {"calls": 2, "prompt_tokens": 25, "completion_tokens": 8}


def test_nothing_costs_nothing():
    assert Usage().to_dict() == {"tokens": {}, "tokens_in_all": {}}
