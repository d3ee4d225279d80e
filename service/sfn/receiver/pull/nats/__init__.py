"""NATS: core, which keeps nothing, and JetStream, which keeps what was not acknowledged."""

from sfn.receiver.pull.nats.server import NatsServer
from sfn.receiver.pull.nats.terms import DurableConsumer, NatsOptions

__all__ = ["DurableConsumer", "NatsOptions", "NatsServer"]
