import json
import os
import random
import re
import subprocess
import sys
from dataclasses import asdict

import pytest

from notewriter.data.world.generation import Names, World, generate
from notewriter.data.world.wording import (
    ADJECTIVES,
    BUSINESSES,
    NOUNS,
    ONSETS,
    REGION_ENDINGS,
    RELATIONS,
    TOWN_ENDINGS,
    VOWELS,
)
from notewriter.data.world.world import main
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage

SIZES = {"train": 40, "test": 20}


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return generate(7, SIZES)


def by_id(split: World) -> dict[str, Passage]:
    return {passage.id: passage for passage in split.passages}


def stems(split: World) -> set[str]:
    """The invented words in the titles, towns and regions without their endings."""
    generic = {"The", "in", "of", *ADJECTIVES}
    generic |= {word for words in (*NOUNS.values(), *BUSINESSES.values()) for word in words}
    words = {word for passage in split.passages for word in passage.title.split()} - generic
    endings = "|".join([*TOWN_ENDINGS, *REGION_ENDINGS])
    return {re.sub(f"({endings})$", "", word) for word in words}


def test_the_same_seed_and_sizes_give_the_same_worlds_and_another_seed_another(worlds):
    assert generate(7, SIZES) == worlds
    assert stems(generate(8, SIZES)["train"]) != stems(worlds["train"])


def test_the_worlds_do_not_depend_on_the_hash_seed_of_the_process():
    code = "from notewriter.data.world.generation import generate; print(generate(7, {'train': 3, 'test': 2}))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_there_are_as_many_questions_as_asked_for_all_different_with_two_or_three_hops(worlds):
    for split, size in SIZES.items():
        questions = worlds[split].questions
        assert len({question.id for question in questions}) == len({q.question for q in questions}) == size
        assert {question.metadata["hops"] for question in questions} == {2, 3}


def test_splits_share_no_entity_no_id_and_no_invented_word(worlds):
    train, test = worlds["train"], worlds["test"]
    assert not {p.title for p in train.passages} & {p.title for p in test.passages}
    assert not by_id(train).keys() & by_id(test).keys()
    assert not stems(train) & stems(test)


def test_names_never_run_out_and_never_repeat():
    names = Names(random.Random(0))
    made = [names.stem(links=0, endings=["l"]) for _ in range(2000)]
    assert len(set(made)) == 2000 > len(ONSETS) * len(VOWELS)


def test_every_hop_has_its_passage_and_a_sentence_in_it_that_names_its_entity_in_full(worlds):
    for split in worlds.values():
        passages = by_id(split)
        for question in split.questions:
            assert len(question.supporting_ids) == len(question.supporting_facts) == question.metadata["hops"]
            assert len(question.metadata["type"].split(" > ")) == question.metadata["hops"]
            for passage_id, fact in zip(question.supporting_ids, question.supporting_facts, strict=True):
                assert fact in re.split(r"(?<=\.) ", passages[passage_id].text)
                assert passages[passage_id].title in fact


def test_each_hop_leads_to_the_next_passage_and_the_last_to_the_answer(worlds):
    for split in worlds.values():
        passages = by_id(split)
        for question in split.questions:
            titles = [passages[passage_id].title for passage_id in question.supporting_ids]
            assert titles[0] in question.question
            for fact, found in zip(question.supporting_facts, [*titles[1:], *question.answers], strict=True):
                assert found in fact


def test_no_question_gives_its_answer_away_and_no_passage_skips_a_hop(worlds):
    for split in worlds.values():
        passages = by_id(split)
        for question in split.questions:
            found = [passages[i].title for i in question.supporting_ids[1:]] + [question.answers[0]]
            for position, name in enumerate(found):
                assert name not in question.question
                assert not any(name in passages[i].text for i in question.supporting_ids[:position])


