"""Strings with a shape, and lists and tables that came as a string from the environment.

Each function raises `ValueError` with what it expected, never with what it was given: that may be a secret.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr

from sfn.receiver.tokens import well_formed

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
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
    if value in {"", "."}:
        raise ValueError("the path of a file")
    return value


def bearer_token(value: SecretStr) -> SecretStr:
    """A secret that a header of the scheme Bearer can carry."""
    if not well_formed(value.get_secret_value()):
        raise ValueError("visible ASCII characters without spaces, and at least one")
    return value


def headers(value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    """Header fields that can be sent (RFC 9110, section 5)."""
    for name, content in value.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(content.get_secret_value()):
            raise ValueError("names and values that HTTP can carry")
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


def sqlite_url(value: str) -> str:
    """`sqlite:///` and a path, absolute where a fourth slash follows."""
    if not value.startswith(_SQLITE) or value == _SQLITE or "?" in value:
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
