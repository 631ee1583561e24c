import json
import shutil
from collections import Counter

import pyarrow.parquet
import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config, tiny_world

from notewriter.artifacts.run_record import read_inputs
from notewriter.data import build_chains, build_pairs, merge_shards
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

RESULTS = ("train.parquet", "dev.parquet", "stats.json")
QUOTAS = {"deepnote/init_note": 5, "deepnote/decide": 2}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), 8)


@pytest.fixture(scope="module")
def build(world, tmp_path_factory):
    """Build pairs of a shard (or of everything) in a folder of its own; returns the folder."""
    folder = tmp_path_factory.mktemp("runs")

    with fake_endpoint() as endpoint:

        def run(name, shard=None, **changes):
            settings = {
                "stages": {"deepnote/init_note": "reference", "deepnote/decide": "status"},
                "gold_stages": ["deepnote/init_note", "deepnote/decide"],
                "method_options": {"deepnote": {"max_step": 1, "max_failure": 1}},
                "temperatures": [0.1, 0.9],
                "top_ps": [0.9],
                "dev_share": 0.3,
                **({"shard": shard} if shard else {}),
            }
            build_pairs.main(run_config(folder, name, world, endpoint, settings | changes))
            return folder / name

        yield run


@pytest.fixture(scope="module")
def shards(build):
    return [build(f"shard{number}", f"{number}/3") for number in (1, 2, 3)]


def merge(folders, output):
    merge_shards.main(["--shards", *map(str, folders), "--output_dir", str(output)])
    return output


def stats(folder):
    return json.loads((folder / "stats.json").read_text())


def stages(folder):
    return Counter(row["stage"] for row in pyarrow.parquet.read_table(folder / "train.parquet").to_pylist())


def ids(folder):
    return [row["question_id"] for row in pyarrow.parquet.read_table(folder / "train.parquet").to_pylist()]


def test_merged_shards_are_what_a_run_without_shards_makes(build, shards, tmp_path, capsys):
    whole, merged = build("whole"), merge(shards[::-1], tmp_path / "merged")
    for name in RESULTS:
        assert (merged / name).read_bytes() == (whole / name).read_bytes()
    assert f"development pairs in {merged}" in capsys.readouterr().out


def test_no_question_is_in_two_shards_and_none_on_both_sides_of_the_split(shards, tmp_path):
    dev = set()
    for one in shards:
        assert not any(set(ids(one)) & set(ids(other)) for other in shards if other != one)
        if (one / "dev.parquet").exists():
            dev |= {row["question_id"] for row in pyarrow.parquet.read_table(one / "dev.parquet").to_pylist()}
    assert dev and not dev & {id for shard in shards for id in ids(shard)}


def test_the_quotas_of_the_shards_add_up_and_are_reported(build, tmp_path, capsys):
    folders = [build(f"quota{number}", f"{number}/3", quotas=QUOTAS, dev_share=0.0) for number in (1, 2, 3)]
    assert [stats(folder)["quotas"] for folder in folders] == [
        {"deepnote/init_note": 2, "deepnote/decide": 1},
        {"deepnote/init_note": 2, "deepnote/decide": 1},
        {"deepnote/init_note": 1, "deepnote/decide": 0},
    ]
    for folder in folders:
        assert stages(folder).items() <= stats(folder)["quotas"].items()
    merged = merge(folders, tmp_path / "merged")
    assert stages(merged) == QUOTAS == stats(merged)["quotas"]
    assert stats(merged)["pairs"]["train"] == 7 and stats(merged)["quotas_kept_in_shards"] == 3
    assert "quotas were kept in 3 shards" in (merged / "README.md").read_text()
    assert "quotas were split over 3 shards: as many pairs as a single run" in capsys.readouterr().out


def test_merged_shards_below_a_quota_say_so_and_resume_as_one_run(build, tmp_path, capsys):
    stage = "deepnote/init_note"
    quota = {"stages": {stage: "reference"}, "gold_stages": [stage], "quotas": {stage: 4}, "quota_block": 1}
    changes = quota | {"dev_share": 0.0}
    # The first shard has its two pairs before its last question; of the other's questions none gives a pair.
    one, other = (build(f"short{number}", f"{number}/2", **changes) for number in (1, 2))
    for _ in range(2):
        build("short2", "2/2", **changes)
        records = [record | {"rows": []} for _, record in jsonl.read(other / "rollouts.jsonl")]
        jsonl.write(other / "rollouts.jsonl", records)

    merged = merge([one, other], tmp_path / "merged")
    assert "below its quota of 4" in capsys.readouterr().out
    assert stages(merged) == {stage: 3}
    build("merged", output_dir=str(merged), **changes)
    assert stages(merged) == {stage: 4}
    assert stats(merged)["quotas_kept_in_shards"] == 2
    # What the run without shards has added stays.
    merge([one, other], merged)
    assert stages(merged) == {stage: 4}


