"""The tokenizer of a checkpoint, for commands that count tokens or render a chat template and load no weights."""

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(model: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder or hub id; nothing of its code is run.

    `AutoTokenizer` imports torch and scikit-learn, which takes several seconds, to choose a class. Where there is a
    tokenizer.json it says everything that is asked for here, and the class of any such file will do.

    Raises:
        OSError, ValueError: there is none, or it cannot be read; other errors of `transformers` for damaged files.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import cached_file

    try:
        cached_file(model, "tokenizer.json")
    except OSError:
        # A vocabulary of another kind, or no checkpoint at all, of which this says what is wrong.
        from transformers import AutoTokenizer

        return cast("PreTrainedTokenizerBase", AutoTokenizer.from_pretrained(model, trust_remote_code=False))
    return cast("PreTrainedTokenizerBase", PreTrainedTokenizerFast.from_pretrained(model, trust_remote_code=False))
