"""What vLLM is to job scripts: a module that serves at a port, and one that helps it on another node.

At SIGTERM the first finishes what is in flight. Both tell where they run, in the file VLLM_TOLD; as vLLM's do, the
first serves only when all have come. VLLM_REPLY names the function of fake_endpoint that replies.
"""

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import fake_endpoint

parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("port", "nnodes", "node-rank"):
    parser.add_argument(f"--{name}", type=int, default=0)
parser.add_argument("--master-addr")
parser.add_argument("--served-model-name")
parser.add_argument("--headless", action="store_true")
given, _ = parser.parse_known_args()
meeting = f"of {given.nnodes} at {given.master_addr}"
ranks = f"rank {given.node_rank} {meeting}" if given.nnodes else "alone"
told = Path(os.environ["VLLM_TOLD"])
with told.open("a") as lines:
    lines.write(f"{os.environ.get('SLURMD_NODENAME')}: {ranks}{', headless' if given.headless else ''}\n")
if given.headless:
    time.sleep(600)
while told.read_text().count(meeting) < given.nnodes:
    time.sleep(0.1)
reply = getattr(fake_endpoint, os.environ.get("VLLM_REPLY", "default_reply"))
server, known = fake_endpoint.make_server(reply, port=given.port, delay=float(os.environ.get("VLLM_DELAY", "0")))
known.model = given.served_model_name
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(poll_interval=0.05)
server.server_close()
