"""The JSON Lines of FlashRAG and Search-R1: `id` and `contents`, whose first line is the title.

Their wiki-18 is DPR's Wikipedia of December 2018 with the title in quotation marks. Other corpora of FlashRAG have
`title` and `text` beside `contents`.
"""

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Source
from notewriter.datasets.reading import get


def _parse(place: str, line: str) -> list[Document]:
    record = reading.json_object(place, line)
    id = reading.identifier(record, "id", place)
    if "contents" not in record and "text" in record:
        return [Document(id, get(record, "title", str, place), get(record, "text", str, place))]
    title, _, text = get(record, "contents", str, place).partition("\n")
    if len(title) > 1 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return [Document(id, title, text.strip())]


SOURCE = Source(
    title="wiki-18 of FlashRAG and Search-R1",
    files="wiki18_100w.jsonl (huggingface.co/datasets/RUC-NLPIR/FlashRAG_datasets, retrieval-corpus, unzipped) or "
    "wiki-18.jsonl.gz (huggingface.co/datasets/PeterJinGo/wiki-18-corpus)",
    inputs=lambda paths: reading.expand(paths, "*.jsonl*"),
    records=reading.lines,
    parse=_parse,
)
