import pytest
import yaml
from datasets import load_dataset
from pair_rows import row
from parquet_files import write_rows

from notewriter.artifacts.pairs import COLUMNS
from notewriter.data.dataset.card import PAIRS_CARD, model_names, settings, write_card

CONFIG = {
    "dataset": "2wikimultihopqa",
    "path": "/home/someone/2wiki/train.json",
    "index": "/home/someone/index",
    "stages": {"deepnote/init_note": "reference"},
    "temperatures": [0.1, 0.5],
    "quotas": {},
    "limit": None,
    "serve": "/home/someone/models/Teacher-7B",
    "base_url": None,
    "model": None,
    "models": {"judge": {"base_url": "http://node7:8000/v1", "model": "Qwen/Qwen2.5-72B-Instruct", "api_key_env": "K"}},
}
STATS = {
    "questions": 12,
    "pairs": {"train": 6, "dev": 1},
    "stages": {"deepnote/init_note": {"pairs": 7, "dropped": {"judge reply not readable": 5}}},
    "hygiene": {
        "questions_dropped": {"the question is in an evaluation file": 2},
        "evaluation_files": {
            "/home/someone/dev.json": {
                "questions": 500,
                "training_questions_dropped": 2,
                "evaluation_questions_met": 2,
            }
        },
    },
    "config_hash": "0123456789abcdef",
    "version": "0.1.0",
}


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path / "train.parquet", COLUMNS, map(row, range(6)))
    write_rows(tmp_path / "dev.parquet", COLUMNS, [row(6)])
    # Other files of such a folder, which `datasets` must not load as data.
    (tmp_path / "rollouts.jsonl").write_text('{"question_id": "q0"}\n')
    (tmp_path / "stats.json").write_text("{}")
    return tmp_path


def card(folder, **changes):
    return card_of(folder, STATS, changes)


def card_of(folder, stats, changes):
    write_card(folder, CONFIG | changes, stats, PAIRS_CARD)
    return (folder / "README.md").read_text()


def test_a_folder_with_its_card_loads_by_its_name_alone(folder, tmp_path_factory):
    card(folder)
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path_factory.mktemp("cache")))
    assert {split: data.num_rows for split, data in loaded.items()} == {"train": 6, "dev": 1}
    assert loaded["train"].column_names == COLUMNS.names


def test_the_metadata_names_the_licence_and_the_files_of_each_split(folder):
    _, metadata, _ = card(folder).split("---\n", 2)
    told = yaml.safe_load(metadata)
    assert told["license"] == "apache-2.0" and told["size_categories"] == "n<1K"
    assert told["configs"][0]["data_files"] == [
        {"split": "train", "path": "train.parquet"},
        {"split": "dev", "path": "dev.parquet"},
    ]


def test_a_licence_that_is_not_known_is_not_guessed(folder):
    text = card(folder, dataset="jsonl")
    assert "license:" not in text
    assert "look it up at their source" in text


def test_the_card_has_yield_hygiene_and_recipe(folder):
    text = card(folder)
    assert "| deepnote/init_note | reference | 7 | 5 judge reply not readable |" in text
    assert "- 2 questions left out: the question is in an evaluation file" in text
    assert "- Held against dev.json (500 questions): 2 training questions left out." in text
    assert r"| temperatures | \[0.1, 0.5\] |" in text
    assert "| policy | Teacher-7B |" in text and "| judge | Qwen/Qwen2.5-72B-Instruct |" in text


def test_the_card_says_that_overlap_with_several_files_is_counted_once(folder):
    (file, overlap), *_ = STATS["hygiene"]["evaluation_files"].items()
    several = STATS["hygiene"] | {"evaluation_files": {file: overlap, "/home/someone/test.json": overlap}}
    told = "a question that overlaps with several of these files counts for one of them"
    assert told in card_of(folder, STATS | {"hygiene": several}, {}) and told not in card(folder)


def test_the_card_counts_the_questions_that_were_rolled_out(folder):
    assert "from rollouts over 12 questions" in card(folder)
    assert "from rollouts over 8 questions" in card_of(folder, STATS | {"questions_rolled_out": 8}, {})


def test_the_card_says_how_well_length_and_the_strongest_features_name_the_chosen_side(folder):
    def feature(predicts):
        return {"chosen_higher": 4, "rejected_higher": 2, "predicts": predicts}

    features = {f"feature {number}": feature(0.9) for number in range(6)} | {"words": feature(0.6429)}
    told = {"pairs": 7, "features": features, "together": 0.8571}
    text = card_of(folder, STATS | {"shortcuts": {"deepnote/init_note": told}}, {})
    assert "| deepnote/init_note | words | 4 | 2 | 1 | 0.6429 |" in text
    assert "feature 4 |" in text and "feature 5 |" not in text
    assert "| deepnote/init_note | all together, on held-out questions | | | | 0.8571 |" in text
    assert "## Shortcuts" not in card(folder)


def test_judges_that_break_each_others_ties_are_listed_in_their_order(folder):
    text = card(folder, stages={"deepnote/init_note": ["outcome", "llm"]})
    assert "| deepnote/init_note | outcome, then llm | 7 |" in text


def test_neither_folders_nor_servers_nor_markup_get_into_the_card(folder):
    text = card(
        folder,
        prompts_dir="/home/someone/prompts",
        family="a | b",
        retriever=[{"url": "http://node7:9200"}, {"index": "/home/someone/index"}],
        question_set="/home/someone/set.yaml",
    )
    for private in ("/home", "node7", "api_key_env"):
        assert private not in text
    assert r"| family | a \| b |" in text


def test_models_are_named_by_hub_id_name_or_last_part_of_a_folder():
    assert model_names({"serve": None, "model": "gpt-x", "models": {}}) == {"policy": "gpt-x"}
    assert model_names({"models": {"policy": {"serve": "Qwen/Qwen2.5-7B"}}}) == {"policy": "Qwen/Qwen2.5-7B"}


def test_settings_are_those_of_the_recipe_without_places_and_servers_of_a_machine():
    served = {"replicas": 2, "port": 8000, "concurrency": 8, "cache": "c.sqlite", "output_dir": "runs/pairs"}
    assert settings(CONFIG | served | {"seed": 1, "split": "train"}) == {
        "temperatures": [0.1, 0.5],
        "seed": 1,
        "split": "train",
    }
