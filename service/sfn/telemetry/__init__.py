"""What the service tells about itself: logs, and metrics for Prometheus (`sfn.telemetry.metrics`)."""
