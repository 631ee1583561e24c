"""How documents become passages."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notewriter.corpora import splitting
from notewriter.corpora.source import Document, Origin
from notewriter.corpora.splitting import SplitArguments, headings, splitter
from notewriter.ground.errors import UserError

GUIDE = """# Guide

Before you begin.

## Install

### On Linux

Run the script.

```sh
# no heading
```

Remove
------

Delete the folder.
"""
PROSE = "Dr. Osk rose at 5.30 a.m. He fed the cat! Was it late? It was not.\n\nThe cat ate. The day began."


def split(text, markdown=False, title="T", pages=(), **options):
    document = Document("d", title, text, Origin(file="d"), markdown, pages)
    return list(splitter(SplitArguments(**options), "none")(document))


def test_whole_documents_have_no_span():
    assert split(" a b \n") == [("T", "a b", {"file": "d"})]


def test_words_are_counted_exactly_and_overlap_exactly():
    texts = [text for _, text, _ in split("a b c d e f g", split="words", size=3, overlap=1)]
    assert texts == ["a b c", "c d e", "e f g"]


def test_a_rest_that_only_repeats_the_overlap_is_no_passage():
    assert [text for _, text, _ in split("a b c d", split="words", size=2, overlap=1)] == ["a b", "b c", "c d"]


def test_sentences_stay_whole():
    texts = [text for _, text, _ in split(PROSE, split="sentences", size=9)]
    assert len(texts) > 2
    assert all(text[-1] in ".!?" for text in texts)


@pytest.mark.parametrize("name", ["words", "sentences", "headings"])
def test_no_passage_is_longer_than_the_size(name):
    text = "One two three four. Five six seven eight nine ten. " * 20
    assert max(len(text.split()) for _, text, _ in split(text, markdown=True, split=name, size=7)) <= 7


@pytest.mark.parametrize("options", [{"split": "sentences"}, {"split": "headings"}, {"split": "tokens", "size": 10**6}])
@pytest.mark.parametrize("markdown", [False, True])
def test_a_text_without_end_is_split_in_blocks(options, markdown, tokenizer):
    """The library's time would grow with the square of the text."""
    passages = split("a" * (2 * splitting.BLOCK + 5), markdown, tokenizer=str(tokenizer), **options)
    assert [len(text) for _, text, _ in passages] == [splitting.BLOCK, splitting.BLOCK, 5]


def test_a_long_text_is_cut_between_sentences_and_paragraphs_and_loses_no_word():
    for end in (" ", "\n", "\n\n"):
        text = f"The river Osk crosses a town.{end}" * 10_000
        passages = [text for _, text, _ in split(text, split="sentences", size=12)]
        assert {passage[-5:] for passage in passages} == {"town."}
        assert " ".join(passages).split() == text.split()


def test_tokens_are_those_of_the_tokenizer(tokenizer):
    texts = [t for _, t, _ in split("the river crosses a town", split="tokens", size=2, tokenizer=str(tokenizer))]
    assert texts == ["the river", "crosses a", "town"]


def test_a_section_carries_the_headings_above_it():
    passages = split(GUIDE, markdown=True, title="Guide", split="headings")
    assert [title for title, _, _ in passages] == ["Guide", "Guide > Install > On Linux", "Guide > Remove"]
    assert [origin["headings"] for _, _, origin in passages] == [
        ["Guide"],
        ["Guide", "Install", "On Linux"],
        ["Guide", "Remove"],
    ]


def test_what_looks_like_a_heading_in_code_is_none():
    assert [heading.title for heading in headings(GUIDE)] == ["Guide", "Install", "On Linux", "Remove"]


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("## [Pump](https://p.org) of `Tolen` and **Osk**", (2, "Pump of Tolen and Osk")),
        ("## Wheel {#wheel}", (2, "Wheel")),
        ("## Wheel { #wheel .big }", (2, "Wheel")),
        ("## Use {x}", (2, "Use {x}")),
        ("# ![Logo](l.png) Mill [![CI](b.svg)](c)", (1, "Mill")),
        ("# ![Mill](l.png)", (1, "Mill")),
        ('<h1 align="center">\n  <img src="l.png"> Mill\n</h1>', (1, "Mill")),
        ("<h2>The <b>wheel</b></h2>", (2, "The wheel")),
    ],
)
def test_a_heading_has_its_words_alone(line, heading):
    (found,) = headings(f"{line}\n\nIt turns.\n")
    assert (found.level, found.title) == heading
    sections = split(f"# A\n\n{line}\n\n### B\n\nIt turns.\n", markdown=True, split="headings")
    assert sections[-1][0].endswith(f"{heading[1]} > B")


def test_a_document_of_headings_alone_is_kept():
    assert [text for _, text, _ in split("# A\n\n## B\n", markdown=True, split="headings")] == ["# A", "## B"]


def test_a_heading_alone_is_no_passage_of_a_long_section():
    passages = split("# A\n\n" + "word " * 30, markdown=True, split="headings", size=10)
    assert next(text for _, text, _ in passages).startswith("word")
    assert {title for title, _, _ in passages} == {"T > A"}


def test_a_passage_knows_the_page_on_which_it_begins():
    passages = split("one two\n\nthree four\n\n", split="words", size=2, pages=(0, 9))
    assert [origin["page"] for _, _, origin in passages] == [1, 2]


@example("- a", "headings", 1)
@given(
    st.text(alphabet="ab é#\n.-", max_size=200), st.sampled_from(["words", "sentences", "headings"]), st.integers(1, 9)
)
def test_spans_point_at_the_text_and_no_word_is_lost(text, name, size):
    passages = split(text, split=name, size=size)
    assert all(text[slice(*origin["span"])] == passage for _, passage, origin in passages)
    words = [word for _, passage, _ in passages for word in passage.split()]
    assert words == text.split() or name != "words"
    assert re.sub(r"\s", "", "".join(words)) == re.sub(r"\s", "", text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "chapters"}, "unknown split"),
        ({"split": "words", "size": 5, "overlap": 5}, "overlap"),
        ({"split": "tokens"}, "--tokenizer"),
        ({"split": "tokens", "tokenizer": "/nowhere/at/all"}, "/nowhere/at/all"),
    ],
)
def test_unusable_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        split("a", **options)
