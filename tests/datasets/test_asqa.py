import json

from benchmark_files import write_list

from notewriter.datasets import load_questions
from notewriter.ground.records import Question

ASQA = {"qa_pairs": [{"question": "In 1990?", "short_answers": ["Ana"]}, {"short_answers": ["Bo", "Ana"]}]}


def test_asqa_reads_the_dev_split_of_its_own_file_and_alces_list(tmp_path):
    own = tmp_path / "ASQA.json"
    own.write_text(json.dumps({"train": {}, "dev": {"a1": ASQA | {"ambiguous_question": "Who won?"}}}))
    alce = write_list(tmp_path / "asqa_eval.json", ASQA | {"sample_id": "a1", "question": "Who won?"})
    expected = Question("a1", "Who won?", ("Ana", "Bo"), metadata={"short_answers": [["Ana"], ["Bo", "Ana"]]})
    assert load_questions("asqa", own) == load_questions("asqa", alce) == [expected]
