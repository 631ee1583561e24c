from benchmark_files import write_lines

from notewriter.datasets import load_questions


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
