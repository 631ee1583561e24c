"""What must not be published is found whatever it is and however it hides; what cards and settings consist of is clean.

The secrets are made up here: random characters in the makers' formats.
"""

import json
import random
import string
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from notewriter.ground.errors import UserError
from notewriter.training.publishing import leaks

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
DRAW = random.Random(7)


def drawn(count: int, characters: str = LETTERS) -> str:
    return "".join(DRAW.choice(characters) for _ in range(count))


SECRETS = {
    "Hugging Face": f"hf_{drawn(34)}",
    "Hugging Face organisation": f"api_org_{drawn(34)}",
    "OpenAI": f"sk-proj-{drawn(60)}",
    "Anthropic": f"sk-ant-api03-{drawn(90)}",
    "OpenRouter": f"sk-or-v1-{drawn(64, HEX)}",
    "GitHub": f"ghp_{drawn(36)}",
    "GitHub, fine-grained": f"github_pat_{drawn(22)}_{drawn(59)}",
    "GitLab": f"glpat-{drawn(20)}",
    "Google": f"AIza{drawn(35)}",
    "Slack": f"xoxb-{drawn(12, string.digits)}-{drawn(12, string.digits)}-{drawn(24)}",
    "Stripe": f"sk_live_{drawn(24)}",
    "Groq": f"gsk_{drawn(52)}",
    "Replicate": f"r8_{drawn(37)}",
    "NVIDIA": f"nvapi-{drawn(64)}",
    "bearer token": f"Authorization: Bearer {drawn(39)}7",
    "npm": f"npm_{drawn(36)}",
    "npm in .npmrc": f"//registry.npmjs.org/:_authToken=npm_{drawn(36)}",
    "AWS key id": f"AKIA{drawn(16, string.ascii_uppercase + '234567')}",
    "AWS secret key": f"aws_secret_access_key = {drawn(40)}",
    "JSON web token": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ."
    + drawn(43),
    "Weights & Biases, 40 digits": f"WANDB_API_KEY={drawn(40, HEX)}",
    "Weights & Biases in .netrc": f"machine api.wandb.ai login user password {drawn(40, HEX)}",
    "Weights & Biases, new": f"wandb_v1_{drawn(70)}",
    "password in an address": f"postgres://trainer:{drawn(10)}@db.example.org:5432/runs",
    "password with symbols in an address": "https://trainer:a!b$c,d;e@tracker.example.org/x",
    "Fireworks": f"fw_{drawn(24)}",
    "Cerebras": f"csk-{drawn(48)}",
    "LangSmith": f"lsv2_pt_{drawn(32, HEX)}_{drawn(10, HEX)}",
    "Langfuse": f"sk-lf-{drawn(8, HEX)}-{drawn(4, HEX)}-{drawn(4, HEX)}-{drawn(4, HEX)}-{drawn(12, HEX)}a1b2c3d4e5f6",
    "Pinecone": f"pcsk_{drawn(6)}_{drawn(60)}",
    "Tavily": f"tvly-dev-{drawn(32)}",
    "Jina": f"jina_{drawn(64)}",
    "Voyage": f"pa-{drawn(43)}",
    "Firecrawl": f"fc-{drawn(32, HEX)}",
    "LlamaCloud": f"llx-{drawn(48)}",
    "RunPod": f"rpa_{drawn(46)}",
    "Databricks": f"dapi{drawn(32, HEX)}",
    "Kaggle, new": f"KGAT_{drawn(32, HEX)}",
    "Zhipu": f"{drawn(32, HEX)}.{drawn(16)}",
    "Google, new": f"AQ.{drawn(50)}",
    "Modal": f"as-{drawn(21)}7",
    "Nebius": f"v1.{drawn(100)}",
    "Azure, new": f"{drawn(52)}JQQJ99BAACYeBjFX{drawn(16)}",
    "another authorization": f"Authorization: Token {drawn(40, HEX)}",
    "login of curl": f"curl -s -u trainer:{drawn(12)} https://example.org",
    "Basic authorization": "Authorization: Basic dHJhaW5lcjpodW50ZXIyLTc3",
    "cookie": f"Cookie: theme=dark; session={drawn(24)}".replace("theme=dark; ", ""),
    "cookie of a file": f".example.org\tTRUE\t/\tTRUE\t1790000000\tsession\t{drawn(24)}",
    "netrc": "machine hub.example.org login trainer password hunter2x",
    "signed address of Azure": f"https://x.blob.core.windows.net/c?sv=2024&sig={drawn(43)}%3D",
    "PGP block": f"-----BEGIN PGP PRIVATE KEY BLOCK-----  {drawn(64)}",
    "OpenSSH key": f"-----BEGIN OPENSSH PRIVATE KEY-----  {drawn(64)}",
}
# What only its name makes one: not told apart from a token in a vocabulary, nor in tensors.
NAMED = {
    "password with symbols": 'password: "v#r!9-x$Q&"',
    "password without quotes": "DB_PASSWORD=Tr0ub4dor&3",
    "secret in JSON": f'"client_secret": "{drawn(24)}"',
    "Azure OpenAI": f"AZURE_OPENAI_KEY={drawn(32, HEX)}",
    "Azure header": f"Ocp-Apim-Subscription-Key: {drawn(32, HEX)}",
    "header": f"api-key: {drawn(32, HEX)}",
    "Kaggle": f'"username": "alice", "key": "{drawn(32, HEX)}"',
    "Kaggle variable": f"export KAGGLE_KEY={drawn(32, HEX)}",
    "token without a format": f"MISTRAL_TOKEN: {drawn(32)}",
    "UUID": f"exa_key = {drawn(8, HEX)}-{drawn(4, HEX)}-4{drawn(3, HEX)}-8{drawn(3, HEX)}-1{drawn(11, HEX)}",
    "option": f"--api-token {drawn(32)}",
    "letters alone": f"service_token: {drawn(44, string.ascii_letters)}",
    "session": "cookies = {'sessionid': '" + drawn(32) + "'}",
    "session in JSON": '{"name": "session", "value": "' + drawn(40) + '"}',
    "new maker's key": f"somelab-{drawn(40)}Aa1Bb2Cc3Dd4",
    "key in JSON": f'"api_key": "{drawn(32)}"',
}
HOMES = {
    "Linux": "/home/alice/models/base",
    "macOS": "/Users/alice/models/base",
    "root": "/root/models/base/config.json",
    "shared disk": "/mnt/home/alice/models/base",
    "Windows": "C:\\Users\\alice\\models",
    "tilde": "~/models/base",
    "tilde of a user": "~alice/models/base",
    "Markdown, bold": "/home/**alice**/models/base",
    "Markdown, escaped": "/home/\\_alice\\_/models/base",
    "Markdown, code": "**`/home/alice/models`**",
    "HTML": "&#47;home&#47;alice/models/base",
}


