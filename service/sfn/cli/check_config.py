"""Gateways: whether their addresses are free, their catalogs lead clients past them, and who can listen in."""

from __future__ import annotations

import json
import secrets
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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
from sfn.cli.render import pluralise
from sfn.clock import SystemClock, format_duration
from sfn.concurrency import unreadable_file_error
from sfn.errors import ErrorScope, ExternalError, FatalError, Permanent, SfnError
from sfn.formats import POLARIS_NOTIFICATIONS
from sfn.gateway.upstream import is_readable, is_same_address, signer_addresses
from sfn.http.secrets import AuthScheme, describe_weakness, read_secrets
from sfn.http.server import Certificate, listening_socket
from sfn.mounts import LOCAL_LOCKS_PROBLEM, LOCAL_LOCKS_REMEDY, mount_of, mounts
from sfn.settings.model import Settings
from sfn.settings.sections import SenderSettings
from sfn.settings.service import is_loopback
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.sfnfile.naming import FileLayout
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed, StoreRouter

# ── findings: What a check found


class Severity(StrEnum):
    """What a finding means for a service with this configuration."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that was looked at; `remedy` is empty where nothing need be done."""

    where: str
    severity: Severity
    text: str
    remedy: str = ""


def ok_finding(where: str, text: str) -> CheckFinding:
    """All is as it should be."""
    return CheckFinding(where, Severity.OK, text)


def warning_finding(where: str, text: str, remedy: str) -> CheckFinding:
    """It works, or the rest does; somebody should know."""
    return CheckFinding(where, Severity.WARNING, text, remedy)


def error_finding(where: str, error: SfnError, severity: Severity = Severity.ERROR) -> CheckFinding:
    """It does not work."""
    text, subject = f"expected {error.expected}, found {error.found}", _subject_beyond(where, error.where)
    return CheckFinding(where, severity, f"{subject}: {text}" if subject else text, error.remedy)


def _subject_beyond(where: str, subject: str) -> str:
    """What an error is about, less what the place of its finding says: `catalog prod` is `catalogs.prod`."""
    place = where.partition(": ")[0]
    section, _, name = place.partition(".")
    for said in (where, f"{section.removesuffix('s')} {name}".rstrip()):
        rest = subject.removeprefix(said)
        if rest != subject and not rest[:1].isalnum():
            return rest.lstrip(": ")
    return subject


# ── parties: Who may send events


def secret_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Each file of tokens that can't be used; else all of them together. Then what is open or shut for want of one."""
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
        yield warning_finding("senders", "none: everybody on this machine may send events", remedy)
    if settings.admin.token is None and settings.admin.token_file is None:
        remedy = "set admin.token or admin.token_file"
        yield warning_finding("admin", "no token: `sfn status` and all that operators do will not work", remedy)


def _secret_files(settings: Settings) -> dict[str, tuple[Path, AuthScheme]]:
    """The files of tokens and what they are for, by the settings that name them."""
    files = {f"senders.{name}.secrets_file": (one.secrets_file, one.scheme) for name, one in settings.senders.items()}
    files["admin.token_file"] = settings.admin.token_file, AuthScheme.BEARER
    files["facade.token_file"] = settings.facade.token_file, AuthScheme.BEARER
    files["telemetry.metrics_token_file"] = settings.telemetry.metrics_token_file, AuthScheme.BEARER
    return {where: (file, scheme) for where, (file, scheme) in files.items() if file is not None}


def _sender_finding(name: str, sender: SenderSettings) -> CheckFinding:
    """How a sender shows who it is."""
    where, scheme = f"senders.{name}", sender.scheme
    if scheme is AuthScheme.NONE:
        remedy = f"set {where}.scheme and a secret for it, unless all who reach this machine may send events"
        return warning_finding(where, "none: whoever shows nothing is this sender", remedy)
    on_file = 0 if sender.secrets_file is None else len(read_secrets(sender.secrets_file, scheme))
    count = len(sender.secrets) + on_file
    header = f" in {sender.signature_header}" if scheme is AuthScheme.HMAC_SHA256 else ""
    limit = "" if sender.rate_limit is None else f", at most {sender.rate_limit} requests a minute"
    return ok_finding(where, f"{scheme}{header}, {count} {scheme.word}{'s' if count > 1 else ''}{limit}")


