"""From the settings to who is let in: senders and operators, and whose each token is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from sfn.dialects import Sender
from sfn.receiver.keyring import Keyring
from sfn.receiver.operators import PARTY, Operators
from sfn.receiver.refusals import Refusals
from sfn.receiver.senders import Senders, anonymous
from sfn.receiver.tokens import TokenFile, Tokens
from sfn.settings import Settings


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is let in.

    Attributes:
        senders: who may send events.
        operators: who may operate the service; None where nobody may.
    """

    senders: Senders
    operators: Operators | None


def admission(settings: Settings) -> Admission:
    """Who is let in, by the tokens that are there now and by those that their files will hold.

    Raises:
        Broken: a file of tokens can't be read, or two parties have the same token.
    """
    senders = {f"senders.{name}": Sender(name, settings.catalogs_of(name)) for name in settings.senders}
    parties = {f"senders.{name}": _tokens(one.secrets, one.secrets_file) for name, one in settings.senders.items()}
    admin = settings.admin
    if admin.token is not None or admin.token_file is not None:
        parties[PARTY] = _tokens({} if admin.token is None else {"token": admin.token}, admin.token_file)
    keyring = Keyring(parties)
    return Admission(
        Senders(keyring, senders) if senders else anonymous(settings.catalogs),
        Operators(keyring, Refusals(PARTY)) if PARTY in parties else None,
    )


def _tokens(named: Mapping[str, SecretStr], file: Path | None) -> Tokens:
    secrets = {name: secret.get_secret_value() for name, secret in named.items()}
    return Tokens(secrets, None if file is None else TokenFile(file))
