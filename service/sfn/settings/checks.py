"""Checks of settings that depend on several keys. Each check yields an error for every problem that it finds."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Final
from urllib.parse import urlsplit

from sfn.clock import format_duration
from sfn.errors import SfnError, suggest_name
from sfn.formats.decode import POLARIS_NOTIFICATIONS
from sfn.http.secrets import AuthScheme, secret_bytes
from sfn.http.signature import TOLERANCE
from sfn.pull.source import subjects_overlap
from sfn.settings.root import Settings, pull_origin_name
from sfn.settings.sections import (
    KEYS_BY_SCHEME,
    CatalogSettings,
    GatewaySettings,
    PullSettings,
    SenderSettings,
    StoreSettings,
    check_origin_catalogs,
)
from sfn.settings.sources import SettingsSources, variable_name
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.sfnfile.naming import MAIN_BRANCH, NAMINGS

_SECRET_KEYS: Final = frozenset({"credential", "credential_file", "oauth2_uri", "token", "token_file"})
_AWS_KEYS: Final = frozenset({"aws_profile", "external_id", "role_arn", "signing_name", "signing_region"})
_GOOGLE_KEYS: Final = frozenset({"google_credentials_file"})
_REST_KEYS: Final = (
    _SECRET_KEYS
    | _AWS_KEYS
    | _GOOGLE_KEYS
    | {"auth", "ca_file", "headers", "scope", "uri", "vended_credentials", "warehouse"}
)
_PYICEBERG_KEYS: Final = frozenset({"properties"})

_KEYS_OF_OTHER_TYPES: Final = {"rest": _PYICEBERG_KEYS, "pyiceberg": _REST_KEYS, "events": _REST_KEYS | _PYICEBERG_KEYS}
"""Keys that a type of catalog does not have."""
_REMEDY_BY_TYPE: Final = {
    "rest": 'set type = "pyiceberg", if PyIceberg is to query the catalog',
    "pyiceberg": "set PyIceberg's own property in properties",
    "events": "remove it, because such a catalog is never queried",
}
_KEYS_EXCLUDED_BY_AUTH: Final = {
    None: _AWS_KEYS | _GOOGLE_KEYS,
    "sigv4": _SECRET_KEYS | _GOOGLE_KEYS | {"scope"},
    "google": _SECRET_KEYS | _AWS_KEYS,
}
"""Keys that a value of `auth` excludes."""


def check_catalogs(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check the keys for address and credentials in the sections `catalogs.NAME`."""
    for name, catalog in settings.catalogs.items():
        foreign = catalog.model_fields_set & _KEYS_OF_OTHER_TYPES[catalog.type]
        for key in sorted(foreign):
            yield SfnError(
                sources.location_of(("catalogs", name, key)),
                expected=f"no such key with the type {catalog.type}",
                found="one",
                remedy=_REMEDY_BY_TYPE[catalog.type],
            )
        if catalog.type == "pyiceberg" and not catalog.properties:
            yield SfnError(
                sources.location_of(("catalogs", name, "properties")),
                expected="PyIceberg's properties of the catalog",
                found="none",
                remedy='set properties = { type = "sql", uri = "postgresql+psycopg2://…" }, for example',
            )
        if catalog.type == "rest":
            yield from _check_auth_keys(name, catalog, sources)