def _signature_findings(name: str, sender: SenderSettings, settings: Settings) -> Iterator[CheckFinding]:
    """What a signature is too little for, where what is told is believed."""
    catalogs = ", ".join(sorted(settings.event_only_catalogs.intersection(settings.catalogs_of(name).values())))
    if sender.signature_scheme is None or not catalogs:
        return
    where, believed = f"senders.{name}", f"what is told of {catalogs} is believed"
    if sender.dialect == POLARIS_NOTIFICATIONS:
        text = f"none of its notifications is taken: no signature covers their path, and {believed}"
        yield warning_finding(where, text, f"set {where}.scheme = bearer, and a token for it")
    if sender.scheme is AuthScheme.HMAC_SHA256:
        known = f"it is known by its event_id alone, for {format_duration(settings.inbox.event_retention)}"
        text = f"{believed}, and who has a copy of a signed request can send it again: {known}"
        remedy = f"set {where}.scheme = standard-webhooks, or have it send over TLS alone, each event with an event_id"
        yield warning_finding(where, text, remedy)


def _weak_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Each token that is soon guessed, by its place."""
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
            made = "`openssl rand -base64 32`" if before else "`openssl rand -hex 32`"
            remedy = f"set a long and random one, such as {before}what {made} prints"
            yield warning_finding(where, f"{place}{why} is soon guessed", remedy)


def _unusable_findings(settings: Settings) -> Iterator[CheckFinding]:
    for where, (file, scheme) in _secret_files(settings).items():
        try:
            read_secrets(file, scheme)
        except FatalError as error:
            written = f"write the {scheme.word}s there, one a line, for the service's user to read; or set {where}"
            remedy = error.remedy or written
            yield error_finding(where, SfnError(error.where, expected=error.expected, found=error.found, remedy=remedy))
    for where, file in _catalog_secret_files(settings):
        try:
            file.read_bytes()
        except OSError as error:
            missing = unreadable_file_error(file, error)
            remedy = f"put it there for the service's user to read, or set {where}"
            yield error_finding(
                where, SfnError(missing.where, expected=missing.expected, found=missing.found, remedy=remedy)
            )


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
    return ok_finding("tokens", "all are to be had, and none is two parties'")


# ── stores: Stores

_NAME = "sfn-check-"
_BODY = b"written by `sfn check`, which removes it at once\n"
_TABLES = 3
"""Tables of a store whose metadata folder is tried at most."""


async def store_finding(name: str, prefix: str, tried: ObjectStore, places: Sequence[str]) -> CheckFinding:
    """Whether files can be written there, on conditions that hold.

    Args:
        prefix: canonical, of the configuration.
        places: canonical locations of tables; those below the prefix are tried, for there the service writes.
    """
    where = f"stores.{name}"
    try:
        folder = await _probe_folder(prefix, tried, places)
        await tried.list(f"{folder}/", 1)
        guarantees = await _probe(tried, f"{folder}/{_NAME}{secrets.token_hex(8)}")
    except Permanent as error:
        if error.scope is ErrorScope.TABLE and not any(is_below(place, prefix) for place in places):
            # Tables' folders may be somebody else's to make, and the service's to write in.
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
    """Whether the folder of a catalog with the placement `root` is there, and files can be written into it.

    Args:
        name: of the catalog.
        folder: canonical.
    """
    where = f"catalogs.{name}.root"
    try:
        tried = stores.store_for(folder)
        # A write would make it, and hide that its file system is not mounted.
        if scheme_of(folder) == "file" and not await StoresPath(folder.removeprefix("file://")).is_dir():
            remedy = "make it, or mount its file system, or correct the setting"
            return error_finding(where, SfnError(folder, expected="a folder", found="none", remedy=remedy))
        return _guarantee_finding(where, folder, await _probe(tried, f"{folder}/{_NAME}{secrets.token_hex(8)}"))
    except SfnError as error:
        return error_finding(where, error)


async def _probe_folder(prefix: str, tried: ObjectStore, places: Sequence[str]) -> str:
    """Where to try: where a table's files are, else the prefix. No folder is made."""
    for place in [place for place in places if is_below(place, prefix)][:_TABLES]:
        try:
            is_there = await tried.list(f"{place}/metadata/", 1)
        except Permanent as error:
            if error.scope is not ErrorScope.TABLE:
                raise
            # Its own trouble, such as a link in a folder's place, is in its dead letter.
            continue
        if is_there:
            # An object store has no folders to be made, and a policy may grant what is ours alone.
            return f"{place}/metadata" if scheme_of(place) == "file" else FileLayout(place).folder.rstrip("/")
    return prefix


