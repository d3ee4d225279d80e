"""Kinds of values that several sections have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints

from sfn.settings import texts
from sfn.settings.quantities import Duration, between

T = TypeVar("T")


def only(value: T, expected: str) -> AfterValidator:
    """Refuses every other value: of a key whose other values are a later version's.

    Args:
        expected: the value, and why no other.
    """

    def check(found: T) -> T:
        if found != value:
            raise ValueError(expected)
        return found

    return AfterValidator(check)


Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""What an operator may call a catalog, a sender or a store: it goes into URLs, metrics and logs."""

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(texts.array)]
Prefix: TypeAlias = Annotated[Text, AfterValidator(texts.prefix)]
Prefixes: TypeAlias = Annotated[tuple[Prefix, ...], BeforeValidator(texts.array)]
File: TypeAlias = Annotated[Path, BeforeValidator(texts.path)]
Url: TypeAlias = Annotated[str, AfterValidator(texts.http_url)]
Secret: TypeAlias = Annotated[SecretStr, Field(min_length=1)]
Token: TypeAlias = Annotated[SecretStr, AfterValidator(texts.bearer_token)]
Tokens: TypeAlias = Annotated[Mapping[Text, Token], BeforeValidator(texts.table)]
Properties: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(texts.table)]
HttpHeaders: TypeAlias = Annotated[Mapping[str, SecretStr], BeforeValidator(texts.table)]
Dialect: TypeAlias = Annotated[Text, AfterValidator(texts.dialect)]
Names: TypeAlias = Annotated[Mapping[Text, Text], BeforeValidator(texts.table)]
Pause: TypeAlias = Annotated[Duration, between("0s", "1h")]
"""The inbox takes a longer one for a clock that jumped, and passes over it."""
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]
