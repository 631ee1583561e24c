"""What a construction of pairs yielded, why the rest was dropped, and what it cost: `stats.json`."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from notewriter.rollouts.usage import Usage

STATS_SCHEMA = "notewriter/pairs-stats/1"


def pairs_stats(records: Iterable[dict[str, Any]], stages: Collection[str]) -> dict[str, Any]:
    """Sum up the records of finished questions.

    `stages`: pairs, and what was dropped by reason. `yield`: the share of a stage's prompts that gave a pair,
    those beyond a quota included. `agreement`: of the prompts whose judge was asked in two orders and could be
    read both times, how many got one verdict. `unreadable_judge_replies`: by stage, also where other replies
    made a pair. `tokens`: every distinct call by stage and role, candidates,
    judges and answers that candidates were rolled forward to included, counted once a question.
    """
    pairs: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = {stage: Counter() for stage in stages}
    agreement: dict[str, Counter[str]] = {}
    unreadable: Counter[str] = Counter()
    usage = Usage()
    rolled_out = 0
    for record in records:
        rolled_out += 1
        pairs.update(row["stage"] for row in record["rows"])
        for drop in record["drops"]:
            dropped.setdefault(drop["stage"], Counter())[drop["reason"]] += 1
        for judged in record["agreements"]:
            agreement.setdefault(judged["stage"], Counter()).update(asked=1, agreed=int(judged["agreed"]))
        for judged in record.get("unreadable", ()):  # journals of older versions have none
            unreadable[judged["stage"]] += judged["replies"]
        usage.add(record)
    return {
        "questions_rolled_out": rolled_out,
        "stages": {
            stage: {"pairs": pairs[stage], "dropped": {key: reasons[key] for key in sorted(reasons)}}
            for stage, reasons in dropped.items()
        },
        "yield": {stage: _yield(pairs[stage], dropped[stage]) for stage in stages},
        "agreement": {
            stage: {**count, "rate": round(count["agreed"] / count["asked"], 4)}
            for stage, count in sorted(agreement.items())
        },
        "unreadable_judge_replies": {stage: unreadable[stage] for stage in sorted(unreadable)},
        **usage.to_dict(),
    }


def _yield(pairs: int, reasons: Counter[str]) -> float | None:
    judged = pairs + reasons.total()
    return round((pairs + reasons["beyond the quota"]) / judged, 4) if judged else None
