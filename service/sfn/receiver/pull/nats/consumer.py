"""A stream and its durable consumer, as JetStream tells of them: looked at, and the consumer made where none is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from sfn.receiver.pull import SourceUnavailable
from sfn.receiver.pull.nats.connection import STEP_TIMEOUT, NatsConnection
from sfn.receiver.pull.nats.terms import DurableConsumer
from sfn.receiver.pull.subjects import subjects_overlap

ACK_WAIT: Final = 60.0
"""Seconds after which a message that was delivered comes again: longer than the slowest disk takes."""
MAX_UNACKNOWLEDGED: Final = 1_000
"""Messages that all replicas together may have in hand."""

_ENDLESS: Final = "that delivers for as long as nobody acknowledges"
_NO_STREAM: Final = 10_059
"""JetStream's error code."""


class JetStreamConsumer:
    """One consumer of one stream.

    Args:
        connection: to one of its servers.
        durable: which one.
        subject: what is wanted of the stream.
        where: the section of the settings, for messages.
    """

    def __init__(self, connection: NatsConnection, durable: DurableConsumer, subject: str, where: str) -> None:
        self._connection, self._durable, self._subject, self._where = connection, durable, subject, where
        self._api = JetStreamContext(connection.client, timeout=STEP_TIMEOUT)

    async def probe(self) -> bool:
        """Whether the consumer is there; nothing is made.

        Raises:
            Away: there is no such stream, or the subject is none of its, or the consumer is another one than is needed.
        """
        with self._connection.map_errors():
            try:
                stream = await self._api.stream_info(self._durable.stream)
                self._check_subjects(stream.config.subjects or ())
                found = await self._api.consumer_info(self._durable.stream, self._durable.name)
            except NotFoundError as error:
                if error.err_code == _NO_STREAM:
                    self._lacks_stream()
                return False
            except APIError as error:
                raise self._refused(error) from None
        self._check(found.config)
        return True

    async def ensure(self) -> None:
        """Make it where there is none.

        It begins with all that the stream holds: of what was published before anybody listened, a commit that is known
        already costs a look, and one that is not would be missed. A stream that is a work queue allows nothing else.

        Raises:
            Away: as `proven`, or it can't be made.
        """
        if await self.probe():
            return
        wanted = ConsumerConfig(
            durable_name=self._durable.name,
            name=self._durable.name,
            description="Iceberg SFN listener",
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            max_ack_pending=MAX_UNACKNOWLEDGED,
            filter_subject=self._subject,
        )
        with self._connection.map_errors():
            try:
                await self._api.add_consumer(self._durable.stream, wanted)
            except APIError as error:
                raise self._refused(error) from None

    def _check_subjects(self, subjects: Sequence[str]) -> None:
        # One that is fed by other streams has none of its own.
        if subjects and not any(subjects_overlap(self._subject, subject) for subject in subjects):
            raise SourceUnavailable(
                f"{self._where}.subject",
                expected=f"one that the stream {self._durable.stream} keeps: {', '.join(subjects)}",
                found=self._subject,
                remedy=f"correct it, or {self._where}.stream",
            )

    def _check(self, config: ConsumerConfig) -> None:
        subjects = [config.filter_subject] if config.filter_subject else config.filter_subjects or [">"]
        for expected, found, is_right in (
            ("that is pulled from", "one that pushes", config.deliver_subject is None),
            ("with explicit acknowledgements", f"{config.ack_policy}", config.ack_policy == AckPolicy.EXPLICIT),
            # What the inbox does not take is given back each time, and each time counts.
            (_ENDLESS, f"max_deliver {config.max_deliver}", config.max_deliver in {None, -1}),
            (f"of the subject {self._subject}", ", ".join(subjects), self._subject in subjects),
        ):
            if not is_right:
                raise SourceUnavailable(
                    f"{self._where}.durable",
                    expected=f"a consumer {self._durable.name} {expected}",
                    found=found,
                    remedy="name another one, which is made, or delete that one",
                )

    def _lacks_stream(self) -> NoReturn:
        name = self._durable.stream
        raise SourceUnavailable(
            f"{self._where}.stream",
            expected=f"a stream {name}",
            found="none",
            remedy=f"make it: nats stream add {name} --subjects '{self._subject}' --defaults; or correct the name",
        )

    def _refused(self, error: APIError) -> SourceUnavailable:
        if isinstance(error, ServiceUnavailableError):
            remedy = f"set up JetStream there; for core NATS remove {self._where}.stream and durable"
            return SourceUnavailable(
                self._where, expected="a server with JetStream", found="one without", remedy=remedy
            )
        expected = f"the consumer {self._durable.name} of the stream {self._durable.stream}"
        return SourceUnavailable(self._where, expected=expected, found=f"{error.description} ({error.err_code})")
