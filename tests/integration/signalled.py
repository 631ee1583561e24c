"""Run a training script that is disturbed: `accelerate launch signalled.py SCRIPT ...`.

DISTURB says how. In the first step, `rank SIGTERM` sends the signal to the last rank alone, `launcher SIGTERM` to the
launcher, and `error TEXT` raises an error in the last rank. With `hold FOLDER` every rank waits in step N while
FOLDER/hold-N exists, and says so in FOLDER/held-N-RANK.
"""

import os
import runpy
import signal
import sys
import time
from pathlib import Path

from transformers import Trainer

whom, what = os.environ["DISTURB"].split(maxsplit=1)
rank = int(os.environ.get("RANK", "0"))
last = rank == int(os.environ.get("WORLD_SIZE", "1")) - 1
undisturbed = Trainer.training_step


def disturb_once(self, *args, **kwargs):
    Trainer.training_step = undisturbed
    if last and whom == "error":
        raise RuntimeError(what)
    if last:
        os.kill(os.getppid() if whom == "launcher" else os.getpid(), signal.Signals[what])
        # The launcher needs a moment to pass it on.
        time.sleep(1)
    return undisturbed(self, *args, **kwargs)


def hold(self, *args, **kwargs):
    step = self.state.global_step + 1
    while Path(what, f"hold-{step}").exists():
        Path(what, f"held-{step}-{rank}").touch()
        time.sleep(0.1)
    return undisturbed(self, *args, **kwargs)


Trainer.training_step = hold if whom == "hold" else disturb_once
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
