"""Checks of secrets, stores, the certificate, the inbox, addresses and gateways; and the type `CheckFinding`."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import unquote, urlsplit

from anyio import Path as StoresPath
from anyio import to_thread

from sfn import limits
from sfn.app import wiring
from sfn.app.catalogs import IdentifiedCatalog
from sfn.app.endpoints import build_access_control
from sfn.catalogs import ConfigAdvertiser
from sfn.clock import SystemClock, format_duration
from sfn.concurrency import unreadable_file_error
from sfn.errors import ErrorScope, ExternalError, FatalError, Permanent, SfnError, pluralise
from sfn.formats.decode import POLARIS_NOTIFICATIONS
from sfn.gateway.upstream import is_readable, is_same_address, signer_addresses
from sfn.http.secrets import AuthScheme, describe_weakness, read_secrets
from sfn.http.server import Certificate, listening_socket
from sfn.mounts import LOCAL_LOCKS_PROBLEM, LOCAL_LOCKS_REMEDY, mount_of, mounts
from sfn.settings.environment import UNREACHABLE, loopback_hosts, reachable_remedy
from sfn.settings.root import Role, Settings
from sfn.settings.sections import SenderSettings, is_loopback
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.sfnfile.naming import FileLayout
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed, StoreRouter


class Severity(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of one check.

    Attributes:
        where: the subject, such as a section of the settings.
        severity: the severity.
        text: the result in words.
        remedy: the remedy; empty if none is needed.
    """

    where: str
    severity: Severity
    text: str
    remedy: str = ""


def ok_finding(where: str, text: str) -> CheckFinding:
    """Return a finding without a problem."""
    return CheckFinding(where, Severity.OK, text)


def warning_finding(where: str, text: str, remedy: str) -> CheckFinding:
    """Return a warning: the service works, but with a risk or in part."""
    return CheckFinding(where, Severity.WARNING, text, remedy)


def error_finding(where: str, error: SfnError, severity: Severity = Severity.ERROR) -> CheckFinding:
    """Return a finding about an error: this part does not work."""
    text, subject = f"expected {error.expected}, found {error.found}", _subject_beyond(where, error.where)
    return CheckFinding(where, severity, f"{subject}: {text}" if subject else text, error.remedy)


def _subject_beyond(where: str, subject: str) -> str:
    """Return the subject of an error without the part that repeats the finding's: `catalog prod` is `catalogs.prod`."""
    place = where.partition(": ")[0]
    section, _, name = place.partition(".")
    for repeated in (where, f"{section.removesuffix('s')} {name}".rstrip()):
        rest = subject.removeprefix(repeated)
        if rest != subject and not rest[:1].isalnum():
            return rest.lstrip(": ")
    return subject


