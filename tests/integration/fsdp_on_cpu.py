"""Run a training script under accelerate's FSDP where there is no GPU: `accelerate launch fsdp_on_cpu.py SCRIPT ...`.

accelerate takes the FSDP path for GPUs alone and trains plain copies on a CPU without a word. PyTorch's FSDP2 itself
works on a CPU, so telling accelerate that these processes are GPUs' runs everything else as it would run there.
"""

import os
import runpy
import sys

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType

os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
torch.distributed.init_process_group("gloo")
PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