@pytest.mark.parametrize(
    ("choose", "problem"),
    [
        (lambda shards, other: shards[:2], r"shard 3/3 is missing; run it"),
        (lambda shards, other: [*shards, shards[0]], r"shard1: is shard 1/3, and so is .*shard1; give each once"),
        (lambda shards, other: [shards[0], other, shards[2]], r"has min_gap: 0\.3, but .*shard1 has 0\.0"),
    ],
    ids=["missing", "twice", "other settings"],
)
def test_shards_that_do_not_fit_are_refused(build, shards, tmp_path, choose, problem):
    other = build("other", "2/3", min_gap=0.3)
    with pytest.raises(UserError, match=problem):
        merge(choose(shards, other), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_shards_that_another_index_was_searched_for_are_refused(shards, tmp_path):
    shutil.copytree(shards[1], tmp_path / "rebuilt")
    path = tmp_path / "rebuilt" / "run.json"
    (setting,) = (name for name in read_inputs(tmp_path / "rebuilt") if name.startswith("index"))
    path.write_text(path.read_text().replace(read_inputs(tmp_path / "rebuilt")[setting], "another one"))
    with pytest.raises(UserError, match=r"rebuilt: had other contents of index: .* than another shard; they do not"):
        merge([shards[0], tmp_path / "rebuilt", shards[2]], tmp_path / "merged")


def test_a_run_without_shards_and_shards_of_another_number_are_refused(build, shards, tmp_path):
    with pytest.raises(UserError, match=r"whole: is not a shard; give folders of"):
        merge([build("whole"), *shards], tmp_path / "merged")
    with pytest.raises(UserError, match=r"does not go with"):
        merge([build("half", "1/2"), *shards], tmp_path / "merged")


def test_an_unfinished_shard_is_refused(build, shards, tmp_path):
    cut = build("cut", "2/3")
    journal = cut / "rollouts.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"cut: is not finished, 1 questions are left; run it again first"):
        merge([shards[0], cut, shards[2]], tmp_path / "merged")


def test_shards_of_other_questions_are_refused(world, shards, tmp_path):
    others = [tmp_path / shard.name for shard in shards]
    digest = read_inputs(shards[0])["questions"]
    for shard, other in zip(shards, others, strict=True):
        shutil.copytree(shard, other)
        (other / "run.json").write_text((other / "run.json").read_text().replace(digest, "0" * 64))
    with pytest.raises(UserError, match=r"was built from other questions than .* contains now"):
        merge(others, tmp_path / "merged")


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"])
def test_an_invalid_shard_is_named(build, shard):
    with pytest.raises(UserError, match=r"shard: .* is not i/n with 1 <= i <= n"):
        build("refused", shard)


def test_a_shard_without_a_question_is_named(build):
    with pytest.raises(UserError, match=r"8 questions leave nothing for 9/9"):
        build("refused", "9/9")


# Chains


def chain_reply(request):
    """A teacher that searches once and finishes with a word, and an engine that finds one."""
    chat = request["messages"]
    if chat[0]["content"].startswith("Answer a search query"):
        return "Tolen"
    searched = any(message["role"] == "assistant" for message in chat)
    call = {"function": "finish", "parameters": {"answer": "Tolen"}}
    call = call if searched else {"function": "search", "parameters": {"query": chat[0]["content"][-40:]}}
    return f"Thought: So.\nAction: {json.dumps(call)}"


@pytest.fixture(scope="module")
def chains(world, tmp_path_factory):
    """Build chains of a shard (or of everything) in a folder of its own; returns the folder."""
    folder = tmp_path_factory.mktemp("chains")
    path = folder / "questions.jsonl"
    # Every second question has the teacher's answer.
    questions = (record for _, record in jsonl.read(world["path"]))
    jsonl.write(
        path, (each | {"answers": [["Osk"], ["Tolen Bridge"]][place % 2]} for place, each in enumerate(questions))
    )

    with fake_endpoint(chain_reply) as endpoint:

        def run(name, shard=None):
            settings = {"path": str(path), "dev_share": 0.3, **({"shard": shard} if shard else {})}
            build_chains.main(
                run_config(folder, name, world, endpoint, settings | {"cache": str(folder / "cache.sqlite")})
            )
            return folder / name

        yield run


def test_merged_chains_are_what_a_run_without_shards_makes(chains, tmp_path, capsys):
    shards = [chains(f"shard{number}", f"{number}/3") for number in (1, 2, 3)]
    assert [stats(shard)["questions"] for shard in shards] == [3, 3, 2]
    whole, merged = chains("whole"), merge(shards[::-1], tmp_path / "merged")
    assert stats(whole)["chains"]["train"] and stats(whole)["chains"]["dev"] and stats(whole)["dropped"]
    for name in (*RESULTS, "README.md"):
        assert (merged / name).read_bytes() == (whole / name).read_bytes()
    assert f"development chains in {merged}" in capsys.readouterr().out


def test_an_unfinished_shard_of_chains_is_refused_and_so_is_one_beside_pairs(chains, shards, tmp_path):
    one, two, three = (chains(f"cut{number}", f"{number}/3") for number in (1, 2, 3))
    with pytest.raises(UserError, match=r"they do not fit"):
        merge([one, two, shards[2]], tmp_path / "merged")
    journal = two / "rollouts.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"cut2: is not finished, 1 questions are left; run it again first"):
        merge([one, two, three], tmp_path / "merged")