def secret_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Yield the findings about senders and tokens: unusable files, shared or weak secrets, and missing ones."""
    broken = list(_unusable_findings(settings))
    yield from broken
    if not broken:
        yield _distinct_finding(settings)
        for name, sender in settings.senders.items():
            yield _sender_finding(name, sender)
            yield from _signature_findings(name, sender, settings)
        yield from _weak_findings(settings)
    if not settings.senders:
        remedy = 'configure one: [senders.NAME] secrets = { main = "…" }'
        yield warning_finding("senders", "none: every process on this machine may send events", remedy)
    if settings.admin.token is None and settings.admin.token_file is None:
        remedy = "set admin.token or admin.token_file"
        yield warning_finding("admin", "no token: `sfn status` and the commands of operators will not work", remedy)


def _secret_files(settings: Settings) -> dict[str, tuple[Path, AuthScheme]]:
    """Return the files of tokens, and the scheme of each, by the setting that names the file."""
    files = {f"senders.{name}.secrets_file": (one.secrets_file, one.scheme) for name, one in settings.senders.items()}
    files["admin.token_file"] = settings.admin.token_file, AuthScheme.BEARER
    files["facade.token_file"] = settings.facade.token_file, AuthScheme.BEARER
    files["telemetry.metrics_token_file"] = settings.telemetry.metrics_token_file, AuthScheme.BEARER
    return {where: (file, scheme) for where, (file, scheme) in files.items() if file is not None}


def _sender_finding(name: str, sender: SenderSettings) -> CheckFinding:
    """Return how a sender authenticates."""
    where, scheme = f"senders.{name}", sender.scheme
    if scheme is AuthScheme.NONE:
        remedy = f"set {where}.scheme and a secret for it, unless anyone who can reach the listener may send events"
        return warning_finding(where, "none: any request without a token counts as this sender's", remedy)
    on_file = 0 if sender.secrets_file is None else len(read_secrets(sender.secrets_file, scheme))
    count = len(sender.secrets) + on_file
    header = f" in {sender.signature_header}" if scheme is AuthScheme.HMAC_SHA256 else ""
    limit = "" if sender.rate_limit is None else f", at most {sender.rate_limit} requests a minute"
    return ok_finding(where, f"{scheme}{header}, {count} {scheme.word}{'s' if count > 1 else ''}{limit}")


def _signature_findings(name: str, sender: SenderSettings, settings: Settings) -> Iterator[CheckFinding]:
    """Yield warnings about signed requests for event-only catalogs: their events are published without a query."""
    catalogs = ", ".join(sorted(settings.event_only_catalogs.intersection(settings.catalogs_of(name).values())))
    if sender.signature_scheme is None or not catalogs:
        return
    where, unchecked = f"senders.{name}", f"events of {catalogs} are published without a query"
    if sender.dialect == POLARIS_NOTIFICATIONS:
        text = f"all its notifications are rejected: no signature covers their path, and {unchecked}"
        yield warning_finding(where, text, f"set {where}.scheme = bearer, and a token for it")
    if sender.scheme is AuthScheme.HMAC_SHA256:
        retention = format_duration(settings.inbox.event_retention)
        known = f"only its event_id shows a duplicate, for {retention}"
        text = f"{unchecked}, and a copy of a signed request can be sent again: {known}"
        remedy = f"set {where}.scheme = standard-webhooks, or have it send over TLS only, each event with an event_id"
        yield warning_finding(where, text, remedy)


def _weak_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Yield a warning for each secret that is easy to guess."""
    named = {
        f"senders.{name}.secrets.{key}": (token, sender.scheme)
        for name, sender in settings.senders.items()
        for key, token in sender.secrets.items()
    }
    alone = {
        "admin.token": settings.admin.token,
        "facade.token": settings.facade.token,
        "telemetry.metrics_token": settings.telemetry.metrics_token,
    }
    named |= {where: (token, AuthScheme.BEARER) for where, token in alone.items() if token is not None}
    tokens = [(where, "", token.get_secret_value(), scheme) for where, (token, scheme) in named.items()]
    for where, (file, scheme) in _secret_files(settings).items():
        found = read_secrets(file, scheme).items()
        tokens += [(where, f"{file}, line {number}: ", token, scheme) for number, token in found]
    for where, place, token, scheme in tokens:
        if why := describe_weakness(scheme, token):
            before = "whsec_ before " if scheme is AuthScheme.STANDARD_WEBHOOKS else ""
            command = "`openssl rand -base64 32`" if before else "`openssl rand -hex 32`"
            remedy = f"set a long random one, such as {before}the output of {command}"
            yield warning_finding(where, f"{place}{why} is easy to guess", remedy)


def _unusable_findings(settings: Settings) -> Iterator[CheckFinding]:
    for where, (file, scheme) in _secret_files(settings).items():
        try:
            read_secrets(file, scheme)
        except FatalError as error:
            yield error_finding(where, error)
    for where, file in _catalog_secret_files(settings):
        try:
            file.read_bytes()
        except OSError as error:
            yield error_finding(where, unreadable_file_error(file, error))


def _catalog_secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for name, catalog in settings.catalogs.items():
        for key in ("token_file", "credential_file", "ca_file"):
            if (file := getattr(catalog, key)) is not None:
                yield f"catalogs.{name}.{key}", file


