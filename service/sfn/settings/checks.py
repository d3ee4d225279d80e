"""What does not fit together of how catalogs are asked."""

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
from sfn.formats import POLARIS_NOTIFICATIONS
from sfn.http.secrets import AuthScheme, secret_bytes
from sfn.http.signature import TOLERANCE
from sfn.pull.source import subjects_overlap
from sfn.settings.model import Settings, pull_origin_name
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

# ── asking: What does not fit together of how catalogs are asked

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
"""Keys that do not go with a type of catalog."""
_REMEDY_BY_TYPE: Final = {
    "rest": 'set type = "pyiceberg", if PyIceberg is to ask the catalog',
    "pyiceberg": "PyIceberg's own names for such things go into properties",
    "events": "remove it: such a catalog is never asked",
}
_KEYS_EXCLUDED_BY_AUTH: Final = {
    None: _AWS_KEYS | _GOOGLE_KEYS,
    "sigv4": _SECRET_KEYS | _GOOGLE_KEYS | {"scope"},
    "google": _SECRET_KEYS | _AWS_KEYS,
}
"""Keys that do not go with a way of showing who asks."""


def check_catalogs(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `catalogs.NAME` that says where a catalog is, and as whom it is asked."""
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
                expected="what PyIceberg is told of the catalog",
                found="nothing",
                remedy='such as properties = { type = "sql", uri = "postgresql+psycopg2://…" }',
            )
        if catalog.type == "rest":
            yield from _check_auth_keys(name, catalog, sources)


def _check_auth_keys(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    """Keys of one way of showing who asks that stand with another."""
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


# ── facing: What does not fit together of the facade


def check_facade(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the section `facade` that can't work."""
    facade, stores = settings.facade, [one.prefix for one in settings.stores.values()]
    if facade.open and facade.has_token:
        yield SfnError(
            sources.location_of(("facade", "open")),
            expected="false, as there is a token",
            found="true",
            remedy="keep one",
        )
    if facade.is_on and not stores:
        yield SfnError(
            sources.location_of(("stores",)),
            expected="a store that the facade reads tables from",
            found="none: what a catalog vends is for its tables' files alone",
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


# ── placing: What does not fit together of where files lie and what they are called

_COMMIT_FILE_KEYS: Final = ("keep", "keep_for")


def check_layout(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of `naming`, `placement` and the keys that go with them."""
    for name, catalog in settings.catalogs.items():
        yield from _check_root(name, catalog, sources)
        yield from _check_branches(name, catalog, sources)
        for key in _COMMIT_FILE_KEYS:
            value, default = getattr(catalog, key), CatalogSettings.model_fields[key].default
            if value != default and not NAMINGS[catalog.naming].has_commit_files:
                yield SfnError(
                    sources.location_of(("catalogs", name, key)),
                    expected=f"no such key with the naming {catalog.naming}, as no commit has a file of its own",
                    found=format_duration(value) if isinstance(value, timedelta) else f"{value}",
                    remedy='remove it, or set naming = "ordinal"',
                )


def _check_root(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    keys = ("catalogs", name, "root")
    if catalog.placement == "root" and catalog.root is None:
        yield SfnError(
            sources.location_of(keys),
            expected='the folder in which each table gets one, as placement is "root"',
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
            expected="main among them, whose file leads all others",
            found=", ".join(catalog.branches) or "none",
            remedy=f'such as branches = ["main", "{next(iter(catalog.branches), "release-*")}"]',
        )
    elif catalog.branches != (MAIN_BRANCH,) and not NAMINGS[catalog.naming].has_branch_files:
        yield SfnError(
            place,
            expected=f'["main"], as no other branch has a file with the naming {catalog.naming}',
            found=", ".join(catalog.branches),
            remedy='set naming = "identifier" or "uuid"',
        )


# ── pulling: What does not fit together of the sources that events are fetched from

_KEY_PAIRS: Final = (("stream", "durable"), ("user", "password_file"))
"""Keys that mean nothing one without the other."""
_LOGIN_KEYS: Final = ("credentials_file", "token_file", "user")
"""Keys that each say who asks."""


def check_pull_sources(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `pull.NAME`."""
    for name, pull in settings.pull.items():
        keys = ("pull", name)
        yield from _check_key_pairs(keys, pull, sources)
        yield from _check_single_login(keys, pull, sources)
        if "queue" in pull.model_fields_set and pull.stream is not None:
            yield SfnError(
                sources.location_of((*keys, "queue")),
                expected="no queue group with a stream",
                found="one",
                remedy="remove it: those who have one durable consumer share its messages",
            )
        if pull.dialect == POLARIS_NOTIFICATIONS:
            yield SfnError(
                sources.location_of((*keys, "dialect")),
                expected="a format that a message may have",
                found=f"{POLARIS_NOTIFICATIONS}, whose notifications are known by the path that they are sent to",
                remedy="have Polaris send them to the listener, or name the format that is published",
            )
        yield from check_origin_catalogs(keys, pull, settings.catalogs, sources)
        if pull_origin_name(name) in settings.senders:
            yield SfnError(
                sources.location_of(("senders", pull_origin_name(name))),
                expected="a name of its own",
                found=f"the one that events from [pull.{name}] come under",
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
            expected="one way to say who asks",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )


def _check_competing_sources(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """A message comes to one of those who share them: each source would miss what the other has."""
    for (name, first), (other, second) in combinations(settings.pull.items(), 2):
        if first.addresses & second.addresses and (key := _shared_key(first, second)) is not None:
            yield SfnError(
                sources.location_of(("pull", other, key)),
                expected=f"another than that of [pull.{name}]",
                found=f"{getattr(second, key)}: they would take each other's messages",
                remedy="name another one, or make the two sections one",
            )


def _shared_key(first: PullSettings, second: PullSettings) -> str | None:
    """The key that has two sources of one server share messages."""
    match (first.stream, first.durable), (second.stream, second.durable):
        case (None, None), (None, None):
            return "queue" if first.queue == second.queue and subjects_overlap(first.subject, second.subject) else None
        case (str(), str()) as one, another if one == another:
            return "durable"
        case _:
            return None


# ── routing: What does not fit together of gateways

_SIGNED_HOST: Final = re.compile(
    r"(?:.+\.)?(?:glue|s3tables)(?:-fips)?\.[a-z0-9-]+\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
"""Hosts of AWS Glue and S3 Tables."""
_EXPECTED_UNSIGNED: Final = (
    "a catalog whose requests are not signed with SigV4: clients sign the host that they speak to, "
    "so nothing can stand between"
)
_REMEDY_SIGNED: Final = (
    "let events tell of its commits (AWS Glue: EventBridge to /v1/events), and the sweep find the rest"
)


def check_gateways(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `gateway.NAME` that can't work."""
    for name, gateway in settings.gateway.items():
        yield from _check_gateway_catalogs(name, gateway, settings, sources)
        yield from _check_unsigned_upstream(name, gateway, settings, sources)
        yield from _check_addresses(name, gateway, settings, sources)
    yield from _check_ports(settings, sources)


def _check_gateway_catalogs(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    """Catalogs of ours that there are not, or that nobody can ask."""
    place = sources.location_of(("gateway", name, "catalog"))
    known = [catalog for catalog, one in settings.catalogs.items() if not one.is_event_only]
    if gateway.catalog is not None and gateway.catalogs:
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if not settings.catalogs_behind(name):
        yield SfnError(
            place,
            expected="our name of the catalog behind it, as there are several",
            found="none",
            remedy=f"configured are: {', '.join(known)}",
        )
    for key, ours in settings.catalogs_behind(name).items():
        keys = ("gateway", name, "catalogs", key) if gateway.catalogs else ("gateway", name, "catalog")
        if ours not in settings.catalogs:
            expected, remedy = "a configured catalog", suggest_name(ours, known)
            yield SfnError(sources.location_of(keys), expected=expected, found=ours, remedy=remedy)
        elif settings.catalogs[ours].is_event_only:
            expected = "a catalog that can be asked: what passes is looked up there"
            yield SfnError(sources.location_of(keys), expected=expected, found=f"{ours}, of type told")


def _check_unsigned_upstream(
    name: str, gateway: GatewaySettings, settings: Settings, sources: SettingsSources
) -> Iterator[SfnError]:
    host = urlsplit(gateway.upstream).hostname or ""
    behind = [settings.catalogs[ours] for ours in settings.catalogs_behind(name).values() if ours in settings.catalogs]
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
    """Addresses that lead nowhere, or back."""
    for key in ("upstream", "public_url"):
        said = getattr(gateway, key)
        parts = urlsplit(said or "")
        if parts.query or parts.fragment or parts.username is not None:
            expected = "an address alone, as clients show themselves who they are"
            yield SfnError(
                sources.location_of(("gateway", name, key)),
                expected=expected,
                found="a user, a query or a fragment beside it",
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
    """Gateways that would listen where the listener does, or one before them."""
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
    """Whether only one of two hosts can be bound at a time with the same port; names are not looked up."""
    hosts = {_normalise_host(one), _normalise_host(other)}
    # Such a socket takes IPv4 too, and a name is bound with IPv4.
    return len(hosts) == 1 or "::" in hosts or ("0.0.0.0" in hosts and not any(":" in host for host in hosts))  # noqa: S104 - compared, not bound


def _normalise_host(host: str) -> str:
    """A host in the one spelling of it."""
    name = host.removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address("127.0.0.1" if name == "localhost" else name))
    except ValueError:
        return name


# ── sending: What is wrong between settings of who may send events

_MIN_EVENT_RETENTION: Final = timedelta(seconds=2 * TOLERANCE)
"""How long a message may come again: from as early as it may be to as late."""


def check_senders(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything about senders that does not fit together."""
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
            expected="a loopback address, as everybody may send events while no sender is configured",
            found=settings.listener.host,
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
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
    """Who need not show who it is must be on this machine, and must not be believed."""
    names = [name for name, sender in settings.senders.items() if sender.scheme is AuthScheme.NONE]
    remedy = "give it another scheme, and a secret"
    for name in names:
        place = sources.location_of(("senders", name, "scheme"))
        if not settings.listener.is_loopback:
            expected = f"a proof of who it is, as {settings.listener.host} is no loopback address"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)
        if event_only := sorted(settings.event_only_catalogs.intersection(settings.catalogs_of(name).values())):
            expected = f"a proof of who it is, as what is told of {', '.join(event_only)} is believed"
            yield SfnError(place, expected=expected, found="none", remedy=remedy)
        if name != names[0]:
            expected = f"a proof of who it is, as all who show none are {names[0]}"
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
            expected=(
                f"at least {format_duration(_MIN_EVENT_RETENTION)}, as a signed message may come again for as long"
            ),
            found=format_duration(settings.inbox.event_retention),
        )


# ── storing: What does not fit together of the stores

_REQUIRED_WITH: Final = {
    "access_key_id": ("secret_access_key",),
    "secret_access_key": ("access_key_id",),
    "session_token": ("access_key_id",),
    "external_id": ("role_arn",),
    "client_secret": ("tenant_id", "client_id"),
    "tenant_id": ("client_id",),
}
"""Keys that mean nothing without others."""
_CREDENTIAL_KEYS: Final = (
    ("anonymous",),
    ("access_key_id", "profile"),
    ("account_key",),
    ("sas_token",),
    ("client_id",),
    ("credentials_file",),
)
"""Keys that each say who asks: those of one line exclude those of the others, and each other."""


def check_stores(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `stores.NAME`."""
    owners: dict[str, str] = {}
    for name, store in settings.stores.items():
        owner = owners.setdefault(store.prefix, name)
        if owner != name:
            place = sources.location_of(("stores", name, "prefix"))
            yield SfnError(place, expected="a prefix of its own", found=f"the one of the store {owner}")
        for folder in store.links_to:
            if scheme_of(folder) != "file":
                place = sources.location_of(("stores", name, "links_to"))
                yield SfnError(place, expected="folders of this machine", found=folder)
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
            expected="one way to say who asks",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )


def _given_keys(store: StoreSettings) -> set[str]:
    """The keys that say something."""
    return {key for key in store.model_fields_set if getattr(store, key) not in {None, False}}


# ── consistency: What is wrong between settings that are right one by one


def consistency_errors(settings: Settings, sources: SettingsSources) -> tuple[SfnError, ...]:
    """Everything that does not fit together."""
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
                    expected="a value, as a catalog of type told can't be asked for it",
                    found="none",
                    remedy=f"set it there or as {variable_name(keys)}",
                )
    if settings.event_only_catalogs and not settings.senders:
        named = ", ".join(sorted(settings.event_only_catalogs))
        yield SfnError(
            sources.location_of(("senders",)),
            expected=f"a sender with a token, as what is told of {named} is believed",
            found="none",
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
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
