#!/usr/bin/env bash
# inspect_ai's scorer match(numeric=True), made to compare numbers as numbers. Not guessed: its code was read first. It
# rounds the target and the answer to five significant digits, so that numbers which differ later are equal. With
# location="exact" too, and the answer in the log is the rounded one.
#
# inspect-ai 0.3.285, a solver that gives a wrong answer to each of seven questions. Output seen:
#   target 12345, answer 12346: I, logged as 12346
#   target 123456, answer 123459: C, logged as 1.2346e+05
#   target 1,234,567, answer 1,234,649: C, logged as 1.2346e+06
#   target 20240115, answer 20240131: C, logged as 2.024e+07
#   target 48215.75, answer 48216.25: C, logged as 48216
#   target 0.1234561, answer 0.1234569: C, logged as 0.12346
#   target 299792458, answer 299790000: C, logged as 2.9979e+08
#   accuracy: numeric 0.86, numeric, any 0.86, numeric, exact 0.86, text 0.00
#
# It bites whoever scores amounts, populations, dates written in digits or numbers of documents: with six digits and
# more, a wrong answer counts as right if its first five are, and the accuracy is too high. Nothing is said; the
# docstring tells what is stripped before numbers are "normalized and compared", not that they are rounded. Pull
# requests 3916 and 4744 of UKGovernmentBEIS/inspect_ai (2026) mended signs, suffixes and punctuation, not this. match()
# without `numeric` compares the texts. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet inspect-ai==0.3.285
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import solver

PAIRS = {
    "12345": "12346",
    "123456": "123459",
    "1,234,567": "1,234,649",
    "20240115": "20240131",
    "48215.75": "48216.25",
    "0.1234561": "0.1234569",
    "299792458": "299790000",
}
SCORERS = {
    "numeric": match(numeric=True),
    "numeric, any": match(numeric=True, location="any"),
    "numeric, exact": match(numeric=True, location="exact"),
    "text": match(),
}


@solver
def answers():
    async def solve(state, generate):
        state.output = ModelOutput.from_content(state.model.name, PAIRS[state.target.text])
        return state

    return solve


samples = [Sample(input="How much?", target=target) for target in PAIRS]
rows, accuracies = {}, {}
for name, scorer in SCORERS.items():
    task = Task(dataset=MemoryDataset(samples), solver=answers(), scorer=scorer)
    log = eval(task, model="mockllm/model", display="none", log_dir="logs")[0]
    scores = [next(iter(sample.scores.values())) for sample in log.samples]
    rows[name] = [(score.value, score.answer) for score in scores]
    accuracies[name] = log.results.scores[0].metrics["accuracy"].value
for number, (target, answer) in enumerate(PAIRS.items()):
    value, shown = rows["numeric"][number]
    print(f"target {target}, answer {answer}: {value}, logged as {shown}")
print("accuracy:", ", ".join(f"{name} {accuracy:.2f}" for name, accuracy in accuracies.items()))
sys.exit([value for value, _ in rows["numeric"]] != ["I", *["C"] * 6] or accuracies["text"] != 0)
PYTHON
