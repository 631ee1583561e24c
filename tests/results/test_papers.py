"""The papers' numbers: every one is found in its table of the paper's text, by a reading of its own."""

import re
from pathlib import Path

import pytest
import yaml

from notewriter.datasets import BENCHMARKS
from notewriter.results.paper_values import FOLDER, PAPERS, published_rows

SHARED = Path(__file__).parents[3] / "shared/papers"
TEXTS = {
    "deepnote": "deepnote-2410.08821.txt",
    "rearag": "rearag-2503.21729.txt",
    "resp": "resp-2407.13101.txt",
    "noteswriting": "noteswriting-2505.16293.txt",
}
COLUMNS = {
    "HotpotQA": "hotpotqa",
    "Hotpot-QA": "hotpotqa",
    "HoPo": "hotpotqa",
    "2WikiMQA": "2wikimultihopqa",
    "2WikiMultihopQA": "2wikimultihopqa",
    "MusiQue": "musique",
    "Musique": "musique",
    "MuSiQue": "musique",
    "MQ": "musique",
    "ASQA": "asqa",
    "StrategyQA": "strategyqa",
    "IIRC": "iirc",
    "NQ": "nq",
    "Fanout-QA": "fanoutqa",
    "FanoutQA": "fanoutqa",
    "Fanout": "fanoutqa",
    "Frames": "frames",
    "MultiHop-RAG": "multihoprag",
    "M-RAG": "multihoprag",
}
"""What the papers call the datasets."""

NAMES = {
    "deepnote": ("DeepNote", "DPO", "BM25", "bge-base-en-v1.5"),
    "deepnote without adaptive retrieval": ("w/o Adap. Retrieval\t", "DeepNote (only initial note)"),
    "deepnote without adaptive retrieval and initial note": ("w/o Adap. Retrieval & Init. Note",),
    "direct": ("Direct Prompting", "LLMs without Retrieval"),
    "vanilla": ("Vanilla RAG", "Standard RAG"),
    "flare": ("FLARE",),
    "self_rag": ("Self-RAG",),
    "langchain_self_rag": ("Self-RAG",),
    "chain_of_note": ("CoN",),
    "rat": ("RAT",),
    "langchain_react": ("ReAct",),
    "sure": ("SuRe",),
    "recomp": ("RECOMP",),
    "replug": ("REPLUG",),
    "iter_retgen": ("Iter-RetGen",),
    "ircot": ("IRCoT",),
    "resp": ("ReSP",),
    "searchain": ("SearChain",),
    "search_o1": ("Search-o1", "Invalid rate"),
    "rearag": ("w/ reasoning",),
}
"""How the line of a method begins, or what it contains, in the tables with a line for each row."""

MODELS = {
    "selfrag-llama2-7B": "Self-RAG(Llama2-7b)",
    "ReaRAG-9B trained anew": "ReaRAG-9B",
    "ReaRAG-9B without reasoning": "w/o reasoning",
}
"""What the papers call the models, if not as the rows do."""


def lines(paper: str, place: str) -> list[str]:
    """The lines of a table, which the papers' texts have above or below the caption; of a section, its text."""
    path = SHARED / TEXTS[paper]
    if not path.exists():
        pytest.skip("needs the papers' texts in ../shared")
    text = re.sub(r"</?\w+[^>\n]*>", "", path.read_text())
    # In the PDF's text a model's name closes one row and opens the next.
    found = text.replace("LLaMA-3.1-70B", "\nLLaMA-3.1-70B ").replace("Output GPT", "Output\nGPT").splitlines()
    kind, number = place.split()
    if kind == "Section":
        start = next(i for i, line in enumerate(found) if line.startswith(f"### {number} "))
        return found[start : next(i for i in range(start + 1, len(found)) if found[i].startswith("### "))]
    caption = next(i for i, line in enumerate(found) if re.match(rf"\**Table {number}:", line))
    return found[caption : caption + 20] if paper == "resp" else found[max(0, caption - 45) : caption]


def numbers(line: str) -> list[float]:
    """The numbers of a line in order: `116K` is 116,000, `1.06E-03` 0.00106, changes such as `(+1.6pt)` are none."""
    line = re.sub(r"\([^)]*pt\)|(?<=\d)min\b", "", line)
    units = {"K": 1e3, "M": 1e6, "": 1.0}
    return [
        float(value) * units[unit]
        for value, unit in re.findall(r"(?<![\w.])(\d+(?:\.\d+)?(?:E-\d+)?)([KM]?)(?![\w.]*\w)", line)
    ]


def contains(line: list[float], values: list[float]) -> bool:
    """Whether the values are neighbours in the line."""
    return any(line[start : start + len(values)] == values for start in range(len(line)))


