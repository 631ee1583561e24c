#!/usr/bin/env bash
# torchdata's StatefulDataLoader, whose state is saved with a checkpoint and loaded in a new loader that is built alike.
# Guess before running: with the samplers of torchdata and with shuffle=True, with 0 and 2 workers, a resumed run reads
# what a run without a stop reads (80% sure of each); half sure of that for a seeded sampler without a state.
#
# torchdata 0.11.0, torch 2.13.0 (CPU). 20 rows in batches of three, of which the distributed sampler's rank has 10. The
# second epoch of a run resumed from a state that was saved before it, or within it after two batches. Output seen:
#   shuffle=True, 0 workers: before: 20 of 20 rows, in order True; within: 20 of 20 rows, in order True
#   shuffle=True, 2 workers: before: 20 of 20 rows, in order True; within: 20 of 20 rows, in order True
#   shuffle=True, generator, 0 workers: before: 20 of 20 rows, in order False; within: 20 of 20 rows, in order True
#   shuffle=True, generator, 2 workers: before: 20 of 20 rows, in order True; within: 20 of 20 rows, in order True
#   StatefulDistributedSampler, 0 workers: before: 0 of 10 rows, in order False; within: 10 of 10 rows, in order True
#   StatefulDistributedSampler, 2 workers: before: 10 of 10 rows, in order True; within: 10 of 10 rows, in order True
#   torch's RandomSampler, 0 workers: before: 20 of 20 rows, in order False; within: 16 of 20 rows, in order False
#   torch's RandomSampler, 2 workers: before: 20 of 20 rows, in order True; within: 16 of 20 rows, in order False
#
# A run that is resumed from the end of an epoch, where many save, has an empty epoch with StatefulDistributedSampler
# and no workers: each rank trains an epoch less, and nothing is said. A sampler without a state, here torch's own with
# a generator, is wound on by the rows that were read, but in the order of the first epoch: resumed in a later epoch, it
# repeats rows and leaves others out. shuffle=True alone is right throughout. Related: issue 1513 of meta-pytorch/data
# (this sampler within torchdata.nodes) and 1437 (an epoch that was dropped, mended for other samplers). Exits non-zero
# if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 torchdata==0.11.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from torch.utils.data import RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

ROWS = list(range(20))


def seeded():
    return torch.Generator().manual_seed(0)


WAYS = {
    "shuffle=True": lambda: {"shuffle": True},
    "shuffle=True, generator": lambda: {"shuffle": True, "generator": seeded()},
    "StatefulDistributedSampler": lambda: {"sampler": StatefulDistributedSampler(ROWS, num_replicas=2, rank=0)},
    "torch's RandomSampler": lambda: {"sampler": RandomSampler(ROWS, generator=seeded())},
}


def loader_of(way, workers):
    torch.manual_seed(0)
    return StatefulDataLoader(ROWS, batch_size=3, num_workers=workers, **WAYS[way]())


def epoch(loader, number, stop=None):
    """The rows of an epoch, to its end or for `stop` batches."""
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(number)
    rows = []
    for count, batch in enumerate(loader, start=1):
        rows += batch.tolist()
        if count == stop:
            break
    return rows


def resumed(way, workers, stop):
    """The rows of the second epoch, without a stop and with one after `stop` of its batches."""
    loader = loader_of(way, workers)
    epoch(loader, 0)
    whole = epoch(loader, 1)
    first = loader_of(way, workers)
    epoch(first, 0)
    rows = epoch(first, 1, stop) if stop else []
    second = loader_of(way, workers)
    second.load_state_dict(first.state_dict())
    return whole, rows + epoch(second, 1)


results = {}
for way in WAYS:
    for workers in (0, 2):
        found = []
        for stop in (0, 2):
            whole, rows = resumed(way, workers, stop)
            results[way, workers, stop] = len(set(rows)), rows == whole
            found.append(f"{len(set(rows))} of {len(whole)} rows, in order {rows == whole}")
        print(f"{way}, {workers} workers: before: {found[0]}; within: {found[1]}")
skipped = results["StatefulDistributedSampler", 0, 0][0] == 0 and results["StatefulDistributedSampler", 2, 0][1]
partial = results["torch's RandomSampler", 0, 2][0] < 20 and results["torch's RandomSampler", 2, 2][0] < 20
sys.exit(not (skipped and partial and results["shuffle=True", 0, 0][1] and results["shuffle=True", 0, 2][1]))
PYTHON
