"""The pairs on disk: Parquet that `datasets.load_dataset` reads, in TRL's conversational preference format."""

import pyarrow as pa

SCHEMA = "notewriter/pair/1"

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_SOURCE = pa.struct(
    [("kind", pa.string()), ("temperature", pa.float64()), ("top_p", pa.float64()), ("max_tokens", pa.int64())]
)
COLUMNS = pa.schema(
    [
        ("schema", pa.string()),
        ("prompt", MESSAGES),
        ("chosen", MESSAGES),
        ("rejected", MESSAGES),
        ("stage", pa.string()),
        ("method", pa.string()),
        ("question_id", pa.string()),
        ("dataset", pa.string()),
        ("top_k", pa.int64()),
        # Where each side comes from: drawn from the model with a sampling, or the gold answer.
        ("chosen_source", _SOURCE),
        ("rejected_source", _SOURCE),
        ("chosen_score", pa.float64()),
        ("rejected_score", pa.float64()),
        ("judge", pa.string()),
        ("judge_replies", pa.list_(pa.string())),
        # The candidates in the order in which each reply's judge saw them, counted from 0 as they were drawn.
        ("judge_orders", pa.list_(pa.list_(pa.int64()))),
        # As the teacher's server counted them; empty for the gold answer.
        ("prompt_tokens", pa.int64()),
        ("chosen_tokens", pa.int64()),
        ("rejected_tokens", pa.int64()),
    ]
)
