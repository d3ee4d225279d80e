"""Strings with a shape, and lists and tables that came as a string from the environment.

Each function raises `ValueError` with what it expected, never with what it was given: that may be a secret.
"""

from __future__ import annotations

import tomllib
from urllib.parse import urlsplit

from pydantic import SecretStr

from sfn.errors import LocationRefused
from sfn.pointer.location import canonical, checked
from sfn.receiver.bearer import well_formed

_SQLITE = "sqlite:///"


def array(value: object) -> object:
    """A string becomes an array: as in TOML where it begins with `[`, else of its parts between commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _inline(value, "an array of strings")
    return [part.strip() for part in value.split(",") if part.strip()]


def table(value: object) -> object:
    """A string becomes a table, as an inline one in TOML."""
    return _inline(value, "a table such as { name = 'value' }") if isinstance(value, str) else value


def path(value: object) -> object:
    """The path of a file."""
    if not isinstance(value, str) or value in {"", "."}:
        raise ValueError("the path of a file")
    return value


def bearer_token(value: SecretStr) -> SecretStr:
    """A secret that a header of the scheme Bearer can carry."""
    if not well_formed(value.get_secret_value()):
        raise ValueError("visible ASCII characters without spaces, and at least one")
    return value


def http_url(value: str) -> str:
    """An absolute http or https URL."""
    try:
        parts = urlsplit(value)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        right = False
    if not right:
        raise ValueError("an absolute http or https URL")
    return value


def prefix(value: str) -> str:
    """A location below which tables may lie, in the one spelling of its place."""
    if "*" in value:
        raise ValueError("a prefix without `*`: all that lies below it is meant")
    try:
        # Of a table below it, for a prefix may be a whole bucket.
        checked(f"{value.rstrip('/')}/table")
    except LocationRefused as refused:
        raise ValueError(f"a prefix such as /warehouse or s3://bucket/warehouse: {refused.expected}") from None
    return canonical(value)


def sqlite_url(value: str) -> str:
    """`sqlite:///` and a path, absolute where a fourth slash follows."""
    path = sqlite_path(value)
    # SQLite's own name of a database that is lost with the process, and folders.
    no_file = path == ":memory:" or path.rpartition("/")[2] in {"", ".", ".."}
    if not value.startswith(_SQLITE) or no_file or {"?", "\0"} & set(value):
        raise ValueError("sqlite:/// and the path of a file: this version has no other inbox")
    return value


def sqlite_path(url: str) -> str:
    """The path in such a URL."""
    return url.removeprefix(_SQLITE)


def _inline(text: str, expected: str) -> object:
    try:
        parsed: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ValueError(f"{expected}, written as in TOML") from None
    return parsed
