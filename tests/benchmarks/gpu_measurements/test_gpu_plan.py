"""The order of the measurements, and that each can be taken."""

import inspect

from benchmarks.gpu_measurements.plan import MODELS, plan
from benchmarks.gpu_measurements.setting import Setting
from benchmarks.gpu_measurements.worker import MEASUREMENTS


def test_the_plan_names_each_measurement_once_and_begins_with_the_most_telling():
    names = [each.name for each in plan()]
    assert len(names) == len(set(names))
    assert names[0] == "ceiling/bfloat16"
    key = "fast/Qwen2.5-7B/LoRA/2000+100/batch 1/"
    assert names.index(f"{key}TRL") + 1 == names.index(f"{key}shared") < 40
    assert all(f"right/{model}/{batch}/bf16" in names for model in MODELS for batch in ("ragged", "short", "long"))


def test_every_measurement_can_be_called_with_its_options():
    for each in plan():
        function, options = MEASUREMENTS[each.function], each.options
        if each.function in ("fast", "profile"):
            inspect.signature(Setting).bind(**options)
        else:
            inspect.signature(function).bind(None, **options)
