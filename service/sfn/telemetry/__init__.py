"""What the service tells about itself: logs, and metrics for Prometheus (`sfn.telemetry.metrics`)."""

from sfn.telemetry.logs import configure

__all__ = ["configure"]
