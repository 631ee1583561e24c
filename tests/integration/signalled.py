"""Run a training script that is disturbed in its first step: `accelerate launch signalled.py SCRIPT ...`.

DISTURB says how: `rank SIGTERM` sends the signal to the last rank alone, `launcher SIGTERM` to the launcher, and
`error TEXT` raises an error in the last rank.
"""

import os
import runpy
import signal
import sys
import time

from transformers import Trainer

whom, what = os.environ["DISTURB"].split(maxsplit=1)
last = int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1
undisturbed = Trainer.training_step


def training_step(self, *args, **kwargs):
    Trainer.training_step = undisturbed
    if last and whom == "error":
        raise RuntimeError(what)
    if last:
        os.kill(os.getppid() if whom == "launcher" else os.getpid(), signal.Signals[what])
        # The launcher needs a moment to pass it on.
        time.sleep(1)
    return undisturbed(self, *args, **kwargs)


Trainer.training_step = training_step
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
