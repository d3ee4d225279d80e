"""The sections `senders.NAME` and `admin`: who may ask for something, and how they show it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sfn.settings.bound import Bound
from sfn.settings.kinds import File, Text, Token, Tokens, only
from sfn.settings.section import Section


class SenderSettings(Bound):
    """Who may send events.

    Attributes:
        scheme: how a sender shows who it is.
        secrets: active tokens by name.
        secrets_file: more tokens, one a line; read again when it changes.
    """

    scheme: Annotated[Text, only("bearer", "'bearer', the only scheme of this version")] = "bearer"
    secrets: Tokens = Field(default_factory=dict)
    secrets_file: File | None = None


class AdminSettings(Section):
    """Who operates the service; without a token there are no admin routes.

    Attributes:
        token: bearer token; `token_file` a file with such tokens, one a line; read again when it changes.
    """

    token: Token | None = None
    token_file: File | None = None
