"""The tokenizer of a checkpoint, for commands that count tokens or render a chat template and load no weights."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from notewriter.ground.errors import UserError, one_line
from notewriter.models.checkpoint import load

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LINES = ("Who built the mill?", "  It has  12,345 steps.\n\n\tWhen?", "ﬁrst, café é ２½…", "水车是谁建的？")
"""Texts whose tokens are compared: spaces, digits, line ends, characters that NFC and NFKC change, another script."""

PLAIN = ("PreTrainedTokenizer", "TokenizersBackend")
"""Prefixes of the names of tokenizer classes that take tokenizer.json as it is."""


def load_tokenizer(model: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder or hub id; code that comes with it is never run.

    `AutoTokenizer` imports torch and scikit-learn, which takes several seconds, to choose a class. A tokenizer.json has
    all that is needed here, and the class for any such file will do.

    Raises:
        OSError, ValueError: there is none, it needs its code, or it cannot be read; other errors of `transformers` for
            damaged files.
    """
    # The package imports what is looked up in it. `AutoTokenizer` reads other vocabularies too, refuses a class
    # that comes with a model, and says what is wrong where there is none.
    import transformers

    loader = transformers.PreTrainedTokenizerFast if _is_whole(model) else transformers.AutoTokenizer
    return cast("PreTrainedTokenizerBase", loader.from_pretrained(model, trust_remote_code=False))


def check_class(tokenizer: "PreTrainedTokenizerBase", name: str, revision: str | None = None) -> None:
    """Check that a tokenizer of the class that tokenizer_config.json names divides a text as tokenizer.json does.

    transformers 5 builds it from the class and the vocabulary: a byte-level file under LlamaTokenizerFast loses all
    spaces.

    Raises:
        UserError: it does not.
    """
    from tokenizers import Tokenizer
    from transformers.utils import cached_file

    file = cached_file(name, "tokenizer.json", revision=revision, _raise_exceptions_for_missing_entries=False)
    if file is None:
        return
    whole = Tokenizer.from_file(str(file))
    # A tokenizer that was saved after it had cut and filled up a batch would do so here.
    whole.no_truncation()
    whole.no_padding()
    for line in LINES:
        try:
            made = tokenizer.encode(line, add_special_tokens=False)
            became = f"becomes {tokenizer.decode(made)!r}"
        # The library's own errors have no other class.
        except Exception as error:
            made, became = None, f"is refused: {one_line(error)}"
        if made != whole.encode(line, add_special_tokens=False).ids:
            raise UserError(
                f"{name}: the class {type(tokenizer).__name__} makes other tokens than tokenizer.json has ({line!r} "
                f"{became}); write tokenizer_class: PreTrainedTokenizerFast in tokenizer_config.json, or use the "
                "tokenizer of a model of this kind"
            )


def check_served(name: str) -> None:
    """As `check_class`, before a server loads a tokenizer; at once where the class takes tokenizer.json as it is.

    Raises:
        UserError: as `check_class`.
    """
    from transformers.utils import cached_file

    try:
        settings = json.loads(Path(str(cached_file(name, "tokenizer_config.json"))).read_text(encoding="utf-8"))
        kind = str(settings.get("tokenizer_class") or PLAIN[0])
    # The server says what is wrong with a file that is not there or damaged.
    except (OSError, ValueError, AttributeError):
        return
    if not kind.startswith(PLAIN):
        from transformers import AutoTokenizer

        check_class(load(AutoTokenizer, name), name)


def _is_whole(model: str) -> bool:
    """Whether a checkpoint has a tokenizer.json, and settings that name no class of its own."""
    from transformers.utils import cached_file

    try:
        _, settings = (str(cached_file(model, name)) for name in ("tokenizer.json", "tokenizer_config.json"))
    except OSError:
        return False
    return "auto_map" not in json.loads(Path(settings).read_text(encoding="utf-8"))
