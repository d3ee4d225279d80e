"""Where the service is, and how a command shows who asks: from the options, else from the configuration."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfn.cli.options import ServiceOptions
from sfn.cli.signing import EventSigner
from sfn.errors import SfnError
from sfn.http.secrets import WEBHOOK_PREFIX, AuthScheme, secret_bytes
from sfn.settings import explain_no_settings, load, load_client
from sfn.settings.model import Settings
from sfn.settings.sections import AdminSettings, CatalogSettings, SenderSettings
from sfn.settings.service import ListenerSettings
from sfn.settings.sources import ConfigurationError
from sfn.settings.types import validate_http_url

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - what a configuration says, read and not bound


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How the service is reached.

    Attributes:
        url: where it listens, without a trailing slash.
        token: bearer token; None where none is needed.
        tls_verify: the certificates that its own is verified by; False without TLS.
        signer: what events are signed with, where they are.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    tls_verify: ssl.SSLContext | bool = True
    signer: EventSigner | None = None


def admin_access(flags: ServiceOptions) -> ServiceAccess:
    """Access to the admin routes.

    Raises:
        Misconfigured: there is no token, or no URL, to be found.
    """
    known = None if flags.url is not None and flags.token_file is not None else load_client(flags.config)
    token = None if flags.token_file is None else read_first_token(flags.token_file)
    if token is None and known is not None:
        token = _admin_token(known.admin, flags.config)
    return _access(flags, token, None if known is None else known.listener)


@dataclass(frozen=True, slots=True)
class CatalogSender:
    """Who may tell of a catalog's tables.

    Attributes:
        sender: its name; None for everybody.
        sender_catalog: what it calls the catalog.
        catalog: what the configuration calls it.
    """

    sender: str | None
    sender_catalog: str
    catalog: str


@dataclass(frozen=True, slots=True)
class EventAccess:
    """Access to the route of events.

    Attributes:
        access: how it is reached.
        sender_catalog: what the sender whose token is shown calls the catalog; None for the only one.
        catalog: the catalog's name in the configuration.
        settings: its settings; None where the configuration was not read.
    """

    access: ServiceAccess
    sender_catalog: str | None
    catalog: str | None
    settings: CatalogSettings | None = None


def event_access(flags: ServiceOptions, catalog: str | None, sender: str | None) -> EventAccess:
    """Access to the route of events.

    Args:
        catalog: which one is meant, None for the only one.
        sender: which configured sender to be, None for any that speaks for the catalog: then `flags.token_file` holds a
            bearer token, else what that sender shows or signs with.

    Raises:
        Misconfigured: there is no token or secret, no URL or no such sender.
    """
    if flags.token_file is not None and sender is None:
        listener = None if flags.url is not None else load_client(flags.config).listener
        return EventAccess(_access(flags, _read_bearer_token(flags.token_file), listener), catalog, catalog)
    settings = load(flags.config)
    found = find_sender(settings, catalog, sender)
    access = _access(flags, None, settings.listener)
    if found.sender is not None:
        access = _with_secret(access, found.sender, settings.senders[found.sender], flags.token_file)
    return EventAccess(access, found.sender_catalog, found.catalog, settings.catalogs[found.catalog])


def find_sender(settings: Settings, catalog: str | None, sender_name: str | None) -> CatalogSender:
    """Which configured sender may tell of a catalog's tables.

    Raises:
        Misconfigured: none may, or it is not said which catalog.
    """
    if sender_name is not None and sender_name not in settings.senders:
        known = ", ".join(settings.senders) or "none"
        raise _configuration_error("--sender", f"a configured sender ({known})", sender_name)
    everybody = {None: {name: name for name in settings.catalogs}}
    names_by_sender = {
        name: settings.catalogs_of(name) for name in settings.senders if sender_name in {None, name}
    } or everybody
    pairs = [(sender, theirs, ours) for sender, names in names_by_sender.items() for theirs, ours in names.items()]
    catalogs = sorted({ours for _, _, ours in pairs})
    if catalog is None and len(catalogs) > 1:
        raise _configuration_error("--catalog", f"one of {', '.join(catalogs)}, as there are several", "none")
    for sender, theirs, ours in pairs:
        if catalog in {None, ours}:
            return CatalogSender(sender, theirs, ours)
    remedy = "configure a sender for it, or give --token-file"
    raise _configuration_error(
        "--catalog", f"a catalog that a sender speaks for ({', '.join(catalogs)})", str(catalog), remedy
    )


def read_first_token(file: Path, scheme: AuthScheme = AuthScheme.BEARER) -> str:
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
            secret_bytes(scheme, token)
        except ValueError as error:
            found = f"none of {error}" if token else f"no {scheme.word}"
        else:
            return token
    raise _configuration_error(str(file), f"a file whose first line is a {scheme.word}", found)


def local_url(listener: ListenerSettings) -> str:
    """Where this machine reaches a listener.

    Raises:
        Misconfigured: it listens on whichever port is free.
    """
    if listener.port == 0:
        remedy = "give --url; the service's record `listening` says it"
        raise _configuration_error(
            "listener.port", "the port that the service listens on", "0, which is any free one", remedy
        )
    host = listener.host.removeprefix("[").removesuffix("]")
    if listener.host in _ANY_ADDRESS:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{listener.port}"


def _service_url(flags: ServiceOptions, listener: ListenerSettings | None) -> str:
    if flags.url is None:
        return local_url(listener or ListenerSettings())
    try:
        return validate_http_url(flags.url).rstrip("/")
    except ValueError as error:
        expected = f"{error}, such as http://127.0.0.1:8085"
    raise _configuration_error("--url", expected, flags.url)


def _access(flags: ServiceOptions, token: str | None, listener: ListenerSettings | None) -> ServiceAccess:
    url = _service_url(flags, listener)
    if url.startswith("http://"):
        # There is nothing to verify, and certificates take long to load.
        return ServiceAccess(url, token, tls_verify=False)
    own = None if listener is None or flags.url is not None else listener.tls_certificate_file
    file = flags.ca_file or own
    try:
        if flags.ca_file is None and own is not None:
            return ServiceAccess(url, token, _trust_only(own))
        return ServiceAccess(url, token, ssl.create_default_context(cafile=flags.ca_file))
    except (OSError, UnicodeDecodeError) as error:
        # An SSLError is an OSError too: of a file that holds no certificate.
        found = getattr(error, "strerror", None) or type(error).__name__
    raise _configuration_error(str(file), "a file of PEM certificates", found)


def _trust_only(chain: Path) -> ssl.SSLContext:
    """Trust in the listener's own certificate, the first one of its file, and in nothing that others of it signed.

    It is reached by an address that this certificate need not name.
    """
    own = _CERTIFICATE.search(chain.read_text("ascii"))
    if own is None:
        raise _configuration_error(str(chain), "a file of PEM certificates", "none in it")
    trust = ssl.create_default_context(cadata=own[0])
    trust.check_hostname = False
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return trust


def _admin_token(admin: AdminSettings, config: Path | None) -> str:
    if admin.token is not None:
        return admin.token.get_secret_value()
    if admin.token_file is not None:
        return read_first_token(admin.token_file)
    remedy = "name the configuration (--config FILE) that has [admin] token or token_file, or give --token-file"
    lacking = SfnError("admin.token", expected="the operators' token", found="none", remedy=remedy)
    raise explain_no_settings(config, lacking)


def _read_bearer_token(file: Path) -> str:
    token = read_first_token(file)
    if token.startswith(WEBHOOK_PREFIX):
        # Whoever reads it on the way could sign with it from then on.
        remedy = "say which sender's, --sender NAME"
        raise _configuration_error(str(file), "a file whose first line is a token", "a secret that signs", remedy)
    return token


def _with_secret(access: ServiceAccess, name: str, sender: SenderSettings, token_file: Path | None) -> ServiceAccess:
    """As a sender, by what a file holds that was given, else by the first of its tokens or secrets."""
    if token_file is not None and sender.scheme is AuthScheme.NONE:
        raise _configuration_error("--token-file", f"none, as the sender {name} shows nothing", str(token_file))
    secret = None if token_file is not None else next((one.get_secret_value() for one in sender.secrets.values()), None)
    file = token_file or sender.secrets_file
    if secret is None and file is not None:
        secret = read_first_token(file, sender.scheme)
    if secret is None or sender.signature_scheme is None:
        return replace(access, token=secret)
    return replace(access, signer=EventSigner(sender.signature_scheme, secret_bytes(sender.scheme, secret)))


def _configuration_error(where: str, expected: str, found: str, remedy: str = "") -> ConfigurationError:
    return ConfigurationError([SfnError(where, expected=expected, found=found, remedy=remedy)])
