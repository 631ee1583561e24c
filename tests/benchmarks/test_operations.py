"""The count of a step's operations, against what the sizes of a toy model give by hand."""

import sys
from pathlib import Path

import pytest

# As where it is run: beside the scripts that it imports.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gpu
import operations

from notewriter.training.cost.cost_model import Memory
from notewriter.training.run import recomputation

H, INNER, LAYERS, HEADS, KEY_HEADS = (gpu.TOY[name] for name in gpu.SIZES)
VOCABULARY, SIZE, RANK = gpu.TOY["vocab_size"], gpu.TOY["head_dim"], operations.ADAPTER["r"]
KEYS = [(H, KEY_HEADS * SIZE)] * 2
QUERIES = [(H, HEADS * SIZE), (HEADS * SIZE, H)]
MLP = [(H, INNER), (H, INNER), (INNER, H)]
PROMPT, COMPLETION, PAIRS = 40, 10, 2
SHAPE = (PROMPT, COMPLETION, PAIRS)


def products(matrices):
    return 2 * sum(rows * columns for rows, columns in matrices)


def through(matrices, adapter):
    """Operations of one token in a forward, in its backward, and those of a forward without the adapter."""
    base, low = products(matrices), 2 * RANK * sum(map(sum, matrices)) if adapter else 0
    return base + low, (base if adapter else 2 * base) + 2 * low, base


def attention(queries, keys):
    """The products of queries and keys, and of what they weigh and the values, in a forward."""
    return 2 * 2 * HEADS * SIZE * queries * keys


def head(adapter):
    """Of a trained token: forward and, computed again, backward; that of the reference."""
    of_one = 2 * H * VOCABULARY
    return of_one + (2 if adapter else 3) * of_one + of_one


def layer(tokens, asking, squares, adapter, recomputed, narrow=False):
    """Of a layer: policy and reference. `asking`: tokens whose queries, output and MLP are computed, too."""
    forward, backward, reference = (
        tokens * of_keys + asking * of_others
        for of_keys, of_others in zip(through(KEYS, adapter), through([*QUERIES, *MLP], adapter), strict=True)
    )
    # The last matrix is computed again as far as its gradient needs, with an adapter up to its low rank; of a narrow
    # layer whole, as its outputs are then placed in the row.
    not_again = 0 if narrow else asking * (2 * RANK * H if adapter else products(MLP[-1:]))
    again = forward + squares - not_again if recomputed else 0
    return forward + backward + reference + again + squares * (1 + 2 + 1)


@pytest.mark.parametrize("trained", ["LoRA", "full"])
def test_a_step_of_trl_is_what_its_sizes_say(trained):
    adapter = trained == "LoRA"
    rows, length = 2 * PAIRS, PROMPT + COMPLETION
    of_one = layer(rows * length, rows * length, rows * attention(length, length), adapter, True)
    counted, _ = operations.step("Qwen2.5-7B", trained, *SHAPE, toy=True)
    assert counted == LAYERS * of_one + rows * COMPLETION * head(adapter)


@pytest.mark.parametrize("trained", ["LoRA", "full"])
@pytest.mark.parametrize("recomputed", [0, 1, 2])
def test_ours_computes_prompts_once_the_last_layer_for_completions_and_again_what_memory_forces(
    trained, recomputed, monkeypatch
):
    adapter, length = trained == "LoRA", PROMPT + COMPLETION
    tokens, asking = PAIRS * (PROMPT + 2 * COMPLETION), PAIRS * (1 + 2 * COMPLETION)
    whole = PAIRS * (attention(length, length) + attention(COMPLETION, length))
    last = PAIRS * attention(1 + 2 * COMPLETION, length)
    by_hand = layer(tokens, tokens, whole, adapter, recomputed > 0)
    by_hand += layer(tokens, asking, last, adapter, recomputed > 1, narrow=True)
    monkeypatch.setattr(recomputation, "available", lambda _: 1)
    needed = [[2, 2, 0], [2, 0, 0], [0, 0, 0]][2 - recomputed]
    monkeypatch.setattr(
        recomputation.cost_model, "memory", lambda *arguments: Memory({}, {"backward": needed[arguments[-1]]})
    )
    counted, chosen = operations.step("Qwen2.5-7B", trained, *SHAPE, ours={"gradient_checkpointing": "auto"}, toy=True)
    assert chosen == recomputed
    assert counted == by_hand + 2 * PAIRS * COMPLETION * head(adapter)


def test_layers_add_up_so_that_the_count_of_a_model_is_that_of_its_layers():
    two, three, four = (operations.step("Qwen2.5-7B", "LoRA", *SHAPE, layers=layers)[0] for layers in (2, 3, 4))
    assert four - three == three - two > 0


@pytest.mark.integration
@pytest.mark.parametrize(("prompt", "pairs", "target"), [(2000, 4, 2.5), (8000, 1, 2.0)])
def test_trls_operations_are_several_times_ours_with_an_adapter_for_a_7b_model_on_80_gb(prompt, pairs, target):
    record = operations.record_of(79, "Qwen2.5-7B", "LoRA", prompt, 100, pairs)
    assert record["ratio"] == round(record["trl"] / record["ours"], 3) >= target
    assert record["ratio"] > record["ratio_recomputing_all"]