def as_json(text: str) -> str:
    return json.dumps({"note": text}, indent=2)


def all_escaped(text: str) -> str:
    return '{\n  "note": "' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"\n}'


def settings(folder: Path, text: str) -> Path:
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder / "config.json"


def weights(folder: Path, text: str) -> Path:
    save_file({"w": np.zeros(3, np.float32)}, folder / "model.safetensors", metadata={"note": text})
    return folder / "model.safetensors"


def header(folder: Path, text: str) -> Path:
    """The name of a tensor."""
    content = json.dumps({text: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
    return folder / "model.safetensors"


Hide = Callable[[Path, str], Path]

HIDDEN: dict[str, Hide] = {
    "in settings": lambda folder, text: settings(folder, as_json(text)),
    "in a template": lambda folder, text: settings(folder, "{# " + text + " #}"),
    "escaped, one letter": lambda folder, text: settings(
        folder, f'{{"note": "\\u{ord(text[0]):04x}{json.dumps(text[1:])[1:-1]}"}}'
    ),
    "escaped, every letter": lambda folder, text: settings(folder, all_escaped(text)),
    "with escaped slashes": lambda folder, text: settings(folder, as_json(text).replace("/", "\\/")),
    "in the metadata of weights": weights,
    "in the names of tensors": header,
}
# Those of a path's characters and of no more than a file's name holds.
IN_NAMES = [secret for secret in SECRETS.values() if "/" not in secret]


@pytest.mark.parametrize("hide", [pytest.param(hide, id=how) for how, hide in HIDDEN.items()])
@pytest.mark.parametrize("secret", [pytest.param(secret, id=what) for what, secret in SECRETS.items()])
def test_a_secret_is_found_wherever_it_hides_and_not_shown(secret: str, hide: Hide, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains what looks like") as caught:
        leaks.check_file(hide(tmp_path, secret))
    assert secret not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", [how for how in HIDDEN if not how.startswith("escaped")])
@pytest.mark.parametrize("secret", [pytest.param(secret, id=what) for what, secret in NAMED.items()])
def test_a_password_is_known_by_its_name(secret: str, how: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains what looks like"):
        leaks.check_file(HIDDEN[how](tmp_path, secret))


@pytest.mark.parametrize("secret", IN_NAMES)
def test_a_secret_in_a_files_name_is_found(secret: str, tmp_path: Path) -> None:
    path = tmp_path / f"LICENSE {secret}"
    path.touch()
    with pytest.raises(UserError, match="contains what looks like"):
        leaks.check_file(path)


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("home", [pytest.param(home, id=what) for what, home in HOMES.items()])
def test_a_folder_of_this_machine_is_found_and_named(home: str, how: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"names a folder of this machine, \S*(home|Users|root|~)"):
        leaks.check_file(HIDDEN[how](tmp_path, home))


@pytest.mark.parametrize("home", ["/home/alice", "/Users/alice", "/root", "C:\\Users\\alice"])
def test_a_home_folder_itself_is_found_in_settings_and_cards(home: str, tmp_path: Path) -> None:
    for text in (as_json(home), f"trained in {home}.", f"| folder | {home} |"):
        with pytest.raises(UserError, match="names a folder of this machine"):
            leaks.check_file(settings(tmp_path, text))


def test_the_line_is_named(tmp_path: Path) -> None:
    secret = SECRETS["Hugging Face"]
    path = settings(tmp_path, f"{{\n\n{secret}\n}}")
    with pytest.raises(UserError) as caught:
        leaks.check_file(path)
    assert str(caught.value).startswith(f"{path}:3: contains what looks like a Hugging Face token; remove it")


def test_of_weights_only_the_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", 2) + b"{}")
        file.seek(1 << 30)
        file.write(b"end")
    tracemalloc.start()
    leaks.check_file(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        '{"_commit_hash": "' + drawn(40, HEX) + '", "sha256": "' + drawn(64, HEX) + '"}',
        '{"pad_token": "<|endoftext|>", "eos_token": "</s>", "bos_token_id": 1}',
        "{%- if tools %}{{ 'token: ' ~ message.content ~ '/' }}{% endif %}",
        "See https://www.apache.org/licenses/LICENSE-2.0 and mailto:owner@example.org.",
        "https://huggingface.co/owner/model/resolve/main/config.json",
        "| learning_rate | 5e-07 |\n| transformers | 5.19.0 |\n",
        "a secret: nobody knows; the password: please",
        "the bearer understands-21st-century-words; xai-methods, npm_config_registry, r8_0",
        "https://example.org/root and /rooted/x",
        '{"lm_head.mask_token": "model-00001-of-00002.safetensors", "cls_token": "reserved_special_token_247"}',
        '{"tokens": "sentence-transformers-all-MiniLM-L6-v2", "key": "2wikimultihopqa_train_15000_rows"}',
        "the token 5ae3ab355542990afbd1e1a7 of question 2hop__482757_12019; Authorization: Bearer YOUR_KEY",
        "key: LlamaForSequenceClassificationWithSharedPrefixes",
        "task-oriented-dialogue-systems risk-sensitive-reinforcement-learning",
    ],
)
def test_what_cards_settings_templates_and_licences_hold_is_no_secret(text: str, tmp_path: Path) -> None:
    leaks.check_file(settings(tmp_path, text))


VOCABULARY = {"/home/user/x": 1, "password=tr0ub4dor&3x": 2}


def test_the_fragments_of_vocabularies_make_no_secret(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": VOCABULARY, "merges": [["/home/", "a/b"]]}})
    )
    for name in ("vocab.json", "merges.txt", "tokenizer.model"):
        (tmp_path / name).write_text(json.dumps(VOCABULARY))
    for name in ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model"):
        leaks.check_file(tmp_path / name)


@pytest.mark.parametrize("secret", [pytest.param(secret, id=what) for what, secret in SECRETS.items()])
@pytest.mark.parametrize("name", ["tokenizer.json", "merges.txt", "tokenizer.model"])
def test_a_key_in_a_tokenizer_is_found(name: str, secret: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(as_json(secret) if name == "tokenizer.json" else f"\x0a\x12 a b\n{secret}\n")
    with pytest.raises(UserError, match="contains what looks like"):
        leaks.check_file(tmp_path / name)


def test_beside_the_vocabulary_a_tokenizers_file_holds_settings(tmp_path: Path) -> None:
    record = {"model": {"vocab": VOCABULARY}, "note": "trained in /home/alice/models", "added_tokens": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="names a folder of this machine"):
        leaks.check_file(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_what_is_written_in_utf_16_or_32_is_read_too(encoding: str, tmp_path: Path) -> None:
    for text in (SECRETS["Anthropic"], NAMED["Kaggle"], HOMES["Linux"]):
        (tmp_path / "notes.txt").write_bytes(f"It says: {text}\n".encode(encoding))
        with pytest.raises(UserError, match=r"contains what looks like|names a folder of this machine"):
            leaks.check_file(tmp_path / "notes.txt")


def test_marks_of_markdown_hide_no_key(tmp_path: Path) -> None:
    text = SECRETS["Hugging Face"].replace("_", "\\_").replace("a", "*a*")
    with pytest.raises(UserError, match="contains what looks like"):
        leaks.check_file(settings(tmp_path, f"**{text}**"))
