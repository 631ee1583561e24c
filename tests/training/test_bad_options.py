"""Bad options of the commands that train or look at training: one line each, before a model is looked for."""

import importlib

import pytest

from notewriter.ground.errors import UserError

DPO, SFT = ["--pairs", "p", "--output_dir", "o"], ["--data", "d", "--output_dir", "o"]


@pytest.mark.parametrize(
    ("script", "argv", "problem"),
    [
        ("dpo", [*DPO, "--learn", "3"], "unknown option --learn; did you mean '--learning"),
        (
            "dpo",
            [*DPO, "--base_model", "m", "--use_pfet", "1"],
            "is 'model_name_or_path' here; unknown option --use_pfet;",
        ),
        ("kto", [*DPO, "--ref_model_sync_steps", "9"], "ref_model_sync_steps: is ignored with sync_ref_model false"),
        ("sft", [*SFT, "--num_train", "3"], "unknown option --num_train; did you mean '--num_train_epochs'"),
        ("preflight", [*DPO, "--utiliz", "1"], "unknown option --utiliz; did you mean '--utilization'"),
        ("merge", ["--check", "c", "--output_dir", "o"], "unknown option --check; did you mean '--checkpoint'"),
        ("publishing.publish", ["--checkpoint", "c", "--repo", "a/b"], "option --repo; did you mean '--repo_id'"),
        ("dpo", ["--config", "a", "--config", "b"], "--config is given twice"),
        ("dpo", [*DPO[2:], "--pairs", ""], "pairs is empty"),
        ("dpo", [*DPO, "--peak_tflops", "0"], "peak_tflops: 0.0 is too small; give above 0"),
        ("dpo", [*DPO, "--peak_tflops", "nan"], "peak_tflops must be float | None, not nan"),
        ("sft", [*SFT, "--mix", '{"f": "x"}'], "mix: f must be float, not 'x'"),
        ("sft", [*SFT, "--mix", '{"f": 0}'], "mix: f: 0 is too small; give above 0"),
        ("sft", [*SFT, "--mix", "[1]"], "is not a JSON object"),
        ("preflight", [*DPO, "--gpus", "0"], "gpus: 0 is too small; give at least 1"),
        ("preflight", [*DPO, "--utilization", "0"], "utilization: 0.0 is too small; give above 0 and at most 1"),
        ("preflight", [*DPO, "--show", "-1"], "show: -1 is too small; give at least 0"),
        ("sft", [*SFT, "--optim", "schedule_free_adamw"], "optim: schedule_free_adamw trains averaged weights"),
        ("preflight", ["--pairs"], "argument --pairs: expected one argument"),
    ],
)
def test_a_bad_option_is_named_in_one_line(script, argv, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        importlib.import_module(f"notewriter.training.{script}").main(argv)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_loss_that_kto_has_not_is_named_in_a_configuration_too(tmp_path):
    (tmp_path / "kto.yaml").write_text("loss_type: sigmoid")
    with pytest.raises(UserError, match=r"kto\.yaml:1: loss_type must be one of kto, apo_zero_unpaired"):
        importlib.import_module("notewriter.training.kto").main([*DPO, "--config", str(tmp_path / "kto.yaml")])