async def _probe(tried: ObjectStore, key: str) -> Guarantees:
    guarantees = await tried.probe(key)
    if not guarantees.conditional_delete:
        # A file could be left behind. The proof has written and deleted one in this folder, or elsewhere in the bucket.
        return guarantees
    made = await tried.write(key, _BODY, None)
    if isinstance(made, PreconditionFailed):
        raise Permanent(key, scope=ErrorScope.TABLE, expected="a name that no file has", found="a file of that name")
    try:
        await tried.read(key)
    finally:
        if not isinstance(await tried.delete(key, made), Deleted):
            raise Permanent(
                key, scope=ErrorScope.STORE, expected="a deleted file", found="one that was changed", remedy="delete it"
            )
    return guarantees


def _guarantee_finding(where: str, folder: str, guarantees: Guarantees) -> CheckFinding:
    if not guarantees.swap:
        remedy = "let one service alone write there, and no other process"
        return warning_finding(
            where, f"{folder}: it ignores conditions, and unsafe_unconditional_writes is set", remedy
        )
    if not guarantees.conditional_delete:
        remedy = "none is needed: tombstones stay where other stores delete them"
        return warning_finding(where, f"{folder}: writes are conditional, deletes are not", remedy)
    return ok_finding(where, f"{folder}: written, swapped on a condition, deleted on a condition")


# ── tls: The listener's certificate

RENEW_BEFORE: Final = timedelta(days=14)
"""What is valid for less should have been renewed by now."""

_MAX_HANDSHAKE_STEPS: Final = 8
"""Turns of a handshake; TLS takes three."""


def certificate_finding(chain: Path, key: Path, now: datetime) -> CheckFinding:
    """Whether a client that trusts it would take it, now and for a while."""
    where, renew = "listener.tls_certificate_file", "renew it: both files are read again when they change"
    try:
        shown = Certificate(chain, key)
    except FatalError as error:
        return error_finding(where, error)
    try:
        until = _valid_until(shown.context, chain)
    except ssl.SSLCertVerificationError as error:
        return CheckFinding(
            where, Severity.ERROR, f"{chain}: expected a valid one, found: {error.verify_message}", renew
        )
    if until - now < RENEW_BEFORE:
        return warning_finding(where, f"{chain}: valid for {format_duration(until - now)} only", renew)
    return ok_finding(where, f"{chain}: valid for {format_duration(until - now)}, and the key is its own")