def _distinct_finding(settings: Settings) -> CheckFinding:
    try:
        build_access_control(settings, SystemClock())
    except FatalError as error:
        return error_finding("tokens", error)
    return ok_finding("tokens", "all can be read, and no token is used twice")


_NAME = "sfn-check-"
_BODY = b"written by `sfn check`, which removes it at once\n"
_TABLES = 3
"""The most tables of a store with a metadata folder that is tried."""


async def store_finding(name: str, prefix: str, store: ObjectStore, locations: Sequence[str]) -> CheckFinding:
    """Check that files can be written to a store, and that it supports conditional writes.

    Args:
        name: the store's name.
        prefix: the store's canonical prefix.
        store: the store.
        locations: canonical locations of tables. The probe uses one below the prefix, because the service writes there.
    """
    where = f"stores.{name}"
    try:
        folder = await _probe_folder(prefix, store, locations)
        await store.list(f"{folder}/", 1)
        guarantees = await _probe(store, f"{folder}/{_NAME}{secrets.token_hex(8)}")
    except Permanent as error:
        if error.scope is ErrorScope.TABLE and not any(is_below(location, prefix) for location in locations):
            # Without a table below the prefix, another process may create the folders with the right permissions later.
            return error_finding(where, error, Severity.WARNING)
        return error_finding(where, error)
    except SfnError as error:
        return error_finding(where, error)
    if scheme_of(prefix) == "file":
        path = await StoresPath(folder.removeprefix("file://")).resolve()
        mount = mount_of(PurePath(path), await to_thread.run_sync(mounts))
        if mount is not None and mount.local_locks is not None:
            return warning_finding(
                where, f"{folder}: mounted from NFS with {mount.local_locks}: {LOCAL_LOCKS_PROBLEM}", LOCAL_LOCKS_REMEDY
            )
    return _guarantee_finding(where, folder, guarantees)


async def root_finding(name: str, folder: str, stores: StoreRouter) -> CheckFinding:
    """Check that the folder of a catalog with the placement `root` exists, and that files can be written to it.

    Args:
        name: the catalog's name.
        folder: the folder's canonical URL.
        stores: the configured stores.
    """
    where = f"catalogs.{name}.root"
    try:
        store = stores.store_for(folder)
        # A write would create the folder, and hide that its file system is not mounted.
        if scheme_of(folder) == "file" and not await StoresPath(folder.removeprefix("file://")).is_dir():
            remedy = "create it, or mount its file system, or correct the setting"
            return error_finding(where, SfnError(folder, expected="a folder", found="none", remedy=remedy))
        return _guarantee_finding(where, folder, await _probe(store, f"{folder}/{_NAME}{secrets.token_hex(8)}"))
    except SfnError as error:
        return error_finding(where, error)


async def _probe_folder(prefix: str, store: ObjectStore, locations: Sequence[str]) -> str:
    """Return the folder for the probe: that of a table's files, or else the prefix. No folder is created."""
    for location in [location for location in locations if is_below(location, prefix)][:_TABLES]:
        try:
            has_files = await store.list(f"{location}/metadata/", 1)
        except Permanent as error:
            if error.scope is not ErrorScope.TABLE:
                raise
            # A problem of this table, such as a link in place of a folder, becomes its dead letter.
            continue
        if has_files:
            # An object store has no folders to create, and a policy may permit only the folder of SFN files.
            return f"{location}/metadata" if scheme_of(location) == "file" else FileLayout(location).folder.rstrip("/")
    return prefix


async def _probe(store: ObjectStore, key: str) -> Guarantees:
    guarantees = await store.probe(key)
    if not guarantees.conditional_delete:
        # Another file could stay behind. The store's own probe has written and deleted one already.
        return guarantees
    written = await store.write(key, _BODY, None)
    if isinstance(written, PreconditionFailed):
        raise Permanent(key, scope=ErrorScope.TABLE, expected="a name that no file has", found="a file of that name")
    try:
        await store.read(key)
    finally:
        if not isinstance(await store.delete(key, written), Deleted):
            raise Permanent(
                key, scope=ErrorScope.STORE, expected="a deleted file", found="one that was changed", remedy="delete it"
            )
    return guarantees


