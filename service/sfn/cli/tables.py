"""Tables as people name them: `sales.orders`."""

from __future__ import annotations

import typer

from sfn.domain.identifiers import decode_identifier


def parse_identifier(text: str, hint: str) -> tuple[str, ...]:
    """Levels and name of a dotted identifier, whose parts may be percent-encoded: `a%2Eb.c` is the table c of `a.b`.

    Args:
        hint: which argument or option it is, for the message.

    Raises:
        BadParameter: a part is empty, or no UTF-8.
    """
    try:
        return decode_identifier(text)
    except ValueError:
        expected = "an identifier such as sales.orders, without empty parts; a dot in a part is %2E"
    raise typer.BadParameter(f"{expected}: {text!r}", param_hint=hint)


def parse_table_name(text: str, hint: str = "NS.TABLE") -> tuple[tuple[str, ...], str]:
    """The namespace's levels and the name.

    Raises:
        BadParameter: as of `identifier`, or there is no namespace.
    """
    *namespace, name = parse_identifier(text, hint)
    if not namespace:
        raise typer.BadParameter(f"a namespace and a name, such as sales.orders: {text!r}", param_hint=hint)
    return tuple(namespace), name
