"""What is wrong between settings that are right one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sfn.errors import SfnError
from sfn.receiver.senders import is_loopback
from sfn.settings.complaints import nearest
from sfn.settings.model import SenderSettings, Settings
from sfn.settings.sources import Sources


def inconsistencies(settings: Settings, sources: Sources) -> tuple[SfnError, ...]:
    """Everything that does not fit together."""
    return (
        *_open_to_the_network(settings, sources),
        *_senders(settings, sources),
        *_secrets_shared(settings, sources),
        *_secrets_twice(settings, sources),
        *_retry(settings, sources),
        *_stores(settings, sources),
    )


def _open_to_the_network(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    if not settings.senders and not is_loopback(settings.listener.host):
        yield SfnError(
            sources.place(("listener", "host")),
            expected="a loopback address, as everybody may send events while no sender is configured",
            found=settings.listener.host,
            remedy='configure one: [senders.NAME] secrets = { main = "…" }',
        )


def _senders(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    for name, sender in settings.senders.items():
        if not sender.secrets and sender.secrets_file is None:
            yield SfnError(
                sources.place(("senders", name, "secrets")),
                expected="a token",
                found="neither secrets nor secrets_file",
                remedy='set secrets = { main = "…" } or secrets_file',
            )
        yield from _bindings(name, sender, settings, sources)


def _bindings(name: str, sender: SenderSettings, settings: Settings, sources: Sources) -> Iterator[SfnError]:
    known = list(settings.catalogs)
    if sender.catalog is not None and sender.catalogs:
        place = sources.place(("senders", name, "catalog"))
        yield SfnError(place, expected="either catalog or catalogs", found="both")
    if sender.catalog is None and not sender.catalogs and len(known) != 1:
        yield SfnError(
            sources.place(("senders", name, "catalog")),
            expected="the catalog that it speaks for, as there is not exactly one",
            found="none",
            remedy=f"configured are: {', '.join(known) or 'none'}",
        )
    meant: dict[tuple[str, ...], str] = {("catalogs", theirs): ours for theirs, ours in sender.catalogs.items()}
    if sender.catalog is not None:
        meant["catalog",] = sender.catalog
    for keys, ours in meant.items():
        if ours not in settings.catalogs:
            yield SfnError(
                sources.place(("senders", name, *keys)),
                expected="a configured catalog",
                found=ours,
                remedy=nearest(ours, known),
            )


def _secrets_shared(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    owners: dict[str, str] = {}
    for name, sender in settings.senders.items():
        for token, secret in sender.secrets.items():
            owner = owners.setdefault(secret.get_secret_value(), name)
            if owner != name:
                yield SfnError(
                    sources.place(("senders", name, "secrets", token)),
                    expected="a token of its own",
                    found=f"one of the sender {owner}",
                )


def _secrets_twice(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    for name, catalog in settings.catalogs.items():
        given: Mapping[str, object] = {
            "token": catalog.token,
            "token_file": catalog.token_file,
            "credential": catalog.credential,
            "credential_file": catalog.credential_file,
        }
        yield from _at_most_one(("catalogs", name), given, sources)
    yield from _at_most_one(
        ("admin",), {"token": settings.admin.token, "token_file": settings.admin.token_file}, sources
    )


def _at_most_one(table: tuple[str, ...], given: Mapping[str, object], sources: Sources) -> Iterator[SfnError]:
    present = [key for key, value in given.items() if value is not None]
    if len(present) > 1:
        place = sources.place((*table, present[1]))
        yield SfnError(place, expected=f"at most one of {', '.join(given)}", found=" and ".join(present))


def _retry(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    retry = settings.retry
    if retry.base > retry.cap:
        place = sources.place(("retry", "base"))
        yield SfnError(place, expected=f"at most the cap, {retry.cap}", found=str(retry.base))


def _stores(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    owners: dict[str, str] = {}
    for name, store in settings.stores.items():
        owner = owners.setdefault(store.prefix.rstrip("/"), name)
        if owner != name:
            place = sources.place(("stores", name, "prefix"))
            yield SfnError(place, expected="a prefix of its own", found=f"the one of the store {owner}")
