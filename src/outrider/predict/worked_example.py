"""The flagship by hand: what the model says to its published decode profile, beside the folk estimate.

`python -m outrider.predict.worked_example docs/predicting.md` writes the tables into the page; a test holds both
together.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from outrider.predict.experts import distinct_experts
from outrider.predict.model import PARTS
from outrider.predict.session import Session, open_session
from outrider.predict.shares import Shares
from outrider.predict.surface import Wanted, predict
from outrider.stack import find_stack

if TYPE_CHECKING:
    from outrider.campaign.stats import Interval

# Kimi-K2.5 INT4, TP8, 8x RTX PRO 6000 over PCIe, no speculation, concurrency 1: 82.5 tok/s and its time shares.
PROFILE = Shares(0.0121, allreduce=0.515, attention=0.153, dense=0.134, experts=0.111, source="the node's profile")
FOLK = (1.9, 2.3)
_K, _CONTEXT = 3, 512.0
_BEGIN, _END = "<!-- worked example: begin -->", "<!-- worked example: end -->"
_MEANINGS = (
    ("rate=0.7", "70 % of drafted tokens accepted"),
    ("conditional=0.7", "70 % at each position, given the one before"),
    ("al=2.14", "what others measured with this drafter (38 % of drafted)"),
)


def worked_example() -> str:
    """The tables, as markdown."""
    stack = find_stack("kimi-k2.5-rtx6000x8")
    sessions = {text: open_session(stack, shares=PROFILE, acceptance=text) for text, _ in _MEANINGS}
    first = sessions["rate=0.7"]
    return "\n\n".join([_parts_table(first), _meanings_table(sessions), _loads_table(first), _unions(first)])


def _parts_table(session: Session) -> str:
    plain, fast = predict(
        session.fit,
        [Wanted("baseline", 0, 1, _CONTEXT), Wanted("eagle3", _K, 1, _CONTEXT)],
        session.draft_bytes,
        acceptance=session.acceptance,
    )
    rows = ["| part | plain step, ms | verifying 4 tokens, ms | grows by, ms |", "|---|---:|---:|---:|"]
    for part in PARTS:
        before, after = plain.parts_s[part] * 1000, fast.parts_s[part] * 1000
        rows.append(f"| {part} | {before:.1f} | {after:.1f} | {after - before:.1f} |")
    before, after = plain.step_s.mid * 1000, fast.step_s.mid * 1000
    rows.append(f"| **step** | **{before:.1f}** | **{after:.1f}** | **{after - before:.1f}** |")
    ratio = fast.step_cost_ratio
    told = f"Step-cost ratio {_ends(ratio)}: the number of tokens a step at which speculation breaks even."
    return "\n".join([*rows, "", told])


def _meanings_table(sessions: dict[str, Session]) -> str:
    rows = ['| what "70 %" means | tokens a step | speedup, 95 % interval |', "|---|---:|---:|"]
    for text, meaning in _MEANINGS:
        one = predict(
            sessions[text].fit,
            [Wanted("eagle3", _K, 1, _CONTEXT)],
            sessions[text].draft_bytes,
            acceptance=sessions[text].acceptance,
        )[0]
        rows.append(f"| {meaning} (`{text}`) | {one.tokens_per_step:.2f} | {_ends(one.speedup)} |")
    return "\n".join(rows)


def _loads_table(session: Session) -> str:
    rows = ["| users | context | step-cost ratio | speedup at 3.1 tokens a step |", "|---:|---:|---:|---:|"]
    places = [(1, 512), (8, 512), (32, 512), (128, 512), (1, 65536), (2, 65536)]
    found = predict(
        session.fit,
        [Wanted("eagle3", _K, batch, float(context)) for batch, context in places],
        session.draft_bytes,
        acceptance=session.acceptance,
    )
    rows += [
        f"| {one.at.batch} | {one.at.context:.0f} | {_ends(one.step_cost_ratio)} | {_ends(one.speedup)} |"
        for one in found
    ]
    return "\n".join(rows)


def _unions(session: Session) -> str:

    machine, factors = session.fit.machine, session.fit.factors
    one, four = distinct_experts(
        np.array([1.0, 4.0]), machine.experts, machine.per_token, factors.overlap, factors.skew
    )
    uniform = distinct_experts(np.array([4.0]), machine.experts, machine.per_token)[0]
    return (
        f"Experts read a layer: {one:.0f} for one token, {four:.0f} for four ({uniform:.0f} if routing were uniform)."
    )


def _ends(interval: Interval | None) -> str:
    return f"{interval.mid:.2f} ({interval.low:.2f}-{interval.high:.2f})" if interval else "-"


def inserted(page: str) -> str:
    """The page with the tables between its marks."""
    block = f"{_BEGIN}\n{worked_example()}\n{_END}"
    return re.sub(f"{_BEGIN}.*{_END}", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(inserted(target.read_text(encoding="utf-8")), encoding="utf-8")
