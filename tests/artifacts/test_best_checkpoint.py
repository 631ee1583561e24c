"""best_checkpoint.json: read as it was written, also by an older version than the one that wrote it."""

import json

from notewriter.artifacts.best_checkpoint import BEST_CHECKPOINT, NAME, BestCheckpoint, Scored
from notewriter.artifacts.metrics import Interval

SCORE = Interval(0.5, 0.4, 0.6)
BEST = BestCheckpoint("f1", "runs/a/checkpoint-4", 4, SCORE, [Scored("runs/a/checkpoint-4", 4, SCORE)])


def test_unknown_keys_are_ignored_at_every_depth(tmp_path):
    BEST_CHECKPOINT.write(tmp_path / NAME, BEST)
    record = json.loads((tmp_path / NAME).read_text())
    for part in (record, record["score"], record["checkpoints"][0], record["checkpoints"][0]["score"]):
        part["newer"] = 1
    (tmp_path / NAME).write_text(json.dumps(record))
    assert BEST_CHECKPOINT.read(tmp_path / NAME) == BEST
