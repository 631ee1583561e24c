"""Whether the Hub has a model."""

from types import SimpleNamespace

from notewriter.models.hub import commit_on_hub


def test_a_model_has_its_newest_commit(monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: SimpleNamespace(sha="c0ffee"))
    assert commit_on_hub("owner/model") == "c0ffee"


def test_a_hub_that_cannot_be_reached_has_none_and_says_why(monkeypatch, caplog):
    def refuse(*_, **__):
        raise OSError("Connection refused")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    with caplog.at_level("INFO", logger="notewriter"):
        assert commit_on_hub("owner/model") is None
    assert "owner/model: cannot be reached on the Hugging Face Hub (Connection refused)" in caplog.text


def test_offline_it_is_not_asked(monkeypatch, caplog):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with caplog.at_level("INFO", logger="notewriter"):
        assert commit_on_hub("owner/model") is None
    assert "offline mode is enabled" in caplog.text
