import pytest
from parquet_files import write_rows

from notewriter.artifacts.pairs import COLUMNS, SCHEMA
from notewriter.data.viewer import write_viewer

pytestmark = pytest.mark.integration

HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"> </script><!-- "é" & \u2028'
STAGES = ["deepnote/init_note", "deepnote/refine_query"]


def pair(number):
    """A pair of every stage in turn; every hundredth one is made of what a page must not run."""
    hostile = number % 100 == 0
    return {
        "schema": SCHEMA,
        "prompt": [{"role": "user", "content": HOSTILE if hostile else f"Which river, number {number}, is it?"}],
        "chosen": [{"role": "assistant", "content": "Arlen Voss was born in Tirsk. He lives there."}],
        "rejected": [
            {"role": "assistant", "content": HOSTILE if hostile else "He was born in Velmor. He lives there."}
        ],
        "stage": STAGES[number % 2],
        "method": "deepnote",
        "question_id": f"q{number}",
        "dataset": "jsonl",
        "top_k": 5,
        "chosen_source": {"kind": "gold"},
        "rejected_source": {"kind": "model", "temperature": 0.5, "top_p": 0.9, "max_tokens": 64},
        "chosen_score": 0.75,
        "rejected_score": None,
        "judge": "reference",
        "judge_replies": [HOSTILE],
        "prompt_tokens": 1234,
        "chosen_tokens": None,
        "rejected_tokens": 12,
    }


def chain(number):
    turns = [("user", "Where does Arlen Voss live?"), ("assistant", f"Thought {number}: I search.\n{HOSTILE}")]
    return {
        "messages": [{"role": role, "content": content} for role, content in turns],
        "question_id": f"c{number}",
        "f1": 0.5,
        "steps": 3,
    }


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("inspect")
    for name in ("pairs", "chains"):
        (folder / name).mkdir()
    write_rows(folder / "pairs" / "train.parquet", COLUMNS, map(pair, range(700)))
    write_rows(folder / "pairs" / "dev.parquet", COLUMNS, map(pair, range(700, 710)))
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([chain(number) for number in range(3)]), folder / "chains" / "train.parquet"
    )
    write_viewer(folder / "pairs.html", folder / "pairs", folder / "chains")
    chromium.get((folder / "pairs.html").as_uri())
    return chromium


def find(page, selector):
    return page.find_elements("css selector", selector)


def texts(page, selector):
    return [element.get_property("textContent") for element in find(page, selector)]


def waited(page, condition):
    """What the condition gives as soon as it is true: data is unpacked in a later task than the event's."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(page, 20).until(lambda _: condition())


def counted(page, text):
    return waited(page, lambda: page.find_element("id", "count").text == text)


def choose(page, identifier, value):
    from selenium.webdriver.support.select import Select

    Select(page.find_element("id", identifier)).select_by_value(value)


def test_a_person_leafs_through_pairs_and_chains(page):
    counted(page, "713 of 713")
    # Long lists grow as one reads on.
    assert len(find(page, ".items li")) == 300

    # The first pair is hostile: its texts are shown as they are.
    assert texts(page, "#detail h3") == ["deepnote/init_note"]
    assert texts(page, ".side.rejected .text-block") == [HOSTILE]
    page.find_element("tag name", "body").send_keys("j")
    assert texts(page, "#detail .name.mono") == ["q1"]
    assert [mark.strip() for mark in texts(page, ".side.chosen mark")] == ["Arlen", "Voss", "Tirsk."]
    assert [mark.strip() for mark in texts(page, ".side.rejected mark")] == ["He", "Velmor."]
    assert "gold" in texts(page, ".side.chosen .facts")[0] and "score 0.75" in texts(page, ".side.chosen .facts")[0]
    assert "model, temperature 0.5, top p 0.9, max tokens 64" in texts(page, ".side.rejected .facts")[0]
    assert "judge reference" in texts(page, "#detail > .facts")[0]

    prompt, replies = find(page, "#detail details")
    assert find(page, "#detail .message") == []
    prompt.find_element("tag name", "summary").click()
    assert waited(page, lambda: texts(page, "#detail .message .text-block")) == ["Which river, number 1, is it?"]
    replies.find_element("tag name", "summary").click()
    assert waited(page, lambda: texts(page, "#detail pre")) == [HOSTILE]

    choose(page, "stage", STAGES[1])
    counted(page, "355 of 713")
    choose(page, "split", "dev")
    counted(page, "5 of 713")
    choose(page, "split", "")
    choose(page, "stage", "")
    page.find_element("id", "search").send_keys("number 612,")
    counted(page, "0 of 713")
    page.find_element("id", "in-prompts").click()
    counted(page, "1 of 713")
    assert texts(page, "#detail .name.mono") == ["q612"]

    page.find_element("id", "search").clear()
    choose(page, "stage", "chain")
    counted(page, "3 of 713")
    messages = waited(page, lambda: find(page, ".chain .message"))
    assert [message.get_attribute("class") for message in messages] == ["message user", "message assistant"]
    assert texts(page, ".chain .text-block")[1] == f"Thought 0: I search.\n{HOSTILE}"

    assert find(page, "#detail script, #detail img") == []
    assert page.execute_script("return window.hacked ?? null") is None
    assert page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert page.get_log("browser") == []
