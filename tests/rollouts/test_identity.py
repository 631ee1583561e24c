"""What makes a run the same run: settings with an effect, and the contents behind its paths, not the paths."""

import json
import sys
from importlib.metadata import EntryPoint

import pytest
import yaml

from notewriter.datasets.questions import QuestionArguments
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.methods import METHODS
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import config_hash, contents, open_run

KINDS = (QuestionArguments, ModelArguments)


def open_and_leave(folder, config):
    with open_run(folder, config, kinds=KINDS) as opened:
        return opened


def hash_of(config):
    return config_hash(config, *KINDS)


def test_settings_without_effect_may_differ_and_the_last_ones_are_kept(tmp_path):
    before = {"seed": 0, "concurrency": 64, "port": None, "cache": "a", "output_dir": "runs/a"}
    after = {"seed": 0, "concurrency": 8, "port": 8000, "cache": "b", "output_dir": "/runs/a"}
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == after
    assert hash_of(before) == hash_of(after) != hash_of(before | {"seed": 1})


def test_a_model_may_be_reached_elsewhere_when_a_run_goes_on_but_must_be_the_same(tmp_path):
    def config(model, **settings):
        return {"base_url": settings["base_url"], "models": {"judge": {"model": model, **settings}}}

    before = config("m", base_url="http://node7:8000/v1", attempts=8)
    after = config("m", base_url="http://node8:8001/v1,http://node9:8001/v1", timeout=60.0)
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert hash_of(before) == hash_of(after)
    with pytest.raises(UserError, match=r"contains a run with models: \{'judge': \{'model': 'm'\}\}, not"):
        open_and_leave(tmp_path, config("n", base_url="http://node7:8000/v1"))


def test_the_hash_does_not_depend_on_the_order_of_keys():
    assert hash_of({"a": 1, "b": {"c": 2, "d": 3}}) == hash_of({"b": {"d": 3, "c": 2}, "a": 1})


def served(tmp_path):
    """A configuration, and the files behind its paths by what they are."""
    files = {
        "weights": tmp_path / "model" / "model.safetensors",
        "judge": tmp_path / "judge" / "model.safetensors",
        "index": tmp_path / "index" / "manifest.json",
        "prompt": tmp_path / "prompts" / "deepnote" / "decide.jinja",
    }
    for path in files.values():
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"source": "a corpus", "query_device": "cpu"}))
    config = {
        "serve": str(tmp_path / "model"),
        "models": {"judge": {"serve": str(tmp_path / "judge")}, "answer": {"base_url": "http://a/v1", "model": "m"}},
        "index": [str(tmp_path / "index")],
        "prompts_dir": str(tmp_path / "prompts"),
    }
    return config, files


@pytest.mark.parametrize(
    ("changed", "setting"),
    [("weights", "served"), ("judge", "serve: .*judge"), ("index", "index: "), ("prompt", "prompts_dir: ")],
)
def test_a_model_trained_again_a_rebuilt_index_and_an_edited_prompt_are_another_run(tmp_path, changed, setting):
    config, files = served(tmp_path)
    open_and_leave(tmp_path / "a", config)
    open_and_leave(tmp_path / "a", config)
    files[changed].write_text(json.dumps({"source": "another one"}))
    with pytest.raises(UserError, match=f"a: contains a run with other contents of {setting}.*; choose another output"):
        open_and_leave(tmp_path / "a", config)


def test_where_an_index_is_searched_and_notes_beside_a_model_change_nothing(tmp_path):
    config, files = served(tmp_path)
    open_and_leave(tmp_path / "a", config)
    files["index"].write_text(json.dumps({"source": "a corpus", "query_device": "cuda"}))
    (tmp_path / "model" / "README.md").write_text("trained for long")
    open_and_leave(tmp_path / "a", config)


def test_a_folder_without_a_record_goes_on_and_has_one_from_then_on(tmp_path):
    config, files = served(tmp_path)
    folder = open_and_leave(tmp_path / "a", config)
    (folder / "run.json").unlink()
    files["weights"].write_text("trained again")
    open_and_leave(folder, config)
    files["weights"].write_text("and again")
    with pytest.raises(UserError, match="other contents of serve"):
        open_and_leave(folder, config)


def test_a_model_that_was_removed_since_is_no_other_model(tmp_path):
    config, files = served(tmp_path)
    open_and_leave(tmp_path / "a", config)
    files["weights"].unlink()
    files["weights"].parent.rmdir()
    open_and_leave(tmp_path / "a", config)
    files["weights"].parent.mkdir()
    files["weights"].write_text("another one")
    with pytest.raises(UserError, match="other contents of serve"):
        open_and_leave(tmp_path / "a", config)


