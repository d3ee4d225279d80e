"""What PromQL expressions name: metrics, labels, and how series are added up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

EXCLUDING = (MatchOp.NotEqual, MatchOp.NotRe)
MACROS = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "1h"}
"""Durations of Grafana, with a value that PromQL understands."""
VARIABLE = re.compile(r"\$\{?\w+\}?")
"""A variable of Grafana, as the value of a label."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label.

    Attributes:
        label: name of the label.
        values: values that it selects; empty if it excludes values, or if Grafana puts the value in.
    """

    label: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """One use of a metric in an expression.

    Attributes:
        metric: name of the metric.
        matchers: conditions on its labels.
        inside: functions, aggregations and ranges around it, from the outermost on.
    """

    metric: str
    matchers: tuple[Matcher, ...]
    inside: tuple[str, ...]


def without_macros(expr: str, values: Mapping[str, str] | None = None) -> str:
    """Return an expression of Grafana as PromQL.

    Args:
        expr: the expression.
        values: values of variables, without `$`.
    """
    for macro, duration in MACROS.items():
        expr = expr.replace(macro, duration)
    for name, value in (values or {}).items():
        expr = expr.replace(f"${name}", value)
    return expr


def selectors(expr: str) -> list[Selector]:
    """Return every use of a metric in an expression.

    Raises:
        ValueError: the expression is no PromQL.
    """
    return list(_selectors(promql_parser.parse(without_macros(expr)), ()))


def grouping(expr: str) -> set[str]:
    """Return the labels that an expression groups by, or matches series on."""
    found: set[str] = set()

    def visit(node: Expr) -> None:
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)
        if isinstance(node, BinaryExpr) and node.modifier is not None:
            if node.modifier.matching is not None:
                found.update(node.modifier.matching.labels)
            found.update(node.modifier.group_labels or ())

    promql_parser.walk(promql_parser.parse(without_macros(expr)), pre_visit=visit)
    return found


def _selectors(node: Expr, inside: tuple[str, ...]) -> Iterator[Selector]:
    match node:
        case VectorSelector():
            yield Selector(str(node.name), tuple(map(_matcher, node.matchers.matchers)), inside)
        case MatrixSelector():
            yield from _selectors(node.vector_selector, (*inside, "range"))
        case Call():
            for argument in node.args:
                yield from _selectors(argument, (*inside, node.func.name))
        case AggregateExpr():
            yield from _selectors(node.expr, (*inside, str(node.op)))
        case BinaryExpr():
            yield from _selectors(node.lhs, inside)
            yield from _selectors(node.rhs, inside)
        case ParenExpr() | UnaryExpr() | SubqueryExpr():
            yield from _selectors(node.expr, inside)
        case NumberLiteral() | StringLiteral():
            return
        case _:
            raise TypeError(f"expected a known kind of expression, found {type(node)}")


def _matcher(matcher: promql_parser.Matcher) -> Matcher:
    value = matcher.value
    if VARIABLE.fullmatch(value) or matcher.op in EXCLUDING:
        return Matcher(matcher.name, ())
    return Matcher(matcher.name, tuple(value.split("|")) if matcher.op == MatchOp.Re else (value,))
