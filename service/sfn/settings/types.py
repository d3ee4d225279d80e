"""Types of values: strings with a format, durations, sizes, and arrays and tables from environment variables.

The validators raise `ValueError` with a noun phrase that completes "expected …". The message never repeats the value,
because that may be a secret. Only `UnknownUrlParameter` names keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StringConstraints

from sfn.errors import LocationRefused
from sfn.formats.decode import FORMAT_NAMES
from sfn.http.secrets import is_well_formed_token
from sfn.sfnfile.locations import canonical, check_location

_SQLITE = "sqlite:///"
_LIBPQ_PARAMETERS: Final = frozenset(
    {
        "connect_timeout",
        "dbname",
        "host",
        "port",
        "sslcert",
        "sslcrl",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
        "user",
    }
)
"""Parameters of a URL that are passed to libpq. None of them is a secret."""
_MAX_PORT: Final = 65_535
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z_]{1,40}")


class UnknownUrlParameter(ValueError):
    """An unknown parameter in a URL.

    Attributes:
        found: description of the parameter, without secrets.
        remedy: correction to suggest; empty if there is no obvious one.
    """

    def __init__(self, expected: str, found: str, remedy: str = "") -> None:
        super().__init__(expected)
        self.found, self.remedy = found, remedy


def parse_array(value: object) -> object:
    """Parse a string as an array: in TOML's syntax if it begins with `[`, else as a comma-separated list."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _parse_inline(value, "an array of strings")
    return [part.strip() for part in value.split(",") if part.strip()]


def parse_table(value: object) -> object:
    """Parse a string as an inline table of TOML."""
    return _parse_inline(value, "a table such as { name = 'value' }") if isinstance(value, str) else value


def parse_path(value: object) -> object:
    """Return the path of a file, refusing an empty path and `.`."""
    if not isinstance(value, str) or value in {"", "."}:
        raise ValueError("the path of a file")
    return value


def validate_event_format(value: str) -> str:
    """Return the name of an event format."""
    if value not in FORMAT_NAMES:
        raise ValueError(f"one of {', '.join(FORMAT_NAMES)}")
    return value


def validate_bearer_token(value: SecretStr) -> SecretStr:
    """Return a token that a header `Authorization: Bearer` can carry."""
    if not is_well_formed_token(value.get_secret_value()):
        raise ValueError("visible ASCII characters without spaces, and at least one")
    return value


def validate_http_url(value: str) -> str:
    """Return an absolute http or https URL."""
    try:
        parts = urlsplit(value)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        right = False
    if not right:
        raise ValueError("an absolute http or https URL")
    return value


def validate_prefix(value: str) -> str:
    """Return a prefix of table locations in canonical form."""
    if "*" in value:
        raise ValueError("a prefix without `*`: a prefix always includes everything below it")
    try:
        # Check the location of a table below the prefix: a prefix may be a whole bucket, a location may not.
        check_location(f"{value.rstrip('/')}/table")
    except LocationRefused as refused:
        raise ValueError(f"a prefix such as /warehouse or s3://bucket/warehouse: {refused.expected}") from None
    return canonical(value)


def validate_inbox_url(value: str) -> str:
    """Return the URL of a SQLite file or of a PostgreSQL database."""
    return validate_postgres_url(value) if is_postgres(value) else validate_sqlite_url(value)


def is_postgres(url: str) -> bool:
    """Return True for the URL of a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def validate_postgres_url(value: str) -> str:
    """Return a URL in libpq's format (PostgreSQL manual, section 34.1.1.2), with one or more hosts.

    Ambiguous URLs are refused, such as one with a password that is not percent-encoded.
    """
    try:
        parts = urlsplit(value)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        hosts = parts.netloc.rpartition("@")[2].split(",")
        ports = [int(port) for host in hosts if (port := _port_of(host)) is not None]
        right = parts.netloc.count("@") <= 1 and "#" not in value and parts.path.count("/") <= 1
        right = right and all(0 < port <= _MAX_PORT for port in ports) and value.isprintable() and " " not in value
    except ValueError:
        right, options = False, {}
    if not right:
        raise ValueError("postgresql://user:password@host:port/database, with special characters percent-encoded")
    if not options.keys() <= _LIBPQ_PARAMETERS:
        raise _unknown_parameter(urlsplit(value).query, options)
    if options.get("sslmode", "prefer") not in _SSL_MODES:
        raise ValueError(f"one of these values of sslmode: {', '.join(_SSL_MODES)}")
    if not re.fullmatch(r"[1-9]\d?", options.get("connect_timeout", "5")):
        raise ValueError("a connect_timeout from 1 to 99 seconds, without a unit")
    return value


def validate_sqlite_url(value: str) -> str:
    """Return a URL of `sqlite:///` and a path, which is absolute if it begins with a fourth slash."""
    path = sqlite_path(value)
    # `:memory:` is SQLite's name for a database that is lost when the process ends. The other names are folders.
    no_file = path == ":memory:" or path.rpartition("/")[2] in {"", ".", ".."}
    if not value.startswith(_SQLITE) or no_file or {"?", "\0"} & set(value):
        raise ValueError("sqlite:/// and the path of a file, or postgresql:// and a database")
    return value


def sqlite_path(url: str) -> str:
    return url.removeprefix(_SQLITE)


def _port_of(text: str) -> str | None:
    """Return the port of `host:port`; None without a port."""
    found = re.fullmatch(r"(?:[^\[\]:]*|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", text)
    if found is None:
        raise ValueError(text)
    return found[1]


def _unknown_parameter(query: str, options: Mapping[str, str]) -> UnknownUrlParameter:
    """Return the error for parameters that libpq must not get."""
    expected = f"no other parameters of the database than {', '.join(sorted(_LIBPQ_PARAMETERS))}"
    names = list(_safe_names(options))
    # Before an @ there may be a password that is not percent-encoded.
    if not names or "@" in query:
        return UnknownUrlParameter(expected, "another one")
    if "password" in names:
        remedy = "give the password before the host, or in inbox.password_file"
    else:
        close = get_close_matches(names[0].lower(), sorted(_LIBPQ_PARAMETERS), n=1)
        remedy = f"did you mean {close[0]}?" if close else ""
    return UnknownUrlParameter(expected, f"the unknown {', '.join(names)}", remedy)


def _safe_names(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the unknown keys that a message may name: a "key" after a password may be a part of the password."""
    for key in options:
        if key not in _LIBPQ_PARAMETERS and _PARAMETER_NAME.fullmatch(key):
            yield key
        if "password" in key.lower():
            return


