"""Where the service is, and how a command shows who asks: from the options, else from the configuration."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfn.cli.options import Flags
from sfn.cli.signing import Signing
from sfn.errors import SfnError
from sfn.receiver.secret import WEBHOOK, Scheme, octets
from sfn.settings import (
    AdminSettings,
    CatalogSettings,
    ListenerSettings,
    Misconfigured,
    SenderSettings,
    Settings,
    load,
    load_client,
    without_any,
)
from sfn.settings.texts import http_url

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - what a configuration says, read and not bound


@dataclass(frozen=True, slots=True)
class Access:
    """How the service is reached.

    Attributes:
        url: where it listens, without a trailing slash.
        token: bearer token; None where none is needed.
        trust: the certificates that its own is verified by; False without TLS.
        signing: what events are signed with, where they are.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    trust: ssl.SSLContext | bool = True
    signing: Signing | None = None


def operators(flags: Flags) -> Access:
    """Access to the admin routes.

    Raises:
        Misconfigured: there is no token, or no URL, to be found.
    """
    known = None if flags.url is not None and flags.token_file is not None else load_client(flags.config)
    token = None if flags.token_file is None else first_token(flags.token_file)
    if token is None and known is not None:
        token = _operators_token(known.admin, flags.config)
    return _reached(flags, token, None if known is None else known.listener)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who may tell of a catalog's tables.

    Attributes:
        sender: its name; None for everybody.
        theirs: what it calls the catalog.
        ours: what the configuration calls it.
    """

    sender: str | None
    theirs: str
    ours: str


@dataclass(frozen=True, slots=True)
class Voice:
    """Access to the route of events.

    Attributes:
        access: how it is reached.
        theirs: what the sender whose token is shown calls the catalog; None for the only one.
        catalog: the catalog's name in the configuration.
        settings: its settings; None where the configuration was not read.
    """

    access: Access
    theirs: str | None
    catalog: str | None
    settings: CatalogSettings | None = None


def senders(flags: Flags, catalog: str | None, named: str | None) -> Voice:
    """Access to the route of events.

    Args:
        catalog: which one is meant, None for the only one.
        named: which configured sender to be, None for any that speaks for the catalog: then `flags.token_file` holds a
            bearer token, else what that sender shows or signs with.

    Raises:
        Misconfigured: there is no token or secret, no URL or no such sender.
    """
    if flags.token_file is not None and named is None:
        listener = None if flags.url is not None else load_client(flags.config).listener
        return Voice(_reached(flags, _shown_in_clear(flags.token_file), listener), catalog, catalog)
    settings = load(flags.config)
    found = speaker(settings, catalog, named)
    access = _reached(flags, None, settings.listener)
    if found.sender is not None:
        access = _shown(access, found.sender, settings.senders[found.sender], flags.token_file)
    return Voice(access, found.theirs, found.ours, settings.catalogs[found.ours])


def speaker(settings: Settings, catalog: str | None, named: str | None) -> Speaker:
    """Which configured sender may tell of a catalog's tables.

    Raises:
        Misconfigured: none may, or it is not said which catalog.
    """
    if named is not None and named not in settings.senders:
        known = ", ".join(settings.senders) or "none"
        raise _lacking("--sender", f"a configured sender ({known})", named)
    everybody = {None: {name: name for name in settings.catalogs}}
    spoken = {name: settings.catalogs_of(name) for name in settings.senders if named in {None, name}} or everybody
    pairs = [(sender, theirs, ours) for sender, names in spoken.items() for theirs, ours in names.items()]
    told = sorted({ours for _, _, ours in pairs})
    if catalog is None and len(told) > 1:
        raise _lacking("--catalog", f"one of {', '.join(told)}, as there are several", "none")
    for sender, theirs, ours in pairs:
        if catalog in {None, ours}:
            return Speaker(sender, theirs, ours)
    remedy = "configure a sender for it, or give --token-file"
    raise _lacking("--catalog", f"a catalog that a sender speaks for ({', '.join(told)})", str(catalog), remedy)


def first_token(file: Path, scheme: Scheme = Scheme.BEARER) -> str:
    """The first token of a file of tokens, one a line; empty lines and remarks (`#`) are passed over.

    Args:
        file: it.
        scheme: what they are for.

    Raises:
        Misconfigured: there is none.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        found = error.strerror or "an error"
    except UnicodeDecodeError:
        found = "bytes that are not UTF-8"
    else:
        token = next((line for raw in lines if (line := raw.strip()) and not line.startswith("#")), "")
        try:
            octets(scheme, token)
        except ValueError as error:
            found = f"none of {error}" if token else f"no {scheme.word}"
        else:
            return token
    raise _lacking(str(file), f"a file whose first line is a {scheme.word}", found)