def _check_auth_keys(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check that there are only keys of one kind of credentials."""
    for key in sorted(catalog.model_fields_set & _KEYS_EXCLUDED_BY_AUTH[catalog.auth]):
        way = next(
            (f'auth = "{way}"' for way, keys in (("sigv4", _AWS_KEYS), ("google", _GOOGLE_KEYS)) if key in keys), ""
        )
        with_this = "without auth" if catalog.auth is None else f'with auth = "{catalog.auth}"'
        yield SfnError(
            sources.location_of(("catalogs", name, key)),
            expected=f"no such key {with_this}",
            found="one",
            remedy=f"remove it, or set {way}" if way else "remove one of the two",
        )
    if catalog.external_id is not None and catalog.role_arn is None:
        place = ("catalogs", name, "role_arn")
        remedy = f"set it there or as {variable_name(place)}"
        yield SfnError(
            sources.location_of(place), expected="a value, as external_id is set", found="none", remedy=remedy
        )


def check_facade(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check the section `facade`."""
    facade, stores = settings.facade, [one.prefix for one in settings.stores.values()]
    if facade.open and facade.has_token:
        yield SfnError(
            sources.location_of(("facade", "open")),
            expected="false, as there is a token",
            found="true",
            remedy="remove open or the token",
        )
    if facade.is_on and not stores:
        yield SfnError(
            sources.location_of(("stores",)),
            expected="a store that the facade reads tables from",
            found="none, and the facade cannot use credentials that a catalog vends",
            remedy='write [stores.NAME] prefix = "…"',
        )
    for root in facade.roots:
        if stores and not any(is_below(root, prefix) for prefix in stores):
            yield SfnError(
                sources.location_of(("facade", "roots")),
                expected=f"places below a store: {', '.join(stores)}",
                found=root,
                remedy="configure a store that holds it",
            )


_COMMIT_FILE_KEYS: Final = ("keep", "keep_for")


def check_layout(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check `naming`, `placement` and the keys that belong to them."""
    for name, catalog in settings.catalogs.items():
        yield from _check_root(name, catalog, sources)
        yield from _check_branches(name, catalog, sources)
        for key in _COMMIT_FILE_KEYS:
            value, default = getattr(catalog, key), CatalogSettings.model_fields[key].default
            if value != default and not NAMINGS[catalog.naming].has_commit_files:
                yield SfnError(
                    sources.location_of(("catalogs", name, key)),
                    expected=f"no such key with the naming {catalog.naming}, as commits have no files of their own",
                    found=format_duration(value) if isinstance(value, timedelta) else f"{value}",
                    remedy='remove it, or set naming = "ordinal"',
                )


def _check_root(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    keys = ("catalogs", name, "root")
    if catalog.placement == "root" and catalog.root is None:
        yield SfnError(
            sources.location_of(keys),
            expected='the folder for the SFN files, as placement is "root"',
            found="none",
            remedy=f"set it there or as {variable_name(keys)}",
        )
    if catalog.placement != "root" and catalog.root is not None:
        yield SfnError(
            sources.location_of(keys),
            expected=f'none with placement = "{catalog.placement}"',
            found=catalog.root,
            remedy='remove it, or set placement = "root"',
        )


def _check_branches(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    place = sources.location_of(("catalogs", name, "branches"))
    if not any(fnmatchcase(MAIN_BRANCH, glob) for glob in catalog.branches):
        yield SfnError(
            place,
            expected="main among them, as the file of main leads to the others",
            found=", ".join(catalog.branches) or "none",
            remedy=f'set branches = ["main", "{next(iter(catalog.branches), "release-*")}"], for example',
        )
    elif catalog.branches != (MAIN_BRANCH,) and not NAMINGS[catalog.naming].has_branch_files:
        yield SfnError(
            place,
            expected=f'["main"], as other branches have no files with the naming {catalog.naming}',
            found=", ".join(catalog.branches),
            remedy='set naming = "identifier" or "uuid"',
        )


_KEY_PAIRS: Final = (("stream", "durable"), ("user", "password_file"))
"""Keys that have no meaning without each other."""
_LOGIN_KEYS: Final = ("credentials_file", "token_file", "user")
"""Keys that each name credentials: at most one is allowed."""


def check_pull_sources(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check the sections `pull.NAME`."""
    for name, pull in settings.pull.items():
        keys = ("pull", name)
        yield from _check_key_pairs(keys, pull, sources)
        yield from _check_single_login(keys, pull, sources)
        if "queue" in pull.model_fields_set and pull.stream is not None:
            yield SfnError(
                sources.location_of((*keys, "queue")),
                expected="no queue group with a stream",
                found="one",
                remedy="remove it, because processes with the same durable consumer share its messages anyway",
            )
        if pull.dialect == POLARIS_NOTIFICATIONS:
            yield SfnError(
                sources.location_of((*keys, "dialect")),
                expected="a format that can be recognised from a message",
                found=f"{POLARIS_NOTIFICATIONS}, with notifications that only the path of the request identifies",
                remedy="let Polaris send them to the listener, or set the format of the published events",
            )
        yield from check_origin_catalogs(keys, pull, settings.catalogs, sources)
        if pull_origin_name(name) in settings.senders:
            yield SfnError(
                sources.location_of(("senders", pull_origin_name(name))),
                expected="a name of its own",
                found=f"the name that events from [pull.{name}] have",
                remedy="rename one of the two",
            )
    yield from _check_competing_sources(settings, sources)


def _check_key_pairs(keys: tuple[str, ...], pull: PullSettings, sources: SettingsSources) -> Iterator[SfnError]:
    for pair in _KEY_PAIRS:
        given = [key for key in pair if getattr(pull, key) is not None]
        for key in pair:
            if given and key not in given:
                yield SfnError(
                    sources.location_of((*keys, key)),
                    expected=f"a value, as {given[0]} is set",
                    found="none",
                    remedy=f"set it there or as {variable_name((*keys, key))}",
                )


def _check_single_login(keys: tuple[str, ...], pull: PullSettings, sources: SettingsSources) -> Iterator[SfnError]:
    first, *more = [key for key in _LOGIN_KEYS if getattr(pull, key) is not None] or [""]
    for key in more:
        yield SfnError(
            sources.location_of((*keys, key)),
            expected="one kind of credentials",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )


def _check_competing_sources(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Refuse two sources that share messages: the server sends each message to only one of them."""
    for (name, first), (other, second) in combinations(settings.pull.items(), 2):
        if first.addresses & second.addresses and (key := _shared_key(first, second)) is not None:
            yield SfnError(
                sources.location_of(("pull", other, key)),
                expected=f"another {key} than that of [pull.{name}]",
                found=f"{getattr(second, key)}: each message would reach only one of the two sources",
                remedy="set another one, or merge the two sections",
            )


def _shared_key(first: PullSettings, second: PullSettings) -> str | None:
    """Return the key by which two sources on one server share messages; None if they do not."""
    match (first.stream, first.durable), (second.stream, second.durable):
        case (None, None), (None, None):
            return "queue" if first.queue == second.queue and subjects_overlap(first.subject, second.subject) else None
        case (str(), str()) as one, another if one == another:
            return "durable"
        case _:
            return None


_SIGNED_HOST: Final = re.compile(
    r"(?:.+\.)?(?:glue|s3tables)(?:-fips)?\.[a-z0-9-]+\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
"""Hosts of AWS Glue and S3 Tables."""
_EXPECTED_UNSIGNED: Final = (
    "a catalog without SigV4 signatures, as they cover the host and a gateway would invalidate them"
)
_REMEDY_SIGNED: Final = "use events instead (AWS Glue: EventBridge to /v1/events); the sweep finds the other commits"


def check_gateways(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check the sections `gateway.NAME`."""
    for name, gateway in settings.gateway.items():
        yield from _check_gateway_catalogs(name, gateway, settings, sources)
        yield from _check_unsigned_upstream(name, gateway, settings, sources)
        yield from _check_addresses(name, gateway, settings, sources)
    yield from _check_ports(settings, sources)


def _check_gateway_catalogs(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    """Refuse catalogs that are not configured, or that cannot be queried."""
    place = sources.location_of(("gateway", name, "catalog"))
    known = [catalog for catalog, one in settings.catalogs.items() if not one.is_event_only]
    if gateway.catalog is not None and gateway.catalogs:
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if not settings.catalogs_behind(name):
        yield SfnError(
            place,
            expected="the configured name of the catalog behind it, as several are configured",
            found="none",
            remedy=f"choose one of {', '.join(known)}",
        )
    for key, catalog in settings.catalogs_behind(name).items():
        keys = ("gateway", name, "catalogs", key) if gateway.catalogs else ("gateway", name, "catalog")
        if catalog not in settings.catalogs:
            expected, remedy = "a configured catalog", suggest_name(catalog, known)
            yield SfnError(sources.location_of(keys), expected=expected, found=catalog, remedy=remedy)
        elif settings.catalogs[catalog].is_event_only:
            expected = "a catalog that can be queried, as each commit is checked there"
            yield SfnError(sources.location_of(keys), expected=expected, found=f"{catalog}, of type events")


def _check_unsigned_upstream(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    host = urlsplit(gateway.upstream).hostname or ""
    behind = [settings.catalogs[one] for one in settings.catalogs_behind(name).values() if one in settings.catalogs]
    if _SIGNED_HOST.fullmatch(host) or any(catalog.auth == "sigv4" for catalog in behind):
        yield SfnError(
            sources.location_of(("gateway", name, "upstream")),
            expected=_EXPECTED_UNSIGNED,
            found=f"one at {host}",
            remedy=_REMEDY_SIGNED,
        )


def _check_addresses(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    """Refuse URLs with credentials, and an upstream that is the service itself."""
    for key in ("upstream", "public_url"):
        parts = urlsplit(getattr(gateway, key) or "")
        if parts.query or parts.fragment or parts.username is not None:
            yield SfnError(
                sources.location_of(("gateway", name, key)),
                expected="a URL without user, query and fragment, as clients send their own credentials",
                found="one of them",
            )
    upstream = urlsplit(gateway.upstream)
    own = [(settings.listener.host, settings.listener.port), (gateway.host, gateway.port)]
    if (upstream.hostname, upstream.port) in own:
        yield SfnError(
            sources.location_of(("gateway", name, "upstream")),
            expected="the catalog's address",
            found="the service's own",
        )


def _check_ports(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Refuse a gateway with the address of the listener or of another gateway."""
    taken = [("listener", settings.listener.host, settings.listener.port)]
    for name, gateway in settings.gateway.items():
        if gateway.host is None or gateway.port == 0:
            continue
        same = (where for where, host, port in taken if port == gateway.port and _is_same_binding(host, gateway.host))
        if (other := next(same, None)) is not None:
            yield SfnError(
                sources.location_of(("gateway", name, "port")),
                expected="an address of its own",
                found=f"that of {other}",
                remedy="set another port, or another host",
            )
        taken.append((f"gateway.{name}", gateway.host, gateway.port))


def _is_same_binding(one: str, other: str) -> bool:
    """Return True if two hosts cannot both be bound with the same port. Names are not resolved."""
    hosts = {_normalise_host(one), _normalise_host(other)}
    # A socket on `::` accepts IPv4 too, and a name may be bound with IPv4.
    return len(hosts) == 1 or "::" in hosts or ("0.0.0.0" in hosts and not any(":" in host for host in hosts))  # noqa: S104 - compared, not bound


def _normalise_host(host: str) -> str:
    """Return a host in canonical form."""
    name = host.removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address("127.0.0.1" if name == "localhost" else name))
    except ValueError:
        return name


_MIN_EVENT_RETENTION: Final = timedelta(seconds=2 * TOLERANCE)
"""Time for which a signed message can be repeated: its timestamp may be ahead or behind by the tolerance."""


def check_senders(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check the sections `senders.NAME`, and the settings of listener and inbox that depend on them."""
    yield from _check_open_to_network(settings, sources)
    for name, sender in settings.senders.items():
        yield from _check_secrets(name, sender, sources)
        yield from check_origin_catalogs(("senders", name), sender, settings.catalogs, sources)
    yield from _check_unauthenticated(settings, sources)
    yield from _check_shared_secrets(settings, sources)
    yield from _check_event_retention(settings, sources)


def _check_open_to_network(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    if not settings.senders and not settings.listener.is_loopback:
        yield SfnError(
            sources.location_of(("listener", "host")),
            expected="a loopback address, as everyone may send events while no sender is configured",
            found=settings.listener.host,
            remedy='configure a sender: [senders.NAME] secrets = { main = "…" }',
        )


def _check_secrets(name: str, sender: SenderSettings, sources: SettingsSources) -> Iterator[SfnError]:
    place, word = sources.location_of(("senders", name, "secrets")), sender.scheme.word
    has_none = not sender.secrets and sender.secrets_file is None
    if sender.scheme is AuthScheme.NONE and not has_none:
        yield SfnError(place, expected="none with the scheme none", found="some", remedy="remove them, or the scheme")
    elif sender.scheme is not AuthScheme.NONE and has_none:
        remedy = 'set secrets = { main = "…" } or secrets_file'
        yield SfnError(place, expected=f"a {word}", found="neither secrets nor secrets_file", remedy=remedy)
    elif sender.scheme is not AuthScheme.NONE:
        for key, secret in sender.secrets.items():
            try:
                secret_bytes(sender.scheme, secret.get_secret_value())
            except ValueError as error:
                place = sources.location_of(("senders", name, "secrets", key))
                yield SfnError(place, expected=str(error), found="another value")
    if sender.scheme is not AuthScheme.HMAC_SHA256 and "signature_header" in sender.model_fields_set:
        place = sources.location_of(("senders", name, "signature_header"))
        yield SfnError(place, expected=f"no such key with the scheme {sender.scheme}", found="one", remedy="remove it")


def _check_unauthenticated(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Restrict senders without authentication to one, on this machine, for catalogs that can be queried."""
    names = [name for name, sender in settings.senders.items() if sender.scheme is AuthScheme.NONE]
    remedy = "give it another scheme, and a secret"
    for name in names:
        place = sources.location_of(("senders", name, "scheme"))
        if not settings.listener.is_loopback:
            expected = f"authentication, as {settings.listener.host} is not a loopback address"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)
        if event_only := sorted(settings.event_only_catalogs.intersection(settings.catalogs_of(name).values())):
            expected = f"authentication, as events are the source of truth for {', '.join(event_only)}"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)
        if name != names[0]:
            expected = f"authentication, as only one sender can be without, and {names[0]} is"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)


def _check_shared_secrets(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    tokens = [
        (("admin", "token"), "the operators'", settings.admin.token),
        (("telemetry", "metrics_token"), "the one of the metrics", settings.telemetry.metrics_token),
        *(
            (("senders", name, "secrets", token), f"one of the sender {name}", secret)
            for name, sender in settings.senders.items()
            for token, secret in sender.secrets.items()
        ),
    ]
    owners: dict[str, str] = {}
    for keys, own, secret in tokens:
        owner = owners.setdefault(secret.get_secret_value(), own) if secret is not None else own
        if owner != own:
            yield SfnError(sources.location_of(keys), expected="a token of its own", found=owner)


def _check_event_retention(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    signs = any(sender.scheme is AuthScheme.STANDARD_WEBHOOKS for sender in settings.senders.values())
    if signs and settings.inbox.event_retention < _MIN_EVENT_RETENTION:
        yield SfnError(
            sources.location_of(("inbox", "event_retention")),
            expected=f"at least {format_duration(_MIN_EVENT_RETENTION)}, as a signed message can be repeated that long",
            found=format_duration(settings.inbox.event_retention),
        )


_REQUIRED_WITH: Final = {
    "access_key_id": ("secret_access_key",),
    "secret_access_key": ("access_key_id",),
    "session_token": ("access_key_id",),
    "external_id": ("role_arn",),
    "client_secret": ("tenant_id", "client_id"),
    "tenant_id": ("client_id",),
}
"""Keys that have no meaning without others."""
_CREDENTIAL_KEYS: Final = (
    ("anonymous",),
    ("access_key_id", "profile"),
    ("account_key",),
    ("sas_token",),
    ("client_id",),
    ("credentials_file",),
)
"""Keys that each name credentials: at most one of them all is allowed."""


def check_stores(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Check the sections `stores.NAME`."""
    owners: dict[str, str] = {}
    for name, store in settings.stores.items():
        owner = owners.setdefault(store.prefix, name)
        if owner != name:
            place = sources.location_of(("stores", name, "prefix"))
            yield SfnError(place, expected="a prefix of its own", found=f"the prefix of the store {owner}")
        for folder in store.links_to:
            if scheme_of(folder) != "file":
                place = sources.location_of(("stores", name, "links_to"))
                yield SfnError(place, expected="local folders", found=folder)
        yield from _check_foreign_keys(name, store, sources)
        yield from _check_missing_keys(name, store, sources)
        yield from _check_single_credentials(name, store, sources)


def _check_foreign_keys(name: str, store: StoreSettings, sources: SettingsSources) -> Iterator[SfnError]:
    others = frozenset[str]().union(*KEYS_BY_SCHEME.values()) - KEYS_BY_SCHEME[store.scheme]
    for key in sorted(_given_keys(store) & others):
        homes = sorted(f"{scheme}:" for scheme, keys in KEYS_BY_SCHEME.items() if key in keys)
        yield SfnError(
            sources.location_of(("stores", name, key)),
            expected=f"no such key with the prefix {store.prefix}",
            found="one",
            remedy=f"remove it; it goes with {' and '.join(homes)}",
        )


def _check_missing_keys(name: str, store: StoreSettings, sources: SettingsSources) -> Iterator[SfnError]:
    given = _given_keys(store)
    for key in sorted(given & _REQUIRED_WITH.keys()):
        for needed in _REQUIRED_WITH[key]:
            if needed not in given:
                place = ("stores", name, needed)
                yield SfnError(
                    sources.location_of(place),
                    expected=f"a value, as {key} is set",
                    found="none",
                    remedy=f"set it there or as {variable_name(place)}",
                )


def _check_single_credentials(name: str, store: StoreSettings, sources: SettingsSources) -> Iterator[SfnError]:
    given = _given_keys(store)
    first, *more = [key for way in _CREDENTIAL_KEYS for key in way if key in given] or [""]
    for key in more:
        yield SfnError(
            sources.location_of(("stores", name, key)),
            expected="one kind of credentials",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )


def _given_keys(store: StoreSettings) -> set[str]:
    """Return the keys with a value other than None and False."""
    return {key for key in store.model_fields_set if getattr(store, key) not in {None, False}}


def consistency_errors(settings: Settings, sources: SettingsSources) -> tuple[SfnError, ...]:
    """Return the problems between settings that are valid one by one."""
    return (
        *_check_any_catalog(settings, sources),
        *check_catalogs(settings, sources),
        *_check_event_only(settings, sources),
        *_check_tls(settings, sources),
        *check_senders(settings, sources),
        *check_pull_sources(settings, sources),
        *_check_token_or_file(settings, sources),
        *_check_retry(settings, sources),
        *check_stores(settings, sources),
        *check_layout(settings, sources),
        *check_gateways(settings, sources),
        *check_facade(settings, sources),
    )


def _check_any_catalog(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    if not settings.catalogs:
        yield SfnError(
            sources.location_of(("catalogs",)),
            expected="at least one",
            found="none",
            remedy='write [catalogs.NAME] uri = "https://…", or set SFN_CATALOGS__NAME__URI',
        )


def _check_event_only(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    for name in sorted(settings.event_only_catalogs):
        for key in ("catalog_id", "allowed_locations"):
            if not getattr(settings.catalogs[name], key):
                keys = ("catalogs", name, key)
                yield SfnError(
                    sources.location_of(keys),
                    expected="a value, as a catalog of type events cannot be queried for it",
                    found="none",
                    remedy=f"set it there or as {variable_name(keys)}",
                )
    if settings.event_only_catalogs and not settings.senders:
        named = ", ".join(sorted(settings.event_only_catalogs))
        yield SfnError(
            sources.location_of(("senders",)),
            expected=f"a sender with a token, as events are the source of truth for {named}",
            found="none",
            remedy='configure a sender: [senders.NAME] secrets = { main = "…" }',
        )


def _check_tls(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    files = {key: getattr(settings.listener, key) for key in ("tls_certificate_file", "tls_key_file")}
    given = [key for key, file in files.items() if file is not None]
    for key in files:
        if given and key not in given:
            yield SfnError(
                sources.location_of(("listener", key)),
                expected=f"a file, as {given[0]} is set",
                found="none",
                remedy=f"set it there or as {variable_name(('listener', key))}",
            )


def _check_token_or_file(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    admin, facade, telemetry = settings.admin, settings.facade, settings.telemetry
    if admin.token is not None and admin.token_file is not None:
        place = sources.location_of(("admin", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")
    if facade.token is not None and facade.token_file is not None:
        place = sources.location_of(("facade", "token_file"))
        yield SfnError(place, expected="either token or token_file", found="both")
    if telemetry.metrics_token is not None and telemetry.metrics_token_file is not None:
        place = sources.location_of(("telemetry", "metrics_token_file"))
        yield SfnError(place, expected="either metrics_token or metrics_token_file", found="both")


def _check_retry(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    retry = settings.retry
    if retry.base > retry.cap:
        place = sources.location_of(("retry", "base"))
        yield SfnError(place, expected=f"at most the cap, {retry.cap}", found=str(retry.base))
