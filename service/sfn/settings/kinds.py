"""Kinds of values that several sections have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints

from sfn.settings import texts
from sfn.settings.quantities import Duration, duration_between

Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""What an operator may call a catalog, a sender or a store: it goes into URLs, metrics and logs."""

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(texts.parse_array)]
Prefix: TypeAlias = Annotated[Text, AfterValidator(texts.validate_prefix)]
Prefixes: TypeAlias = Annotated[tuple[Prefix, ...], BeforeValidator(texts.parse_array)]
File: TypeAlias = Annotated[Path, BeforeValidator(texts.parse_path)]
Url: TypeAlias = Annotated[str, AfterValidator(texts.validate_http_url)]
Secret: TypeAlias = Annotated[SecretStr, Field(min_length=1)]
Token: TypeAlias = Annotated[SecretStr, AfterValidator(texts.validate_bearer_token)]
Secrets: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(texts.parse_table)]
"""What they look like depends on another key."""
HeaderName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Properties: TypeAlias = Annotated[Mapping[Text, SecretStr], BeforeValidator(texts.parse_table)]
HttpHeaders: TypeAlias = Annotated[Mapping[str, SecretStr], BeforeValidator(texts.parse_table)]
EventFormatName: TypeAlias = Annotated[Text, AfterValidator(texts.validate_event_format)]
CatalogNames: TypeAlias = Annotated[Mapping[Text, Text], BeforeValidator(texts.parse_table)]
PublishInterval: TypeAlias = Annotated[Duration, duration_between("0s", "1h")]
"""The inbox takes a longer one for a clock that jumped, and passes over it."""
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]