@pytest.mark.parametrize("paper", PAPERS)
def test_files_have_the_keys_that_are_read_and_datasets_that_there_are(paper):
    for table in yaml.safe_load((FOLDER / f"{paper}.yaml").read_text()):
        assert set(table) in ({"place", "columns", "rows"}, {"place", "metrics", "rows"})
        for row in table["rows"]:
            assert set(row) - {"setting"} == {"method", "model", "values"}
            if "columns" in table:
                assert len(row["values"]) == sum(map(len, table["columns"].values()))
    rows = [row for row in published_rows() if row["paper"] == PAPERS[paper]]
    assert rows and all(row["dataset"] in BENCHMARKS and row["values"] for row in rows)


def test_no_row_is_there_twice():
    keys = [
        tuple(row[key] for key in ("paper", "place", "dataset", "method", "model", "setting"))
        for row in published_rows()
    ]
    assert len(keys) == len(set(keys))


def test_rows_of_several_tables_agree():
    """DeepNote's tables repeat each other's rows."""
    main = {
        (row["dataset"], row["method"], row["model"]): row["values"]
        for row in published_rows()
        if (row["paper"], row["place"]) == ("DeepNote", "Table 1")
    }
    same = {"max_step 3, max_failure 2", "top-k 5", "BM25", ""}
    for row in published_rows():
        if row["paper"] == "DeepNote" and row["setting"] in same and row["place"] != "Table 9":
            method = row["method"].replace("deepnote without adaptive retrieval and initial note", "vanilla")
            values = main.get((row["dataset"], method, row["model"]))
            assert values == row["values"] or method == "deepnote without adaptive retrieval", row


@pytest.mark.parametrize("paper", TEXTS)
def test_each_row_of_a_file_is_a_line_of_its_table(paper):
    """The whole row in the paper's order; averages, which are left out here, may stand between the datasets."""
    for table in yaml.safe_load((FOLDER / f"{paper}.yaml").read_text()):
        if table["place"].startswith("Section"):
            continue
        region = lines(paper, table["place"])
        for row in table["rows"]:
            if "columns" in table:
                left = iter(row["values"])
                groups = [[float(next(left)) for _ in metrics] for metrics in table["columns"].values()]
                labels = (
                    *NAMES.get(row["method"], ()),
                    MODELS.get(row["model"], row["model"].removesuffix(" with DPO")),
                )
                # Lines of DeepNote's Table 4 have only settings, those of ReSP's only the modules' models.
                named = [
                    line for line in region if any(label in line for label in labels) or table["place"] == "Table 4"
                ]
                assert any(in_order(numbers(line), groups) for line in named), (table["place"], row)
            else:
                for dataset, values in row["values"].items():
                    wanted = [float(value) for value in values if value is not None]
                    named = [line for line in region if dataset in named_datasets(line)]
                    assert any(contains(numbers(line), wanted) for line in named), (table["place"], row, dataset)


def test_the_averages_of_search_r1_are_those_of_its_paper():
    """Its text is not beside the project; the paper's own average of seven values tells a slip in one."""
    values: dict[str, list[float]] = {}
    for row in published_rows():
        if row["paper"] == "Search-R1":
            values.setdefault(row["method"], []).extend(row["values"].values())
    averages = {method: round(sum(each) / 700, 3) for method, each in values.items()}
    # The paper has 0.239 for IRCoT.
    assert averages == {"direct": 0.181, "ircot": 0.226, "search_o1": 0.206, "vanilla": 0.304, "search_r1": 0.431}


def in_order(line: list[float], groups: list[list[float]]) -> bool:
    """Whether the groups follow one another in the line, each unbroken and at most one number apart."""
    for start in range(len(line)):
        at = start
        for group in groups:
            if line[at : at + len(group)] == group:
                at += len(group)
            elif group is not groups[0] and line[at + 1 : at + 1 + len(group)] == group:
                at += 1 + len(group)
            else:
                break
        else:
            return True
    return False


def named_datasets(line: str) -> set[str]:
    return {
        dataset for name, dataset in COLUMNS.items() if name.lower().replace("-", "") in line.lower().replace("-", "")
    }


def test_numbers_in_resps_text_are_those_of_its_section():
    text = " ".join(lines("resp", "Section 5.4"))
    for phrase in (
        "documents during the process is 509.59, while",
        "provided to the generator is 86.61, culminating in a compression ratio of 5.88",
        "ReSP exhibits an average iteration count of 1.24 for HotpotQA and 1.60 for 2WikiMultihopQA",
        "while IRCoT has counts of 1.80 and 2.32",
    ):
        assert phrase in text
    rows = [row for row in published_rows() if row["place"] == "Section 5.4"]
    assert {(row["method"], row["dataset"]): row["values"]["retrievals"] for row in rows} == {
        ("ircot", "hotpotqa"): 1.80,
        ("ircot", "2wikimultihopqa"): 2.32,
        ("resp", "hotpotqa"): 1.24,
        ("resp", "2wikimultihopqa"): 1.60,
    }
    assert {"words_retrieved": 509.59, "words_answered_from": 86.61, "compression": 5.88}.items() <= rows[2][
        "values"
    ].items()