def _parse_inline(text: str, expected: str) -> object:
    try:
        parsed: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ValueError(f"{expected}, written as in TOML") from None
    return parsed


DURATION_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
SIZE_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}

MAX_DURATION: Final = timedelta(days=36_500)
"""Maximum of all durations: now plus this duration is still a valid date."""

_ZERO: Final = ("0", 0)
"""Values that need no unit. This is not a set, because a value of a wrong type may not be hashable."""

_QUANTITY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([A-Za-z]{1,3})", re.ASCII)


def parse_duration(text: object) -> timedelta:
    """Parse a duration of one number and one unit, such as `30s`. 0 needs no unit.

    Raises:
        ValueError: the value is not a duration.
    """
    if isinstance(text, timedelta):
        return text
    if text in _ZERO and not isinstance(text, bool):
        return timedelta()
    number, unit = _split_quantity(text)
    if unit not in DURATION_UNITS:
        raise ValueError(f"a duration such as 30s: a number and one of {', '.join(DURATION_UNITS)}")
    # Compare before the multiplication, because the product may exceed the maximum of a timedelta.
    if float(number) > MAX_DURATION / DURATION_UNITS[unit]:
        raise ValueError(f"a duration of at most {MAX_DURATION.days}d")
    return float(number) * DURATION_UNITS[unit]


def parse_duration_or_off(text: object) -> timedelta | None:
    """Parse a duration; return None for `off`.

    Raises:
        ValueError: the value is neither.
    """
    return None if text is None or text == "off" else parse_duration(text)


def duration_between(shortest: str, longest: str) -> AfterValidator:
    """Return a validator that refuses durations outside a range; None (`off`) passes.

    Args:
        shortest, longest: limits, such as `1s`.
    """
    least, most = parse_duration(shortest), parse_duration(longest)

    def check(value: timedelta | None) -> timedelta | None:
        if value is not None and not least <= value <= most:
            raise ValueError(f"a duration from {shortest} to {longest}")
        return value

    return AfterValidator(check)


def parse_size(text: object) -> int:
    """Parse a size of one number and one unit, such as `1MiB`. Return the number of bytes.

    Raises:
        ValueError: the value is not a size, or not a whole number of bytes.
    """
    number, unit = _split_quantity(text)
    if unit not in SIZE_UNITS:
        raise ValueError(f"a size such as 1MiB: a number and one of {', '.join(SIZE_UNITS)}")
    count = float(number) * SIZE_UNITS[unit]
    if not count.is_integer():
        raise ValueError("a whole number of bytes")
    return int(count)


def _split_quantity(text: object) -> tuple[str, str]:
    found = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    return ("", "") if found is None else (found[1], found[2])


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(parse_duration)]
PositiveDuration: TypeAlias = Annotated[timedelta, Field(gt=timedelta()), BeforeValidator(parse_duration)]
DurationOrOff: TypeAlias = Annotated[timedelta | None, BeforeValidator(parse_duration_or_off)]
Size: TypeAlias = Annotated[int, Field(gt=0), BeforeValidator(parse_size)]


Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""Name of a catalog, a sender or a store. Names appear in URLs, metrics and logs."""

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(parse_array)]
Prefix: TypeAlias = Annotated[Text, AfterValidator(validate_prefix)]
Prefixes: TypeAlias = Annotated[tuple[Prefix, ...], BeforeValidator(parse_array)]
File: TypeAlias = Annotated[Path, BeforeValidator(parse_path)]
Url: TypeAlias = Annotated[str, AfterValidator(validate_http_url)]
Secret: TypeAlias = Annotated[SecretStr, Field(min_length=1)]
Token: TypeAlias = Annotated[SecretStr, AfterValidator(validate_bearer_token)]
Secrets: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(parse_table)]
"""Secrets by name. Their format depends on the sender's scheme, so `checks` validates them."""
HeaderName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Properties: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(parse_table)]
HttpHeaders: TypeAlias = Annotated[Mapping[str, SecretStr], BeforeValidator(parse_table)]
EventFormatName: TypeAlias = Annotated[Text, AfterValidator(validate_event_format)]
CatalogNames: TypeAlias = Annotated[Mapping[Text, Text], BeforeValidator(parse_table)]
PublishInterval: TypeAlias = Annotated[Duration, duration_between("0s", "1h")]
"""At most one hour: the inbox ignores a longer interval, because it takes it for a jump of the clock."""
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A section of the settings: a table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
