"""The judge `llm`: a model compares all candidates at once."""

import asyncio
from dataclasses import replace

from notewriter.data.judges.case import CUT, Case, Verdict, judge
from notewriter.rollouts.method import Stage
from notewriter.rollouts.parsing import object_schema, parse_best_and_worst

BEST_AND_WORST = Stage("judge/best_and_worst", "judge", rehearsal='{"best_id": 1, "worst_id": 2}')
"""Names the best and the worst of several candidates."""


@judge()
async def llm(case: Case) -> Verdict:
    """A model sees all candidates and names the best and the worst (DeepNote, appendix D: D_Init and D_QR).

    The candidates are shuffled and then shown a second time in reverse. Only what both replies name makes a pair, so
    that a preference for a position does not become a preference for a text. (The paper asks once.)
    """
    order = list(range(len(case.candidates)))
    case.random.shuffle(order)
    orders = [order, order[::-1]][: case.rules.judge_orders]
    ids = list(range(1, len(order) + 1))
    schema = object_schema({key: {"type": "integer", "enum": ids} for key in ("best_id", "worst_id")})
    variables = {key: value for key, value in case.variables.items() if key != "turns"} | {
        "question": case.question.question,
        "kind": case.kind,
        "request": case.request,
    }
    replies = list(
        await asyncio.gather(
            *(
                case.ask(
                    BEST_AND_WORST,
                    json_schema=schema,
                    **variables | {"candidates": [case.candidates[index] for index in shown]},
                )
                for shown in orders
            )
        )
    )
    parsed = [parse_best_and_worst(reply, len(shown)) for reply, shown in zip(replies, orders, strict=True)]
    verdict = Verdict(replies=replies, orders=orders, unreadable=parsed.count(None))
    if verdict.unreadable:
        return replace(verdict, reason="judge reply not readable")
    choices = [(shown[ids[0]], shown[ids[1]]) for ids, shown in zip(parsed, orders, strict=True) if ids]
    verdict = replace(verdict, agreements=[choices[0] == choices[1]] if len(choices) == 2 else [])
    if any(best == worst for best, worst in choices):
        alike = all(best == worst for best, worst in choices)
        return replace(verdict, reason="judge named one candidate twice", alike=alike)
    (best, worst), (best_again, worst_again) = choices[0], choices[-1]
    if choices[0] != choices[-1]:
        reason = "judge named others in the other order"
    elif case.cut[best]:
        reason = f"the best candidate {CUT}"
    else:
        reason = ""
    return replace(
        verdict,
        chosen=best if best == best_again and not case.cut[best] else None,
        rejected=worst if worst == worst_again else None,
        reason=reason,
    )