def _guarantee_finding(where: str, folder: str, guarantees: Guarantees) -> CheckFinding:
    if not guarantees.swap:
        remedy = "let a single service write there, and no other process"
        return warning_finding(
            where, f"{folder}: the store ignores conditions, and unsafe_unconditional_writes is set", remedy
        )
    if not guarantees.conditional_delete:
        remedy = "no change is needed: tombstones stay that would be deleted in other stores"
        return warning_finding(where, f"{folder}: writes are conditional, deletes are not", remedy)
    return ok_finding(where, f"{folder}: written, swapped and deleted with conditional requests{_user_of(folder)}")


def _user_of(folder: str) -> str:
    """Return who may write there, for a local folder: the service may run as another user than the check."""
    return f", as the user {os.geteuid()}" if scheme_of(folder) == "file" else ""


RENEW_BEFORE: Final = timedelta(days=14)
"""A certificate that is valid for less than this should have been renewed."""

_MAX_HANDSHAKE_STEPS: Final = 8
"""The most rounds of a handshake; TLS takes three."""


def certificate_finding(chain: Path, key: Path, now: datetime) -> CheckFinding:
    """Check that a client accepts the certificate, now and for the next 14 days."""
    where, renew = "listener.tls_certificate_file", "renew it: the service reads both files again when they change"
    try:
        shown = Certificate(chain, key)
    except FatalError as error:
        return error_finding(where, error)
    try:
        until = _valid_until(shown.context, chain)
    except ssl.SSLCertVerificationError as error:
        return CheckFinding(
            where, Severity.ERROR, f"{chain}: expected a valid certificate, found: {error.verify_message}", renew
        )
    if until - now < RENEW_BEFORE:
        return warning_finding(where, f"{chain}: valid for only {format_duration(until - now)}", renew)
    return ok_finding(where, f"{chain}: valid for {format_duration(until - now)}, and the key fits")


