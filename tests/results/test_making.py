"""`notewriter table --make true`: the plan is printed first, and nothing is written by it."""

import json
from pathlib import Path

import pytest

from notewriter.experiments import pipeline
from notewriter.experiments.run import read_pipeline
from notewriter.ground.errors import UserError
from notewriter.results import table

OPTIONS = '{"serve_options": {"max_model_len": 8192}}'
ROW = ["papers/deepnote/table_1", "--cells", "musique/deepnote/Llama-3.1-8B-Instruct*"]


def main(options):
    table.main([*options, "--make", "true"])


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTEWRITER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_a_dry_run_says_what_it_takes_and_what_is_left_out(capsys, tmp_path):
    main([*ROW, "--dry_run", "true"])
    printed = capsys.readouterr().out
    assert "to be done: 7 of 7 steps" in printed and "GPU hours" in printed and "dollars" in printed
    assert (
        "left out: 1 cells of Llama-3.1-8B-Instruct with DPO: add --set dpo_llama=PATH; "
        "configs/dpo/deepnote_llama3.1-8b.yaml trains it"
    ) in printed
    assert not list(tmp_path.iterdir())


def test_the_stages_can_be_written_as_a_pipeline_up_to_the_fetching_or_the_indexes(tmp_path):
    for until, last in {"fetch": "fetch model", "index": "index musique-ircot", "table": "write the table"}.items():
        main(
            [
                *ROW,
                "--write",
                "p.yaml",
                "--until",
                until,
                "--limit",
                "20",
                "--set",
                "indexes=my indexes",
                "--options",
                OPTIONS,
            ]
        )
        runs = read_pipeline(Path("p.yaml")).runs
        assert runs[-1].title.startswith(last)
    assert runs[-1].argv()[2:] == [
        *("papers/deepnote/table_1", "--output_dir", "runs/papers", "--set", "indexes=my indexes", "--limit", "20"),
        *("--options", OPTIONS),
        *("--cells", "musique/deepnote/Llama-3.1-8B-Instruct"),
    ]
    assert "my indexes/musique-ircot" in runs[-3].argv()
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_files_that_are_not_the_published_ones_are_taken_where_the_user_says_so():
    main([*ROW, "--write", "p.yaml", "--check", "false"])
    fetched = [run for run in read_pipeline(Path("p.yaml")).runs if run.argv()[1] == "fetch"]
    assert fetched and all(run.argv()[-2:] == ["--check", "false"] for run in fetched)


def test_cells_that_all_lack_a_checkpoint_are_refused():
    with pytest.raises(
        UserError, match=r"none of the cells can run; musique/deepnote/.* with DPO: add --set dpo_llama"
    ):
        main(["papers/deepnote/table_1", "--cells", "musique/deepnote/Llama*DPO"])


def test_the_written_pipeline_is_one_of_jobs(tmp_path, capsys):
    main([*ROW, "--write", "p.yaml"])
    (tmp_path / "cluster.env").write_text("GPUS_PER_NODE=8\n")
    capsys.readouterr()
    pipeline.main(["p.yaml", "--on", "slurm", "--dry_run", "true", "--cluster_env", "cluster.env"])
    jobs = {line.partition("=")[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("job_")}
    assert len(jobs) == 7
    evaluation = jobs["job_6"]
    assert "--gpus-per-node=1" in evaluation and "--mem=60G" in evaluation and "--time=" in evaluation
    assert "--dependency=afterok:$job_1:$job_3:$job_5" in evaluation


def written(folder, manifest):
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("folder", "manifest", "told"),
    [
        ("index/musique-ircot", {"kind": "bm25", "passages": 196}, "musique-ircot: is another corpus: 196 passages"),
        (
            "index/musique-ircot",
            {"kind": "dense", "encoder": "e5", "passages": 139_416},
            "is another retriever: e5; the table searches ircot-musique, 139,416 passages, by BM25",
        ),
        ("corpus/ircot-musique", {"settings": {"source": "folder"}}, "has documents of folder; the table searches"),
    ],
    ids=["other passages", "other retriever", "other documents"],
)
def test_what_lies_in_the_place_of_an_index_or_corpus_is_not_taken_for_it(tmp_path, folder, manifest, told):
    """Nothing is planned, fetched or evaluated over it."""
    written(tmp_path / "runs" / folder, manifest)
    with pytest.raises(UserError, match=told) as error:
        main([*ROW, "--dry_run", "true"])
    assert "--set indexes=FOLDER corpora=FOLDER" in str(error.value)
    main([*ROW, "--dry_run", "true", "--set", "indexes=mine", "corpora=mine_too"])


