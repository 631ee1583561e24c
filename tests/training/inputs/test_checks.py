"""Each way of training on the wrong tokens is found before the first step, and what is shown can be trusted."""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.training.inputs import checks, pairs

Pair = Callable[..., dict[str, Any]]


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def check_pairs(tokenizer: PreTrainedTokenizerBase, *rows: dict[str, Any]) -> None:
    """As training checks pairs that lie in train.parquet."""
    stops = frozenset([tokenizer.eos_token_id])
    measured = pairs.tokenize(Dataset.from_list(list(rows)), tokenizer, stops, Path("train.parquet"))
    checks.check_pairs(measured, tokenizer, stops, "train.parquet")


def sample(ids: list[int], labels: list[int]) -> Dataset:
    return Dataset.from_list([{"row": 0, "input_ids": ids, "labels": labels, "question_id": "q0", "stage": "s"}])


def test_sound_pairs_pass(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    check_pairs(tokenizer, make_pair(0), make_pair(1))


def test_a_chosen_equal_to_its_rejected_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    same = make_pair(1)
    same["rejected"] = same["chosen"]

    with pytest.raises(
        UserError, match=r"1 fault\(s\) in 2 rows: row 1 \(question q1\): chosen and rejected are the sa"
    ):
        check_pairs(tokenizer, make_pair(0), same)


def test_a_prompt_that_does_not_begin_both_sides_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    tokenizer.chat_template += "{% if add_generation_prompt %}the town {% endif %}"

    with pytest.raises(UserError, match=r"row 0 .*prompt does not begin both sides: a server shows 'town'"):
        check_pairs(tokenizer, make_pair(0))


def test_an_end_of_turn_at_which_no_server_stops_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    # As Qwen's base models do: the template has <|im_end|>, and the end of sequence is another token.
    tokenizer.eos_token = "<system>"

    with pytest.raises(
        UserError, match=r"chosen: what is trained ends in 'the <end>' without a token that ends a turn \(<system>\)"
    ):
        check_pairs(tokenizer, make_pair(0))


def test_an_end_of_turn_in_the_middle_of_an_answer_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    broken = make_pair(0)
    broken["rejected"][0]["content"] = "a <end> river"

    with pytest.raises(UserError, match=r"rejected: <end> ends a turn in the middle of what is trained"):
        check_pairs(tokenizer, broken)


def test_a_mask_that_trains_nothing_is_an_error(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(UserError, match=r"data: 1 fault\(s\) in 1 rows: row 0 .*none of its tokens is trained"):
        checks.check(sample([6, 7, 2], [-100, -100, -100]), tokenizer, frozenset([2]), "data")


def test_a_doubled_beginning_of_sequence_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    tokenizer.bos_token = "<system>"
    check_pairs(tokenizer, make_pair(0))
    tokenizer.chat_template = "<system> <system> " + tokenizer.chat_template

    with pytest.raises(UserError, match=r"begins with two <system>"):
        check_pairs(tokenizer, make_pair(0))


def test_padding_that_is_trained_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    tokenizer.pad_token = "<end>"

    with pytest.raises(UserError, match="padding, <end>, is a token that is trained"):
        check_pairs(tokenizer, make_pair(0))


def test_another_padding_is_chosen_where_it_would_be_trained(tokenizer: PreTrainedTokenizerBase) -> None:
    end = tokenizer.eos_token_id
    checks.choose_padding(tokenizer, {end})
    assert tokenizer.pad_token == "<pad>"

    tokenizer.add_special_tokens({"additional_special_tokens": ["<|image|>", "<|right_pad_id|>"]})
    checks.choose_padding(tokenizer, {end, tokenizer.pad_token_id})
    assert tokenizer.pad_token == "<|right_pad_id|>"


def test_no_more_than_five_faults_are_named(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [{"row": i, "input_ids": [6], "labels": [-100], "question_id": f"q{i}", "stage": "s"} for i in range(8)]

    with pytest.raises(UserError, match=r"8 fault\(s\) .*question q4\).*; and 3 more$"):
        checks.check(Dataset.from_list(rows), tokenizer, frozenset([2]), "data")


class Tokenize(BaseHTTPRequestHandler):
    """vLLM's /tokenize, with the tokenizer of `server.tokenizer`."""

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.path == "/tokenize" and body["model"] == "notes"
        ids = self.server.tokenizer.apply_chat_template(  # type: ignore[attr-defined]
            body["messages"],
            add_generation_prompt=body["add_generation_prompt"],
            return_dict=True,
            **body.get("chat_template_kwargs", {}),
        )["input_ids"]
        answer = json.dumps({"tokens": ids} if known else {"error": "no such model"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def server(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Tokenize) as running:
        running.tokenizer = tokenizer  # type: ignore[attr-defined]
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/v1"
        running.shutdown()


def test_token_ids_of_the_server_have_to_be_trainings(
    server: str, tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    messages = make_pair(0, words=2)["prompt"]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]

    checks.check_server(server, "notes", [("row 0", messages, True, ids)])
    with pytest.raises(UserError, match=r"row 0: the server at .* has other tokens than training: from token 1 on"):
        checks.check_server(server, "notes", [("row 0", messages, True, [ids[0], 9, *ids[2:]])])
    with pytest.raises(UserError, match=r"refused row 0 \(404: .*no such model"):
        checks.check_server(server, "other", [("row 0", messages, True, ids)])
    with pytest.raises(UserError, match="gave no token ids"):
        checks.check_server("http://127.0.0.1:1/v1", "notes", [("row 0", messages, True, ids)])


def test_the_server_is_asked_with_the_variables_of_the_template(
    server: str, tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    tokenizer.chat_template = "{% if quiet is defined %}river {% endif %}" + tokenizer.chat_template
    messages = make_pair(0, words=2)["prompt"]
    options = {"add_generation_prompt": True, "return_dict": True}
    ids = tokenizer.apply_chat_template(messages, quiet=True, **options)["input_ids"]

    checks.check_server(server, "notes", [("row 0", messages, True, ids)], {"quiet": True})
    with pytest.raises(UserError, match=r"row 0: the server at .* has other tokens than training: from token 0 on"):
        checks.check_server(server, "notes", [("row 0", messages, True, ids)])


ENDLESS = itertools.repeat(b"x" * 2**16)


@pytest.mark.parametrize(
    ("status", "headers", "pieces", "problem"),
    [
        (302, {"Location": "/tokenize"}, [], "redirects to /tokenize; redirects are not followed"),
        (200, {}, ENDLESS, "sends a reply of more than 16 MiB"),
        (500, {}, ENDLESS, "sends a reply of more than 16 MiB"),
        (200, {}, [b"<html>"], r"gave no token ids \(no type, not JSON: '<html>'\)"),
        (200, {}, [b"null"], "gave no token ids"),
        (200, {}, [b'{"tokens": "many"}'], "gave no token ids"),
        (200, {}, [b'{"tokens": [null]}'], "gave no token ids"),
        (400, {}, [b'{"message": "loud \\u001b[2J"}'], r"refused row 0 \(400: loud \\x1b\[2J\)"),
    ],
    ids=["redirect", "endless", "endless error", "page", "null", "text", "no number", "escapes"],
)
def test_a_server_that_misbehaves_ends_in_one_line(
    status: int, headers: dict[str, str], pieces: Iterable[bytes], problem: str
) -> None:
    class Says(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                for piece in pieces:
                    self.wfile.write(piece)

    with HTTPServer(("127.0.0.1", 0), Says) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        with pytest.raises(UserError, match=problem) as told:
            checks.check_server(f"http://127.0.0.1:{running.server_port}/v1", "notes", [("row 0", [], True, [1])])
        running.shutdown()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999/v1", "http://[::1/v1", "node7"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(UserError, match=r"base_url: .* is not the address of an endpoint"):
        checks.check_server(address, "notes", [("row 0", [], True, [1])])
