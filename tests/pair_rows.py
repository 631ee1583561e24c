"""A pair as `notewriter pairs` writes it."""

from notewriter.artifacts.pairs import SCHEMA, Pair


def row(number: int) -> Pair:
    """A pair of a model's note and the gold one, which has no tokens and no sampling."""
    return {
        "schema": SCHEMA,
        "prompt": [{"role": "user", "content": f"Note {number}: »Öl«\n\u2028"}],
        "chosen": [{"role": "assistant", "content": "gold"}],
        "rejected": [{"role": "assistant", "content": "drawn"}],
        "stage": "deepnote/init_note",
        "method": "deepnote",
        "question_id": f"q{number}",
        "dataset": "jsonl",
        "top_k": None,
        "chosen_source": {"kind": "gold"},
        "rejected_source": {"kind": "model", "temperature": 0.5, "top_p": 0.9, "max_tokens": 64},
        "chosen_score": 1.0,
        "rejected_score": None,
        "chosen_noise": 0.25,
        "rejected_noise": None,
        "judge": "reference",
        "judge_replies": [],
        "judge_orders": [],
        "prompt_tokens": 90,
        "chosen_tokens": None,
        "rejected_tokens": 12,
    }