def test_the_answer_is_unique_because_each_relation_of_an_entity_is_stated_once(worlds):
    """Every sentence that any wording of a relation can produce for the entity is looked for in the whole corpus."""
    for split in worlds.values():
        corpus = [sentence for p in split.passages for sentence in re.split(r"(?<=\.) ", p.text)]
        for question in split.questions:
            relation = question.metadata["type"].split(" > ")[-1]
            title = by_id(split)[question.supporting_ids[-1]].title
            wordings = [
                re.escape(template).replace(r"\{s\}", re.escape(title)).replace(r"\{o\}", r"([\w ]+?)")
                for relations in RELATIONS.values()
                if relation in relations
                for template in relations[relation].sentences
            ]
            matches = (re.fullmatch(wording, sentence) for sentence in corpus for wording in wordings)
            found = {match[1] for match in matches if match}
            assert found == set(question.answers)


def test_passages_are_short_plain_and_about_their_title(worlds):
    for split in worlds.values():
        assert len({passage.title for passage in split.passages}) == len(split.passages)
        for passage in split.passages:
            sentences = re.split(r"(?<=\.) ", passage.text)
            assert 3 <= len(sentences) <= 5
            assert 40 <= len(passage.text.split()) <= 80
            assert all(passage.title in sentence for sentence in sentences)


def test_most_passages_are_distractors_some_with_half_a_name_in_common(worlds):
    train = worlds["train"]
    needed = {passage_id for question in train.questions for passage_id in question.supporting_ids}
    assert len(train.passages) > 2 * len(needed)
    surnames = [p.title.split()[1] for p in train.passages if re.fullmatch(r"\w+ \w+", p.title)]
    assert len(set(surnames)) < len(surnames) / 2


def test_a_world_of_one_question_can_be_made_and_one_of_none_cannot():
    assert len(generate(0, {"tiny": 1})["tiny"].questions) == 1
    with pytest.raises(UserError, match="test: a world of 0 questions"):
        generate(0, {"test": 0})


def test_the_command_writes_both_splits_once(tmp_path, capsys):
    argv = ["--output_dir", str(tmp_path / "w"), "--seed", "3", "--train", "4", "--test", "2"]
    main(argv)
    assert "train: 4 questions" in capsys.readouterr().out
    expected = generate(3, {"train": 4, "test": 2})
    for split, made in expected.items():
        for name, records in (("corpus", made.passages), ("questions", made.questions)):
            lines = (tmp_path / "w" / split / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
            assert lines == [json.dumps(asdict(record)) for record in records]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}
    main(argv)
    assert "already exists" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}


def test_the_command_completes_what_a_killed_one_left(tmp_path):
    argv = ["--output_dir", str(tmp_path), "--train", "2", "--test", "2"]
    main(argv)
    questions = tmp_path / "test" / "questions.jsonl"
    whole = questions.read_bytes()
    questions.unlink()
    main(argv)
    assert questions.read_bytes() == whole


def test_the_command_overwrites_neither_another_world_nor_other_files(tmp_path):
    main(["--output_dir", str(tmp_path / "w"), "--train", "2", "--test", "2"])
    with pytest.raises(UserError, match=r"world\.json: contains a world with other settings; choose another"):
        main(["--output_dir", str(tmp_path / "w"), "--train", "3", "--test", "2"])
    corpus = tmp_path / "mine" / "train" / "corpus.jsonl"
    corpus.parent.mkdir(parents=True)
    corpus.write_text("mine")
    with pytest.raises(UserError, match=r"corpus\.jsonl: already exists"):
        main(["--output_dir", str(tmp_path / "mine")])
    assert corpus.read_text() == "mine"


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_worlds_with_one_number_of_hops_only(hops) -> None:
    questions = generate(3, {"train": 20}, hops=[hops])["train"].questions
    assert {question.metadata["hops"] for question in questions} == {hops}


def test_other_numbers_of_hops_are_refused() -> None:
    with pytest.raises(UserError, match="choose from 1, 2 and 3"):
        generate(3, {"train": 5}, hops=[4])