def test_a_run_of_a_version_without_question_sets_goes_on_and_has_the_same_hash(tmp_path):
    before = {"dataset": "hotpotqa", "limit": 3}
    after = before | {"question_set": None}
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert hash_of(before) == hash_of(after)
    with pytest.raises(UserError, match=r"contains a run with question_set: None, not 'set\.txt'"):
        open_and_leave(tmp_path, before | {"question_set": "set.txt"})


@pytest.mark.parametrize("step", ["rerank", "extract"])
def test_another_model_in_a_step_of_the_retriever_is_noticed(step, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    config = {"retriever": [{"index": "absent"}, {step: str(tmp_path)}]}
    before = contents(config)
    assert list(before) == [f"{step}: {tmp_path}"]
    (tmp_path / "model.safetensors").write_bytes(b"others!")
    assert contents(config) != before


def test_another_file_of_the_questions_passages_is_noticed(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"question_id": "q", "passages": ["a"]}\n')
    config = {"retriever": [{"index": "absent"}, {"within": str(file)}]}
    before = contents(config)
    assert list(before) == [f"within: {file}"]
    file.write_text('{"question_id": "q", "passages": ["b"]}\n')
    assert contents(config) != before
    for without_contents in ("pages", "absent.jsonl"):
        assert contents({"retriever": [{"index": "absent"}, {"within": without_contents}]}) == {}


def test_another_chat_template_in_a_file_that_an_option_names_is_noticed(tmp_path):
    template = tmp_path / "fixed.jinja"
    template.write_text("{{ messages }}")
    config = {"serve_options": {"chat_template": str(template), "dtype": "float32", "max_model_len": 4096}}
    before = contents(config)
    assert list(before) == [f"serve_options: chat_template: {template}"]
    template.write_text("{{ messages[0] }}")
    assert contents(config) != before


OWN = {
    "judge": {"stages": {"deepnote/init_note": ["outcome", "{file}:mine"]}},
    "metric family": {"stages": {"deepnote/init_note": "outcome"}, "family": "{file}:mine"},
    "method": {"method": "{file}:mine"},
}
"""The settings in which code of one's own decides what a run keeps."""


def with_own_code(kind, file):
    """The configuration of `OWN` with that file."""
    return json.loads(json.dumps(OWN[kind]).replace("{file}", str(file)))


@pytest.mark.parametrize("kind", OWN)
def test_code_of_ones_own_that_was_edited_is_another_run(kind, tmp_path):
    file = tmp_path / "mine.py"
    config = with_own_code(kind, file)
    file.write_text("mine = 1\n")
    open_and_leave(tmp_path / "a", config)
    open_and_leave(tmp_path / "a", config)
    file.write_text("mine = 2\n")
    with pytest.raises(UserError, match=f"contains a run with other contents of {kind}: .*mine.py:mine, .*; choose"):
        open_and_leave(tmp_path / "a", config)
    # Told without a look into what the file says, which a folder alone is no reason to run.
    assert f"{kind}: {file}:mine" in contents(config, recorded=True)


def test_the_family_of_an_evaluation_may_change_since_it_scores_anew_and_ours_are_no_files(tmp_path):
    (tmp_path / "mine.py").write_text("")
    config = {"method": "deepnote", "family": f"{tmp_path / 'mine.py'}:mine"}
    assert contents(config) == {}
    assert contents({"stages": {"deepnote/init_note": ["outcome", "llm"]}, "family": "hotpotqa"}) == {}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A method `mine` of an installed package, with a prompt beside its module; the module's file."""
    package = tmp_path / "of_a_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from notewriter.rollouts.method import Method, Stage\n"
        "async def mine(question, rollout): return ''\n"
        "METHOD = Method(mine, (Stage('mine/note', 'notes', 'note'),))\n"
    )
    (package / "note.jinja").write_text("Write a note.")
    (package / "parsing.py").write_text("def parsed(reply): return reply\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "of_a_package:METHOD", "notewriter.methods")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == point.group else [])
    yield package
    sys.modules.pop("of_a_package", None)


@pytest.mark.parametrize(
    "config", [{"method": "mine"}, {"gold_stages": ["mine/note"]}, {"stages": {"mine/note": "llm"}}]
)
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("__init__.py", "method: mine"),
        ("parsing.py", "modules beside method: mine"),
        ("note.jinja", "prompts: mine"),
    ],
)
def test_so_is_an_edited_method_of_an_installed_package_with_its_other_modules_and_its_prompts(
    config, changed, named, installed, tmp_path
):
    assert METHODS["mine"].name == "mine"
    open_and_leave(tmp_path / "a", config)
    open_and_leave(tmp_path / "a", config)
    with (installed / changed).open("a") as file:
        file.write("# Another line.\n")
    with pytest.raises(UserError, match=f"contains a run with other contents of {named}, which"):
        open_and_leave(tmp_path / "a", config)