def test_an_index_of_files_that_the_user_says_are_others_may_have_another_size(tmp_path):
    """So a run that was killed goes on; another retriever is still refused."""
    other_size = {"kind": "bm25", "passages": 196}
    written(tmp_path / "runs/index/musique-ircot", other_size)
    written(tmp_path / "runs/corpus/ircot-musique", {"settings": {"source": "ircot-musique"}, "passages": 196})
    main([*ROW, "--check", "false", "--dry_run", "true"])
    other_retriever = other_size | {"kind": "dense", "encoder": "e5"}
    (tmp_path / "runs/index/musique-ircot/manifest.json").write_text(json.dumps(other_retriever))
    with pytest.raises(UserError, match="is another retriever: e5"):
        main([*ROW, "--check", "false", "--dry_run", "true"])


def test_an_index_of_fewer_passages_than_its_corpus_is_built_again(tmp_path):
    """Where nobody states how many there are."""
    corpus = {"settings": {"source": "per-question"}, "passages": 30_000}
    written(tmp_path / "runs/corpus/rearag-musique", corpus)
    index = {"kind": "dense", "encoder": "BAAI/bge-base-en-v1.5", "passages": 196}
    written(tmp_path / "runs/index/rearag-musique", index)
    with pytest.raises(UserError, match=r"rearag-musique: has 196 passages, and its corpus .* 30000; remove the index"):
        main(["papers/rearag/table_1", "--cells", "musique/vanilla/GLM-4-9B", "--dry_run", "true"])


def test_indexes_that_the_user_puts_in_place_of_the_papers_are_taken(tmp_path):
    written(tmp_path / "mine/musique", {"kind": "bm25", "passages": 196})
    main([*ROW, "--indexes", "mine", "--dry_run", "true"])


def test_a_key_that_is_missing_is_said_before_anything_is_done(capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    main(["papers/deepnote/table_1", "--cells", "musique/direct/GPT-4o-mini", "--dry_run", "true"])
    assert "OPENAI_API_KEY is not set; https://api.openai.com/v1 may ask for it" in capsys.readouterr().out


def test_each_key_is_looked_for_under_its_own_name_and_for_every_role(capsys, monkeypatch):
    row = ["papers/deepnote/table_1", "--cells", "musique/deepnote/Llama-3.1-8B-Instruct", "--dry_run", "true"]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-someone")
    monkeypatch.delenv("OTHER_KEY", raising=False)
    role = '{"models": {"answer": {"base_url": "https://other.example/v1", "model": "m", "api_key_env": "OTHER_KEY"}}}'
    main([*row, "--options", role])
    assert "OTHER_KEY is not set; https://other.example/v1 may ask for it\n" in capsys.readouterr().out
    monkeypatch.setenv("OTHER_KEY", "another")
    main([*row, "--options", role])
    assert "may ask for it" not in capsys.readouterr().out


@pytest.fixture
def own(tmp_path, tiny_model):
    """Options that name a model, an index and questions of the user's, which are there."""
    written(tmp_path / "mine/musique", {"kind": "bm25", "passages": 196})
    (tmp_path / "mine.jsonl").write_text("")
    return ["--model", str(tiny_model), "--indexes", "mine", "--questions", '{"musique": "mine.jsonl"}']


def test_where_nothing_is_to_be_fetched_that_is_said(capsys, own, tmp_path):
    main([*ROW, *own, "--until", "fetch"])
    assert "nothing to be done until fetch" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.jsonl"]


@pytest.mark.parametrize("more", [[], ["--dry_run", "true"], ["--until", "fetch"], ["--write", "p.yaml"]])
def test_what_is_missing_and_cannot_be_made_ends_the_command_after_the_plan(capsys, own, more, tmp_path):
    (tmp_path / "mine/musique/manifest.json").unlink()
    with pytest.raises(
        UserError, match=r"table_1.yaml: missing, and made by no step: index: mine/musique: is not there"
    ):
        main([*ROW, *own, *more])
    assert "to be done: " in capsys.readouterr().out
    assert not (tmp_path / "runs").exists() and not (tmp_path / "p.yaml").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--output", "page.md"], "--output has no effect: .* is a paper's table"),
        (["--page", "false", "--make", "true"], "--page has no effect: --make does every step"),
        (["--retry_errors", "true", "--make", "true"], "--retry_errors has no effect"),
        (["--retry-errors=true", "--make", "true"], "--retry_errors has no effect"),
        (["--until", "fetch"], "--until has no effect: .*add --make true"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options, why):
    with pytest.raises(UserError, match=why):
        table.main([*ROW, *options])
