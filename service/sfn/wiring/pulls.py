"""From the settings to the sources that events are fetched from."""

from __future__ import annotations

from typing import Protocol

from sfn.clock import Clock
from sfn.errors import SfnError
from sfn.formats.event import Sender
from sfn.http.events import EventFilter, IngestService
from sfn.inbox import InboxWriter
from sfn.pull import PullServer
from sfn.pull.source import PullOptions, PullSource
from sfn.settings import PullSettings, Settings
from sfn.settings.model import pull_origin_name
from sfn.telemetry.metrics import Metrics


class CheckableServer(PullServer, Protocol):
    """A source's server that can be tried."""

    async def probe(self) -> str:
        """What is there, tried without taking anything away from whoever fetches.

        Raises:
            Away: not what is needed.
        """
        ...


def build_pull_sources(
    settings: Settings, inbox: InboxWriter, event_filter: EventFilter, metrics: Metrics, clock: Clock
) -> tuple[PullSource, ...]:
    """All configured sources; none has been asked anything yet.

    Args:
        inbox: where their events go.
        event_filter: which of them matter.

    Raises:
        SfnError: the packages that speak to one are not installed.
    """
    ingest_service = IngestService(inbox, event_filter=event_filter, metrics=metrics.events)
    return tuple(
        PullSource(
            PullOptions(
                name,
                Sender(pull_origin_name(name), settings.catalogs_of(pull_origin_name(name)), one.dialect),
                settings.listener.body_limit if one.body_limit is None else one.body_limit,
                settings.listener.drain,
            ),
            build_pull_server(name, one),
            ingest_service,
            clock=clock,
            event_metrics=metrics.events,
            pull_metrics=metrics.pulls,
        )
        for name, one in settings.pull.items()
    )


def build_pull_server(name: str, pull: PullSettings) -> CheckableServer:
    """Where a source is.

    Raises:
        SfnError: the packages that speak to it are not installed.
    """
    try:
        from sfn.pull import nats as pull_nats
        from sfn.pull import nats_connection
    except ModuleNotFoundError as error:
        raise SfnError(
            f"pull.{name}",
            expected="the packages that NATS needs",
            found=f"no module {error.name}",
            remedy="pip install '.[nats]'",
        ) from error
    durable = (
        None
        if pull.stream is None or pull.durable is None
        else nats_connection.DurableConsumer(pull.stream, pull.durable)
    )
    return pull_nats.NatsServer(
        nats_connection.NatsOptions(
            where=f"pull.{name}",
            servers=pull.servers,
            subject=pull.subject,
            group=pull.queue,
            durable=durable,
            ca_file=pull.ca_file,
            credentials_file=pull.credentials_file,
            token_file=pull.token_file,
            user=pull.user,
            password_file=pull.password_file,
        )
    )