def _valid_until(shown: ssl.SSLContext, chain: Path) -> datetime:
    """The end of its life, by a handshake in memory with a client that trusts just it: the standard library parses no
    certificate but a peer's.

    Raises:
        SSLCertVerificationError: it is not valid now.
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


# ── place: Where the service would run

_PROBE = ".sfn-check-"

MAX_CLOCK_SKEW: Final = timedelta(seconds=5)
"""A part of a lease that is worth a warning."""


async def inbox_finding(settings: Settings) -> tuple[str | None, CheckFinding]:
    """Which process has the inbox, and whether one can be kept there."""
    if settings.inbox.path is None:
        return None, await _database_finding(settings)
    return await _file_finding(settings.inbox.path.resolve())


async def _database_finding(settings: Settings) -> CheckFinding:
    where = "inbox"
    try:
        proof = await wiring.check_database(settings)
    except SfnError as error:
        return error_finding(where, error)
    state = f"schema version {proof.version} is there" if proof.version else "its tables will be made"
    facts = [f"{proof.where}: PostgreSQL {proof.server}, {state}"]
    facts += ["through a pooler: other replicas are found by looking, once a second"] if proof.is_pooled else []
    facts += [f"{pluralise(proof.others, 'connection')} of replicas"] if proof.others else []
    text = "; ".join(facts)
    if not proof.is_durable:
        remedy = "set fsync and full_page_writes to on in postgresql.conf"
        return warning_finding(where, f"{text}; a power cut would ruin it: fsync or full_page_writes is off", remedy)
    if abs(proof.ahead) > MAX_CLOCK_SKEW:
        way = "ahead of" if proof.ahead > timedelta() else "behind"
        skew = format_duration(abs(proof.ahead))
        text = f"{text}; its clock is {skew} {way} ours, and leases go by the clocks of replicas"
        return warning_finding(where, text, "synchronise the clocks of all hosts")
    return ok_finding(where, text)


async def _file_finding(path: Path) -> tuple[str | None, CheckFinding]:
    """The same for a file: tried with another one beside it."""
    where = "inbox"
    try:
        doubt = wiring.placement_problem(path)
        holder = wiring.process_holding(path)
    except FatalError as error:
        return None, error_finding(where, error)
    if holder is not None:
        return holder, ok_finding(
            where, f"{path}: process {holder} has it and so proves it; `sfn status` says how it is"
        )
    folder = _nearest_existing(path.parent)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=_PROBE, dir=folder))
    except OSError as error:
        remedy = "let the service's user write there, or set inbox.url"
        return None, CheckFinding(
            where, Severity.ERROR, f"{folder}: expected a folder to write into, found {error.strerror}", remedy
        )
    try:
        await wiring.try_inbox(scratch / path.name)
    except SfnError as error:
        return None, error_finding(where, error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if doubt is not None:
        return None, warning_finding(where, doubt.found, doubt.remedy)
    state = "is there" if _is_there(path) else "will be made"
    return None, ok_finding(where, f"{path} {state}; one was opened beside it, locked, synced and removed")


def file_limit_findings() -> Iterator[CheckFinding]:
    """Whether the process could open enough files: it raises its own limit, as far as it may."""
    if (most := limits.hard_limit()) < limits.LOW_LIMIT:
        text = f"{most} at most, for connections, catalogs, stores and the inbox together"
        yield warning_finding(
            "open files", text, f"raise the limit to {limits.LOW_LIMIT} at least (ulimit -n, LimitNOFILE=)"
        )


def listener_findings(settings: Settings, *, is_running: bool) -> Iterator[CheckFinding]:
    """Whether the address is free, and who can listen in.

    Args:
        is_running: a service has the inbox, or answers, and so has the address too.
    """
    ours, where = settings.listener, "listener"
    if not is_running:
        yield address_finding(where, ours.host, ours.port)
    if ours.tls_certificate_file is not None and ours.tls_key_file is not None:
        yield certificate_finding(ours.tls_certificate_file, ours.tls_key_file, SystemClock().now())
    elif not ours.is_loopback:
        remedy = "set listener.tls_certificate_file and tls_key_file, or put a proxy with TLS before it"
        yield warning_finding(where, f"{ours.host} is reached from elsewhere, and it speaks plain HTTP", remedy)


def address_finding(where: str, host: str, port: int) -> CheckFinding:
    """Whether an address is free that a section of the settings says."""
    try:
        with listening_socket(host, port, where):
            return ok_finding(where, f"{host} port {port or 'of its choice'} is free")
    except FatalError as error:
        return error_finding(where, error)


def _is_there(path: Path) -> bool:
    return path.exists()


def _nearest_existing(folder: Path) -> Path:
    """The folder, or of those above it the first that is there: the service makes what is missing."""
    return next(above for above in (folder, *folder.parents) if above.exists())


# ── gateways: Gateways


def gateway_findings(settings: Settings, *, is_running: bool) -> Iterator[CheckFinding]:
    """Where clients come in.

    Args:
        is_running: a service has the inbox, or answers, and so has the addresses too.
    """
    for name, gateway in settings.gateway.items():
        where = f"gateway.{name}"
        if gateway.host is None:
            yield ok_finding(where, f"below /catalog/{name} of the listener")
            continue
        if not is_running:
            yield address_finding(where, gateway.host, gateway.port)
        if settings.listener.scheme == "http" and not is_loopback(gateway.host):
            text = f"{gateway.host} is reached from elsewhere, and clients' credentials travel in clear text"
            yield warning_finding(
                where, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it"
            )


async def advertised_findings(
    catalog: str, adapter: IdentifiedCatalog, settings: Settings
) -> AsyncIterator[CheckFinding]:
    """Where a catalog leads the clients of its gateways.

    Args:
        catalog: our name of it.
        adapter: the catalog.
    """
    names = [name for name in settings.gateway if catalog in settings.catalogs_behind(name).values()]
    if not names or not isinstance(adapter, ConfigAdvertiser):
        return
    try:
        config, coding = await adapter.advertised_config(), await adapter.advertised_encoding()
    except ExternalError as trouble:
        # The catalog's own check says so too, and what it means.
        yield error_finding(f"gateway.{names[0]}", trouble)
        return
    for name in names:
        gateway, where = settings.gateway[name], f"gateway.{name}"
        unmapped = _unmapped_finding(where, catalog, config.get("prefix", ""), settings.catalogs_behind(name))
        if unmapped is not None:
            yield unmapped
        for key, signer in signer_addresses(config).items():
            text = f"{key} leads to {_without_secrets(signer)}: clients have requests to stores signed there, not here"
            yield ok_finding(where, text)
        uri = config.get("uri")
        if uri is not None and not is_readable(coding):
            text = f"{catalog} names its own address in an answer encoded with {coding}, which the gateway can't read"
            remedy = "have the catalog, or what stands before it, not compress what is asked for as it is"
            yield warning_finding(where, f"{text}: clients are led past the gateway", remedy)
        elif uri is None or is_same_address(uri, gateway.upstream):
            if unmapped is None:
                yield ok_finding(where, f"clients of {catalog} stay with it")
        else:
            address = _without_secrets(uri)
            text = f"{catalog} leads its clients to {address}, past the gateway, unless it goes by X-Forwarded-Host"
            yield warning_finding(
                where, text, f"set {where}.upstream to that address, or have the catalog not name any"
            )


def _unmapped_finding(where: str, catalog: str, given: str, behind: Mapping[str, str]) -> CheckFinding | None:
    """Return that clients which are given the same prefix as we commit past us; None where their commits are seen."""
    by_prefix = {unquote(prefix.strip("/")): ours for prefix, ours in behind.items()}
    prefix = unquote(given.strip("/"))
    if "" in by_prefix or by_prefix.get(prefix) == catalog:
        return None
    given = f"the prefix {json.dumps(prefix, ensure_ascii=False)}" if prefix else "no prefix"
    known = ", ".join(sorted(behind))
    text = f"{catalog} gives us {given}, and {where}.catalogs has {known}: commits under it wait for a sweep"
    remedy = f"set {where}.catalog = {json.dumps(catalog)} in place of catalogs"
    if prefix:
        remedy = f"set {where}.catalogs = {{ {json.dumps(prefix, ensure_ascii=False)} = {json.dumps(catalog)} }}"
    return warning_finding(where, text, remedy)


def _without_secrets(uri: str) -> str:
    """A URI without what may be secret in it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
