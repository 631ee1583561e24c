from pathlib import Path

from transformers import AutoTokenizer

from notewriter.training.inputs.chat_templates import stop_tokens


def test_stop_tokens_are_the_tokenizers_and_the_generation_configurations(tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')

    assert stop_tokens(str(tmp_path), "main", tokenizer) == {tokenizer.eos_token_id, 7, 9}
