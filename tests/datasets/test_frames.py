import pytest
from benchmark_files import write_lines

from notewriter.datasets import load_questions
from notewriter.ground.errors import UserError


def test_frames_reads_its_table_and_json_lines_alike(tmp_path):
    table = tmp_path / "test.tsv"
    table.write_text(
        "\tPrompt\tAnswer\twikipedia_link_1\twikipedia_link_11+\treasoning_types\n"
        "0\tHow old?\t7\thttps://w/Ana\thttps://w/Bo,_Brel, https://w/Cy (his son)\tNumerical\n"
    )
    (read,) = load_questions("frames", table)
    assert (read.question, read.answers) == ("How old?", ("7",))
    assert read.metadata == {"pages": ["https://w/Ana", "https://w/Bo,_Brel", "https://w/Cy"], "type": "Numerical"}
    lines = write_lines(tmp_path / "t.jsonl", {"question": "How old?", "answer": "7"})
    assert load_questions("frames", lines)[0].id == read.id


@pytest.mark.parametrize(
    "links", ["['https://w/Ana', \"https://w/Bo's_Day,_Brel\"]", ["https://w/Ana", "https://w/Bo's_Day,_Brel"]]
)
def test_the_pages_of_a_copy_with_one_list_of_links_are_read(tmp_path, links):
    """Some copies leave out the eleven columns of the table, and keep the list beside them."""
    record = {"Prompt": "How old?", "Answer": "7", "wiki_links": links}
    (read,) = load_questions("frames", write_lines(tmp_path / "t.jsonl", record))
    assert read.metadata["pages"] == ["https://w/Ana", "https://w/Bo's_Day,_Brel"]
    with pytest.raises(UserError, match=r"t\.jsonl:1: 'wiki_links' is no list"):
        load_questions("frames", write_lines(tmp_path / "t.jsonl", record | {"wiki_links": "https://w/Ana"}))
