"""The speed of pair construction against the same requests without it: at full concurrency, and one at a time.

    python benchmarks/rollouts.py --model models/SmolLM2-135M-Instruct

The questions are those of a generated world; notes and queries have nine candidates and a judge model, as in
DNAlign. See throughput.py for what is measured; the last line is a JSON object.
"""

from typing import Any

from throughput import main

from notewriter.data.judges import JUDGES
from notewriter.data.recipe import PreparedMethod, Recipe
from notewriter.data.sampling import roll_out
from notewriter.ground.records import Question
from notewriter.methods import prepare
from notewriter.rollouts.resources import Resources

STAGES = {"deepnote/init_note": "llm", "deepnote/refine_query": "llm", "deepnote/accumulate_knowledge": "decision"}
OPTIONS = {"max_step": 1, "max_failure": 1}


async def work(question: Question, resources: Resources) -> dict[str, Any]:
    """One question's pairs."""
    methods = {"deepnote": PreparedMethod(prepare("deepnote", OPTIONS), OPTIONS)}
    judges = {stage: [JUDGES[name]] for stage, name in STAGES.items()}
    return await roll_out(
        question, resources, Recipe(stages=list(judges), judges=judges, methods=methods, top_k_range=(2, 3))
    )


if __name__ == "__main__":
    main(work, __doc__)
