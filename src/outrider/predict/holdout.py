"""`--holdout` expressions: comparisons over a cell's columns, evaluated without Python's eval."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from outrider.predict.errors import PredictError
from outrider.stack.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


def matches(expression: str, columns: Mapping[str, Any]) -> bool:
    """Whether a cell is held out: `dcp==4`, `k==3 and batch in (4, 64)`, `not ctx < 65536`.

    Raises:
        PredictError: not such an expression, or a column that cells do not have.
    """
    try:
        tree = ast.parse(expression, mode="eval").body
        return bool(_value(tree, columns))
    except (SyntaxError, TypeError, KeyError, RecursionError) as error:
        raise PredictError(
            f"--holdout {expression!r} is no condition on cells",
            evidence=f"{type(error).__name__}: {error}",
            next_step=f"compare {', '.join(sorted(columns))} with numbers or quoted names, joined by and, or, not",
        ) from error


def _value(node: ast.expr, columns: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in columns:
            raise PredictError(
                f"cells have no column {node.id!r}{did_you_mean(node.id, columns)}",
                next_step=f"one of: {', '.join(sorted(columns))}",
            )
        return columns[node.id]
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(item, columns) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, columns)
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(item, columns)) for item in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Compare):
        sides = [_value(item, columns) for item in (node.left, *node.comparators)]
        return all(_COMPARE[type(op)](sides[i], sides[i + 1]) for i, op in enumerate(node.ops))
    raise TypeError(f"{type(node).__name__} is not allowed here")