def _valid_until(shown: ssl.SSLContext, chain: Path) -> datetime:
    """Return the end of a certificate's validity.

    The standard library only parses a peer's certificate, so this does a handshake in memory with a client that trusts
    the certificate.

    Raises:
        SSLCertVerificationError: the certificate is not valid now.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(chain)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = shown.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MAX_HANDSHAKE_STEPS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    peer = client.getpeercert()
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str((peer or {})["notAfter"])), UTC)


_PROBE = ".sfn-check-"

MAX_CLOCK_SKEW: Final = timedelta(seconds=5)
"""The clock skew that causes a warning, because leases go by clocks."""


async def inbox_finding(settings: Settings) -> tuple[str | None, CheckFinding]:
    """Check that the inbox can be opened. Return the process that has it open, if any, and the finding."""
    if settings.inbox.path is None:
        return None, await _database_finding(settings)
    return await _file_finding(settings.inbox.path.resolve())


async def _database_finding(settings: Settings) -> CheckFinding:
    where = "inbox"
    try:
        proof = await wiring.check_database(settings)
    except SfnError as error:
        return error_finding(where, error)
    state = f"schema version {proof.version} exists" if proof.version else "its tables will be created"
    facts = [f"{proof.where}: PostgreSQL {proof.server}, {state}"]
    facts += ["through a pooler, so replicas poll for changes once a second"] if proof.is_pooled else []
    facts += [f"{pluralise(proof.others, 'connection')} of replicas"] if proof.others else []
    text = "; ".join(facts)
    if not proof.is_durable:
        remedy = "set fsync and full_page_writes to on in postgresql.conf"
        text = f"{text}; a power cut can destroy it: fsync or full_page_writes is off"
        return warning_finding(where, text, remedy)
    if abs(proof.ahead) > MAX_CLOCK_SKEW:
        way = "ahead of" if proof.ahead > timedelta() else "behind"
        skew = format_duration(abs(proof.ahead))
        text = f"{text}; its clock is {skew} {way} this machine's, and leases go by the clocks of replicas"
        return warning_finding(where, text, "synchronise the clocks of all hosts")
    if hosts := wiring.unsafe_hosts(settings):
        text = f"{text}; the connection to {', '.join(hosts)} may be in clear text: `inbox.url` does not require TLS"
        return warning_finding(where, text, "set sslmode=verify-full and sslrootcert in `inbox.url`")
    return ok_finding(where, text)


async def _file_finding(path: Path) -> tuple[str | None, CheckFinding]:
    """Check a file's folder with another inbox next to the file; results as in `inbox_finding`."""
    where = "inbox"
    try:
        problem = wiring.placement_problem(path)
        holder = wiring.process_holding(path)
    except FatalError as error:
        return None, error_finding(where, error)
    if holder is not None:
        return holder, ok_finding(where, f"{path}: in use by process {holder}; `sfn status` shows its state")
    folder = _nearest_existing(path.parent)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=_PROBE, dir=folder))
    except OSError as error:
        remedy = "permit the service's user to write there, or set inbox.url"
        return None, CheckFinding(
            where, Severity.ERROR, f"{folder}: expected a writable folder, found {error.strerror}", remedy
        )
    try:
        await wiring.try_inbox(scratch / path.name)
    except SfnError as error:
        return None, error_finding(where, error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if problem is not None:
        return None, warning_finding(where, problem.found, problem.remedy)
    state = "exists" if await StoresPath(path).exists() else "will be created"
    return None, ok_finding(where, f"{path} {state}; a probe next to it was opened, locked, synced and removed")


def file_limit_findings() -> Iterator[CheckFinding]:
    """Yield a warning if the process could not open enough files. The service raises its soft limit itself."""
    if (limit := limits.hard_limit()) < limits.LOW_LIMIT:
        text = f"at most {limit}, for connections, catalogs, stores and the inbox together"
        yield warning_finding(
            "open files", text, f"raise the limit to at least {limits.LOW_LIMIT} (ulimit -n, LimitNOFILE=)"
        )


def listener_findings(settings: Settings, *, is_running: bool) -> Iterator[CheckFinding]:
    """Check that the address is free, and that traffic is encrypted.

    Args:
        settings: the configuration.
        is_running: True if a service uses the inbox or answers, so that it uses the address, too.
    """
    listener, where = settings.listener, "listener"
    if not is_running:
        yield address_finding(where, listener.host, listener.port)
    if listener.tls_certificate_file is not None and listener.tls_key_file is not None:
        yield certificate_finding(listener.tls_certificate_file, listener.tls_key_file, SystemClock().now())
    elif not listener.is_loopback:
        remedy = "set listener.tls_certificate_file and tls_key_file, or put a proxy with TLS before it"
        text = f"{listener.host} is reachable from other machines, and the listener speaks plain HTTP"
        yield warning_finding(where, text, remedy)


def container_findings(settings: Settings, roles: AbstractSet[Role], container: str | None) -> Iterator[CheckFinding]:
    """Yield a warning for each loopback address that nothing outside the container reaches.

    Args:
        settings: the configuration.
        roles: the roles of the process.
        container: the sign of a container with its own network; None outside one.
    """
    for setting in loopback_hosts(settings, roles) if container else ():
        yield warning_finding(setting, f"{UNREACHABLE} (found {container})", reachable_remedy(setting))


def address_finding(where: str, host: str, port: int) -> CheckFinding:
    """Check that an address is free.

    Args:
        where: the section of the settings that names the address.
        host: the host.
        port: the port; 0 for any free port.
    """
    try:
        with listening_socket(host, port, where):
            return ok_finding(where, f"{host} port {port or '0 (any)'} is free")
    except FatalError as error:
        return error_finding(where, error)


def _nearest_existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it: the service creates missing folders."""
    return next(above for above in (folder, *folder.parents) if above.exists())


def gateway_findings(settings: Settings, *, is_running: bool) -> Iterator[CheckFinding]:
    """Check that the addresses of gateways are free, and that traffic is encrypted.

    Args:
        settings: the configuration.
        is_running: True if a service uses the inbox or answers, so that it uses the addresses, too.
    """
    for name, gateway in settings.gateway.items():
        where = f"gateway.{name}"
        if gateway.host is None:
            yield ok_finding(where, f"at /catalog/{name} of the listener")
            continue
        if not is_running:
            yield address_finding(where, gateway.host, gateway.port)
        if settings.listener.scheme == "http" and not is_loopback(gateway.host):
            text = f"{gateway.host} is reachable from other machines, and clients' credentials travel in clear text"
            yield warning_finding(
                where, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it"
            )


async def advertised_findings(
    catalog: str, adapter: IdentifiedCatalog, settings: Settings
) -> AsyncIterator[CheckFinding]:
    """Check which addresses a catalog gives to the clients of its gateways.

    Args:
        catalog: the catalog's name.
        adapter: the catalog.
        settings: the configuration.
    """
    names = [name for name in settings.gateway if catalog in settings.catalogs_behind(name).values()]
    if not names or not isinstance(adapter, ConfigAdvertiser):
        return
    try:
        config, coding = await adapter.advertised_config(), await adapter.advertised_encoding()
    except ExternalError as trouble:
        # The catalog's own check reports this, too, with more detail.
        yield error_finding(f"gateway.{names[0]}", trouble)
        return
    for name in names:
        gateway, where = settings.gateway[name], f"gateway.{name}"
        unmapped = _unmapped_finding(where, catalog, config.get("prefix", ""), settings.catalogs_behind(name))
        if unmapped is not None:
            yield unmapped
        for key, signer in signer_addresses(config).items():
            text = (
                f"{key} is {_without_secrets(signer)}: clients have storage requests signed there, not by the gateway"
            )
            yield ok_finding(where, text)
        uri = config.get("uri")
        if uri is not None and not is_readable(coding):
            text = f"{catalog} gives its own address in an answer encoded with {coding}, which the gateway cannot read"
            remedy = "have the catalog, or its proxy, not compress answers to requests with Accept-Encoding: identity"
            yield warning_finding(where, f"{text}: clients bypass the gateway", remedy)
        elif uri is None or is_same_address(uri, gateway.upstream):
            if unmapped is None:
                yield ok_finding(where, f"clients of {catalog} stay with the gateway")
        else:
            address = _without_secrets(uri)
            text = f"{catalog} sends its clients to {address}, past the gateway, unless it honors X-Forwarded-Host"
            yield warning_finding(
                where, text, f"set {where}.upstream to that address, or have the catalog give no address"
            )


def _unmapped_finding(where: str, catalog: str, given: str, behind: Mapping[str, str]) -> CheckFinding | None:
    """Return a warning if the gateway does not recognise the catalog's prefix; None if it does.

    Args:
        where: the subject of the finding.
        catalog: the catalog's name.
        given: the prefix that the catalog gives to its clients.
        behind: the catalogs behind the gateway, by prefix.
    """
    by_prefix = {unquote(prefix.strip("/")): name for prefix, name in behind.items()}
    prefix = unquote(given.strip("/"))
    if "" in by_prefix or by_prefix.get(prefix) == catalog:
        return None
    given = f"the prefix {json.dumps(prefix, ensure_ascii=False)}" if prefix else "no prefix"
    known = ", ".join(sorted(behind))
    text = f"{catalog} gives {given}, but {where}.catalogs has {known}: commits under it wait for a sweep"
    remedy = f"set {where}.catalog = {json.dumps(catalog)} in place of catalogs"
    if prefix:
        remedy = f"set {where}.catalogs = {{ {json.dumps(prefix, ensure_ascii=False)} = {json.dumps(catalog)} }}"
    return warning_finding(where, text, remedy)


def _without_secrets(uri: str) -> str:
    """Return a URI without user, password and query, which may be secret."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
