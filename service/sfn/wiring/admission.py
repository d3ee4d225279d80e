"""From the settings to who is let in: senders, operators, readers, whose each token is, and what we show to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from sfn.clock import Clock
from sfn.dialects import Sender
from sfn.receiver.certificate import Certificate
from sfn.receiver.keyring import Keyring
from sfn.receiver.operators import PARTY, Operators
from sfn.receiver.secret import Scheme
from sfn.receiver.senders import Senders, anonymous
from sfn.receiver.tokens import TokenFile, Tokens
from sfn.settings import Settings
from sfn.telemetry.refusals import Refusals

READERS: Final = "facade"
"""What those who read through the facade are called in a keyring: as their section in the settings."""
METRICS: Final = "telemetry"
"""What those who read the metrics are called in a keyring: as their section in the settings."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is let in.

    Attributes:
        senders: who may send events.
        operators: who may operate the service; None where nobody may.
        readers: whether an `Authorization` header opens the facade; None where nobody need show one.
        scrapers: whether an `Authorization` header opens the metrics; None where they are open to everybody.
        files: of tokens, for somebody to watch.
    """

    senders: Senders
    operators: Operators | None
    readers: Callable[[bytes | None], bool] | None
    scrapers: Callable[[bytes | None], bool] | None
    files: tuple[TokenFile, ...] = ()


def admission(settings: Settings, clock: Clock) -> Admission:
    """Who is let in, by the tokens that are there now and by those that their files will hold.

    Args:
        settings: all of them.
        clock: says whether a signature is of now.

    Raises:
        Broken: a file of tokens can't be read, or two parties have the same token.
    """
    shows = {name: one for name, one in settings.senders.items() if one.scheme is not Scheme.NONE}
    parties = {_party(name): _tokens(one.secrets, one.secrets_file, one.scheme) for name, one in shows.items()}
    admin = settings.admin
    if admin.token is not None or admin.token_file is not None:
        parties[PARTY] = _tokens({} if admin.token is None else {"token": admin.token}, admin.token_file)
    facade = settings.facade
    if facade.has_token:
        parties[READERS] = _tokens({} if facade.token is None else {"token": facade.token}, facade.token_file)
    telemetry = settings.telemetry
    if telemetry.metrics_token is not None or telemetry.metrics_token_file is not None:
        named = {} if telemetry.metrics_token is None else {"metrics_token": telemetry.metrics_token}
        parties[METRICS] = _tokens(named, telemetry.metrics_token_file)
    keyring = Keyring(parties)
    return Admission(
        _senders(settings, keyring, clock) if settings.senders else anonymous(settings.catalogs),
        Operators(keyring, Refusals(PARTY)) if PARTY in parties else None,
        partial(_opens, keyring, READERS) if READERS in parties else None,
        partial(_opens, keyring, METRICS) if METRICS in parties else None,
        tuple(tokens.file for tokens in parties.values() if tokens.file is not None),
    )


def certificate(settings: Settings) -> Certificate | None:
    """What the listener shows; None without TLS.

    Raises:
        Broken: its files can't be used now.
    """
    chain, key = settings.listener.tls_certificate_file, settings.listener.tls_key_file
    return None if chain is None or key is None else Certificate(chain, key)


def _opens(keyring: Keyring, party: str, authorization: bytes | None) -> bool:
    owner = keyring.whose(authorization)
    return owner is not None and owner[0] == party


def _senders(settings: Settings, keyring: Keyring, clock: Clock) -> Senders:
    known = {name: Sender(name, settings.catalogs_of(name), one.dialect) for name, one in settings.senders.items()}
    shows = [name for name, one in settings.senders.items() if one.scheme is not Scheme.NONE]
    return Senders(
        keyring,
        {_party(name): known[name] for name in shows},
        next((known[name] for name in known if name not in shows), None),
        signing={_party(name): how for name in shows if (how := settings.senders[name].manner) is not None},
        rates={name: one.rate_limit for name, one in settings.senders.items() if one.rate_limit is not None},
        clock=clock,
    )


def _party(sender: str) -> str:
    return f"senders.{sender}"


def _tokens(named: Mapping[str, SecretStr], file: Path | None, scheme: Scheme = Scheme.BEARER) -> Tokens:
    secrets = {name: secret.get_secret_value() for name, secret in named.items()}
    return Tokens(secrets, None if file is None else TokenFile(file, scheme), scheme)