def url_of(listener: ListenerSettings) -> str:
    """Where this machine reaches a listener.

    Raises:
        Misconfigured: it listens on whichever port is free.
    """
    if listener.port == 0:
        remedy = "give --url; the service's record `listening` says it"
        raise _lacking("listener.port", "the port that the service listens on", "0, which is any free one", remedy)
    host = listener.host.removeprefix("[").removesuffix("]")
    if listener.host in _EVERYWHERE:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{listener.port}"


def _url(flags: Flags, listener: ListenerSettings | None) -> str:
    if flags.url is None:
        return url_of(listener or ListenerSettings())
    try:
        return http_url(flags.url).rstrip("/")
    except ValueError as error:
        expected = f"{error}, such as http://127.0.0.1:8085"
    raise _lacking("--url", expected, flags.url)


def _reached(flags: Flags, token: str | None, listener: ListenerSettings | None) -> Access:
    url = _url(flags, listener)
    if url.startswith("http://"):
        # There is nothing to verify, and certificates take long to load.
        return Access(url, token, trust=False)
    own = None if listener is None or flags.url is not None else listener.tls_certificate_file
    file = flags.ca_file or own
    try:
        if flags.ca_file is None and own is not None:
            return Access(url, token, _just(own))
        return Access(url, token, ssl.create_default_context(cafile=flags.ca_file))
    except (OSError, UnicodeDecodeError) as error:
        # An SSLError is an OSError too: of a file that holds no certificate.
        found = getattr(error, "strerror", None) or type(error).__name__
    raise _lacking(str(file), "a file of PEM certificates", found)


def _just(chain: Path) -> ssl.SSLContext:
    """Trust in the listener's own certificate, the first one of its file, and in nothing that others of it signed.

    It is reached by an address that this certificate need not name.
    """
    own = _CERTIFICATE.search(chain.read_text("ascii"))
    if own is None:
        raise _lacking(str(chain), "a file of PEM certificates", "none in it")
    trust = ssl.create_default_context(cadata=own[0])
    trust.check_hostname = False
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return trust


def _operators_token(admin: AdminSettings, config: Path | None) -> str:
    if admin.token is not None:
        return admin.token.get_secret_value()
    if admin.token_file is not None:
        return first_token(admin.token_file)
    remedy = "name the configuration (--config FILE) that has [admin] token or token_file, or give --token-file"
    lacking = SfnError("admin.token", expected="the operators' token", found="none", remedy=remedy)
    raise without_any(config, lacking)


def _shown_in_clear(file: Path) -> str:
    token = first_token(file)
    if token.startswith(WEBHOOK):
        # Whoever reads it on the way could sign with it from then on.
        remedy = "say which sender's, --sender NAME"
        raise _lacking(str(file), "a file whose first line is a token", "a secret that signs", remedy)
    return token


def _shown(access: Access, name: str, sender: SenderSettings, given: Path | None) -> Access:
    """As a sender, by what a file holds that was given, else by the first of its tokens or secrets."""
    if given is not None and sender.scheme is Scheme.NONE:
        raise _lacking("--token-file", f"none, as the sender {name} shows nothing", str(given))
    secret = None if given is not None else next((one.get_secret_value() for one in sender.secrets.values()), None)
    file = given or sender.secrets_file
    if secret is None and file is not None:
        secret = first_token(file, sender.scheme)
    if secret is None or sender.manner is None:
        return replace(access, token=secret)
    return replace(access, signing=Signing(sender.manner, octets(sender.scheme, secret)))


def _lacking(where: str, expected: str, found: str, remedy: str = "") -> Misconfigured:
    return Misconfigured([SfnError(where, expected=expected, found=found, remedy=remedy)])
