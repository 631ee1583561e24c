"""A tokenizer to count with."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """The folder of a tokenizer for which a word is a token, with truncation to be ignored."""
    words = Tokenizer(models.WordLevel({"<unknown>": 0}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.enable_truncation(3)
    (tmp_path / "tokenizer").mkdir()
    words.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    return tmp_path / "tokenizer"
