"""PopQA (Mallen et al., 2023): acc, whether the prediction contains a gold answer, and additionally em and f1."""

from notewriter.evaluation.metrics import nq
from notewriter.evaluation.metrics.metric import ACCURACY, EXACT_MATCH, F1, Family
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Accuracy looks for each gold answer as it is written, in lower case and capitalised (the authors' run_model.py).

    The rest of the prediction keeps its case: "FULDA" does not contain "Fulda". em and f1 are those of NQ.
    """
    forms = (form for gold in question.answers for form in (gold, gold.lower(), gold.capitalize()))
    return {"acc": float(any(form in prediction for form in forms))} | nq.score(prediction, question)


FAMILY = Family(score, (ACCURACY, EXACT_MATCH, F1))
