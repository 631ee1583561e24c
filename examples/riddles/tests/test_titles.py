import asyncio
import json

from riddles.titles import Titles, TitlesOptions, titles

PASSAGES = [{"id": "1", "title": "Comb", "text": "It has teeth."}, {"id": "2", "title": "Water", "text": "It runs."}]


def written(path, passages):
    path.write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    return TitlesOptions(titles=str(path))


def test_passages_are_found_by_their_title(tmp_path):
    source = Titles(written(tmp_path / "passages.jsonl", PASSAGES))
    (passage,) = asyncio.run(source.search("Who made the first comb?", 5))
    assert passage.text == "It has teeth."
    assert asyncio.run(source.search("Who made the first comb?", 5, scope={"2"})) == []


def test_another_file_is_another_corpus(tmp_path):
    before = titles.identity(written(tmp_path / "passages.jsonl", PASSAGES))
    assert titles.identity(written(tmp_path / "passages.jsonl", PASSAGES[:1])) != before
