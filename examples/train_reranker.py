"""Train a cross-encoder on a benchmark's own questions, for `retriever: [..., {rerank: PATH}]`.

    python examples/train_reranker.py --dataset 2wikimultihopqa --path data/2wikimultihopqa/train.json \
      --index runs/index/2wiki --model sentence-transformers/all-MiniLM-L6-v2 --output_dir runs/reranker

The supporting passages of a question are relevant; others, drawn from the passages that would be reranked, are not.
400 questions were too few for an encoder, whose order became worse (docs/results.md): with so few, start from a
published reranker. Questions in `--held_out`, a file with an id per line, are left out, so that the reranker can be
measured on them (`notewriter evaluate --chains ... --ids`).
"""

import argparse
import random
from pathlib import Path

from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

from notewriter.datasets import load_corpus, load_questions
from notewriter.ground.records import Passage, Question
from notewriter.retrieval.protocol import Retriever
from notewriter.retrieval.sources.index import open_index

NEGATIVES, CANDIDATES = 6, 20
"""Passages per question that are not relevant, and the first so many found among which they are drawn."""


def examples_of(question: Question, corpus: dict[str, Passage], retriever: Retriever) -> list[dict[str, object]]:
    """The supporting passages with label 1, and others of a search with label 0."""
    found = retriever.search(question.question, CANDIDATES)
    relevant = [corpus[id] for id in question.supporting_ids]
    others = [passage for passage in found if passage.id not in question.supporting_ids]
    drawn = random.Random(question.id).sample(others, min(NEGATIVES, len(others)))
    labelled = [(passage, 1.0) for passage in relevant] + [(passage, 0.0) for passage in drawn]
    return [
        # As the reranker of a chain writes a passage.
        {"query": question.question, "passage": f"{passage.title}\n{passage.text}", "label": label}
        for passage, label in labelled
    ]


def main() -> None:
    """Parse the command line, collect the examples, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--index", required=True, help="a BM25 or dense index of the benchmark's passages")
    parser.add_argument("--model", required=True, help="the encoder to start from")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--held_out", type=Path, help="ids of questions to leave out, one per line")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--max_length", type=int, default=192, help="tokens of query and passage together")
    arguments = parser.parse_args()

    held_out = set(arguments.held_out.read_text(encoding="utf-8").split()) if arguments.held_out else set()
    questions = load_questions(arguments.dataset, arguments.path)
    corpus = {passage.id: passage for passage in load_corpus(arguments.dataset, arguments.path)}
    retriever = open_index(arguments.index)
    rows = [
        row
        for question in questions
        if question.supporting_ids and question.id not in held_out
        for row in examples_of(question, corpus, retriever)
    ]
    random.Random(0).shuffle(rows)

    model = CrossEncoder(arguments.model, num_labels=1, max_length=arguments.max_length)
    settings = CrossEncoderTrainingArguments(
        output_dir=str(arguments.output_dir / "checkpoints"),
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=16,
        learning_rate=5e-5,
        warmup_ratio=0.1,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        seed=0,
    )
    CrossEncoderTrainer(
        model=model, args=settings, train_dataset=Dataset.from_list(rows), loss=BinaryCrossEntropyLoss(model)
    ).train()
    model.save_pretrained(str(arguments.output_dir))
    print(f'trained on {len(rows)} examples; use it with: --retriever ... \'{{"rerank": "{arguments.output_dir}"}}\'')


if __name__ == "__main__":
    main()
