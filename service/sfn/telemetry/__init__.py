"""What the service tells about itself: logs, and metrics for Prometheus (`sfn.telemetry.metrics`)."""

from sfn.telemetry.logs import configure_logging

__all__ = ["configure_logging"]
