"""An encoder and a reranker of one random layer, which read letters."""

from pathlib import Path

LETTERS = [prefix + chr(code) for code in range(33, 127) for prefix in ("", "##")]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
SIZES = {"vocab_size": len(PIECES), "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def _save_tokenizer(folder: Path, length: int) -> None:
    from transformers import BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=length).save_pretrained(folder)


def save_encoder(folder: Path, seed: int = 0, **options) -> Path:
    """A random BERT, and the mean of its outputs."""
    import sentence_transformers
    import torch
    from transformers import BertConfig, BertModel

    bert = folder.with_name(folder.name + "-bert")
    _save_tokenizer(bert, 128)
    torch.manual_seed(seed)
    BertModel(BertConfig(**SIZES, intermediate_size=32)).save_pretrained(bert)
    parts = sentence_transformers.sentence_transformer.modules
    modules = [parts.Transformer(str(bert)), parts.Pooling(32)]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))
    # By its card it is one of a family that has no prompts.
    (folder / "README.md").write_text("# all-MiniLM-tiny\n")
    return folder


def save_reranker(folder: Path, labels: int = 1) -> Path:
    """A random BERT with some outputs; a reranker has one."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(**SIZES, intermediate_size=32, num_labels=labels)).save_pretrained(folder)
    _save_tokenizer(folder, 64)
    return folder
