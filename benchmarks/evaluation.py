"""The speed of evaluation against the same requests without it: at full concurrency, and one at a time.

    python benchmarks/evaluation.py --model models/SmolLM2-135M-Instruct

DeepNote runs on the questions of a generated world. See throughput.py for what is measured; the last line is
a JSON object.
"""

from typing import Any

from throughput import main

from notewriter.evaluation.scoring import trace_of
from notewriter.ground.records import Question
from notewriter.methods import prepare
from notewriter.rollouts.resources import Resources

OPTIONS = {"top_k": 3, "max_step": 2, "max_failure": 2}


async def work(question: Question, resources: Resources) -> dict[str, Any]:
    """One question's trace."""
    return await trace_of(question, resources, prepare("deepnote", OPTIONS), OPTIONS)


if __name__ == "__main__":
    main(work, __doc__)
