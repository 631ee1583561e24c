"""Folders of pairs as a person judges them."""

from dataset_folders import HOSTILE, write

from notewriter.artifacts.pairs import SCHEMA

PASSAGES = """[1] Arlen Voss: Arlen Voss (1871-1940) was a bridge keeper. He was born in Tirsk and studied there.
[2] Tirsk (city): Tirsk is the capital of Orvania. It lies on the river Osk, at the foot of the hills of Varn.
[3] Varn: Varn is a village in the hills. Its church was built in 1702."""
FACTS = "Arlen Voss was born in Tirsk. Tirsk is the capital of Orvania."
BOATS = "Arlen Voss liked boats, and the sea. The church of Varn was built in 1702 and lies in the hills."


def pair(number, chosen=FACTS, rejected=BOATS, **columns):
    """A pair of the first note, whose texts differ from those of any other number."""
    return {
        "schema": SCHEMA,
        "prompt": [
            {"role": "system", "content": "You keep notes."},
            {
                "role": "user",
                "content": f"Write a note.\n\nPassages:\n{PASSAGES}\n\nQuestion: Which country? ({number})",
            },
        ],
        "chosen": [{"role": "assistant", "content": f"{chosen} ({number})"}],
        "rejected": [{"role": "assistant", "content": f"{rejected} ({number})"}],
        "stage": "deepnote/init_note",
        "question_id": f"q{number}",
        "dataset": "musique",
        "judge": "reference",
        **columns,
    }


def pairs_folder(folder, count=3, **columns):
    """A folder with so many pairs."""
    return write(folder, [pair(number, **columns) for number in range(count)])


__all__ = ["BOATS", "FACTS", "HOSTILE", "pair", "pairs_folder", "write"]
