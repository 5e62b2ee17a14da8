"""Findings about expert budgets."""

from outrider.preflight.catalogue.kind import Kind

BUDGET = (
    Kind(
        "BUDGET001",
        "error",
        "expert budget without `allow_lossy`",
        "Experts that the router chose are left out, so answers differ from the target's. Nothing of the kind is on "
        "unless the stack opts in.",
        "Take the budget out, or set `allow_lossy: true`; reports will be marked.",
    ),
    Kind(
        "BUDGET002",
        "error",
        "expert budget below top_k",
        "A token needs as many experts as the target routes it to; with fewer in the budget none could be routed.",
        "Raise `expert_budget.experts` to top_k at least. One token alone reads exactly top_k.",
    ),
    Kind(
        "BUDGET003",
        "error",
        "expert budget on a target without routed experts",
        "The target has no mixture of experts; the engine would refuse to start.",
        "Take the budget out of this variant.",
    ),
    Kind(
        "BUDGET004",
        "error",
        "the pinned engine's router is not the one that the expert budget was written for",
        "The budget sits behind the engine's routers, whose interface is not public. It was read in the versions that "
        "have a table; in another one the budget might not be asked at all.",
        "Pin a version whose table names all of it, or take the budget out.",
    ),
    Kind(
        "BUDGET005",
        "error",
        "expert budget with data-parallel ranks",
        "Ranks hold different tokens and each would choose experts of its own, while experts are shared between them.",
        "Set `parallel.data: 1`, or take the budget out.",
    ),
    Kind(
        "BUDGET006",
        "advisory",
        "expert budget that leaves nothing out",
        "The budget is as large as the number of routed experts: it costs its own work at every step and saves none.",
        "Lower `expert_budget.experts`, or take the budget out.",
    ),
)
