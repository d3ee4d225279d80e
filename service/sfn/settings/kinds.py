"""Kinds of values that several sections have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints

from sfn.settings import texts
from sfn.settings.quantities import Duration, between

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
Secrets: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(texts.table)]
"""What they look like depends on another key."""
HeaderName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Properties: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(texts.table)]
HttpHeaders: TypeAlias = Annotated[Mapping[str, SecretStr], BeforeValidator(texts.table)]
Dialect: TypeAlias = Annotated[Text, AfterValidator(texts.dialect)]
Names: TypeAlias = Annotated[Mapping[Text, Text], BeforeValidator(texts.table)]
Pause: TypeAlias = Annotated[Duration, between("0s", "1h")]
"""The inbox takes a longer one for a clock that jumped, and passes over it."""
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]
