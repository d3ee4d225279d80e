"""NATS: core, which keeps nothing, and JetStream, which keeps what was not acknowledged."""

from sfn.receiver.pull.nats.server import NatsServer
from sfn.receiver.pull.nats.terms import Durable, Terms

__all__ = ["Durable", "NatsServer", "Terms"]
