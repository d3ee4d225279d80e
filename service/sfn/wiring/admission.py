"""From the settings to who is let in: senders, operators, readers, whose each token is, and what we show to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from sfn.clock import Clock
from sfn.formats.event import Sender
from sfn.http.secrets import AuthScheme, PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth, Senders, anonymous_senders
from sfn.http.server import Certificate
from sfn.settings import Settings
from sfn.telemetry.refusals import RejectionLog

READERS_PARTY: Final = "facade"
"""What those who read through the facade are called in a keyring: as their section in the settings."""
METRICS_PARTY: Final = "telemetry"
"""What those who read the metrics are called in a keyring: as their section in the settings."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Who is let in.

    Attributes:
        senders: who may send events.
        operators: who may operate the service; None where nobody may.
        readers: whether an `Authorization` header opens the facade; None where nobody need show one.
        scrapers: whether an `Authorization` header opens the metrics; None where they are open to everybody.
        files: of tokens, for somebody to watch.
    """

    senders: Senders
    operators: OperatorAuth | None
    readers: Callable[[bytes | None], bool] | None
    scrapers: Callable[[bytes | None], bool] | None
    files: tuple[WatchedTokenFile, ...] = ()


def build_access_control(settings: Settings, clock: Clock) -> AccessControl:
    """Who is let in, by the tokens that are there now and by those that their files will hold.

    Args:
        settings: all of them.
        clock: says whether a signature is of now.

    Raises:
        Broken: a file of tokens can't be read, or two parties have the same token.
    """
    authenticated = {name: one for name, one in settings.senders.items() if one.scheme is not AuthScheme.NONE}
    parties = {
        _party_of_sender(name): _load_tokens(one.secrets, one.secrets_file, one.scheme)
        for name, one in authenticated.items()
    }
    admin = settings.admin
    if admin.token is not None or admin.token_file is not None:
        parties[OPERATORS_PARTY] = _load_tokens({} if admin.token is None else {"token": admin.token}, admin.token_file)
    facade = settings.facade
    if facade.has_token:
        parties[READERS_PARTY] = _load_tokens(
            {} if facade.token is None else {"token": facade.token}, facade.token_file
        )
    telemetry = settings.telemetry
    if telemetry.metrics_token is not None or telemetry.metrics_token_file is not None:
        named = {} if telemetry.metrics_token is None else {"metrics_token": telemetry.metrics_token}
        parties[METRICS_PARTY] = _load_tokens(named, telemetry.metrics_token_file)
    keyring = Keyring(parties)
    return AccessControl(
        _build_senders(settings, keyring, clock) if settings.senders else anonymous_senders(settings.catalogs),
        OperatorAuth(keyring, RejectionLog(OPERATORS_PARTY)) if OPERATORS_PARTY in parties else None,
        partial(_is_token_of, keyring, READERS_PARTY) if READERS_PARTY in parties else None,
        partial(_is_token_of, keyring, METRICS_PARTY) if METRICS_PARTY in parties else None,
        tuple(tokens.file for tokens in parties.values() if tokens.file is not None),
    )


def load_certificate(settings: Settings) -> Certificate | None:
    """What the listener shows; None without TLS.

    Raises:
        Broken: its files can't be used now.
    """
    chain, key = settings.listener.tls_certificate_file, settings.listener.tls_key_file
    return None if chain is None or key is None else Certificate(chain, key)


def _is_token_of(keyring: Keyring, party: str, authorization: bytes | None) -> bool:
    owner = keyring.owner_of(authorization)
    return owner is not None and owner[0] == party


def _build_senders(settings: Settings, keyring: Keyring, clock: Clock) -> Senders:
    known = {name: Sender(name, settings.catalogs_of(name), one.dialect) for name, one in settings.senders.items()}
    authenticated = [name for name, one in settings.senders.items() if one.scheme is not AuthScheme.NONE]
    return Senders(
        keyring,
        {_party_of_sender(name): known[name] for name in authenticated},
        next((known[name] for name in known if name not in authenticated), None),
        signing={
            _party_of_sender(name): how
            for name in authenticated
            if (how := settings.senders[name].signature_scheme) is not None
        },
        rates={name: one.rate_limit for name, one in settings.senders.items() if one.rate_limit is not None},
        clock=clock,
    )


def _party_of_sender(sender: str) -> str:
    return f"senders.{sender}"


def _load_tokens(
    named: Mapping[str, SecretStr], file: Path | None, scheme: AuthScheme = AuthScheme.BEARER
) -> PartyTokens:
    secrets = {name: secret.get_secret_value() for name, secret in named.items()}
    return PartyTokens(secrets, None if file is None else WatchedTokenFile(file, scheme), scheme)
