"""Logs, and metrics for Prometheus.

`logs` configures structured logging for the whole process. `metrics` holds counters and histograms, updated by the
code as it runs; start with its class `Metrics`. `scrape` renders them, and adds gauges that are read at each scrape
of `/metrics`, such as the states of jobs in the inbox.
"""
