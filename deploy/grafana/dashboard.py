"""Write the Grafana dashboard `iceberg-sfn.json`, from the panels below: `python deploy/grafana/dashboard.py`.

All replicas share one inbox and export the same gauges of it, so those queries take the maximum of all processes. Each
process has its own counters, so those queries add up. Only the row about the objective needs the recording rules in
`deploy/prometheus/recording.yml`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from panels import GREEN, RED, SOURCE, YELLOW, Query, graph, tile, timeline

FILE = Path(__file__).with_name("iceberg-sfn.json")
JOB = 'job=~"$job"'
PROCESS = f'{JOB},instance=~"$instance"'
CATALOG = f'{PROCESS},catalog=~"$catalog"'
COMMITS = f'{PROCESS},kind="commit"'
RECORDED = f'{JOB},catalog=~"$catalog"'
RATE = "[$__rate_interval]"
QUANTILES = ((0.5, "median"), (0.95, "p95"), (0.99, "p99"))


def quantiles(histogram: str, selector: str, by: str = "", legend: str = "") -> list[Query]:
    """Return the queries for median, 95th and 99th percentile of a histogram.

    Args:
        histogram: name of the metric.
        selector: label matchers.
        by: label that divides the series.
        legend: what the legend has before the name of the quantile.
    """
    labels = ", ".join(["le", by] if by else ["le"])
    rate = f"sum by ({labels}) (rate({histogram}_bucket{{{selector}}}{RATE}))"
    return [Query(f"histogram_quantile({share}, {rate})", f"{legend}{name}") for share, name in QUANTILES]


def add_verdict(board: dashboard.Dashboard) -> None:
    """Add the row that says whether something needs attention, and what."""
    board.with_row(dashboard.Row("Verdict: is everything well?"))
    for panel in (
        tile(
            "Ready",
            "Whether every process accepts traffic (/readyz). Runbook: not-ready.md",
            f"min(sfn_ready{{{PROCESS}}})",
            states={"1": ("ready", GREEN), "0": ("not ready", RED)},
        ),
        tile(
            "Inbox",
            "Whether the inbox of every process answers. If not, all figures of the inbox are old, such as late "
            "tables. Runbook: inbox-unavailable.md",
            f"min(sfn_inbox_answers{{{PROCESS}}})",
            states={"1": ("answers", GREEN), "0": ("no answer", RED)},
        ),
        tile(
            "Catalogs without answer",
            "Catalogs that have not answered since the start, or do not answer one of the processes now. Runbook: "
            "catalog-or-store-down.md",
            f"sum(clamp_max((1 - max by (catalog) (sfn_catalog_reached{{{CATALOG}}})) + max by (catalog) "
            f'(label_replace(sfn_breaker_open{{{PROCESS},scope="catalog"}}, "catalog", "$1", "name", "(.*)")), 1))',
            limits=(1, 1),
        ),
        tile(
            "Late tables",
            "Tables with a change that has waited for more than telemetry.late_after (one minute). Tables with a dead "
            "letter count, too. Runbook: files-late.md",
            f"sum(max by (catalog) (sfn_late_tables{{{CATALOG}}}))",
            limits=(1, 10),
        ),
        tile(
            "Oldest wait",
            "How long the oldest change has waited for its publish. Runbook: files-late.md",
            f"max(sfn_oldest_pending_age_seconds{{{CATALOG}}})",
            unit="s",
            limits=(60, 300),
        ),
        tile(
            "Dead letters",
            "Tables that were given up, and requests that could not be decoded. Held drops have a tile of their own. "
            "Runbook: dead-letters.md",
            f'sum(max by (catalog, reason) (sfn_dead_letters{{{CATALOG},reason!="held-drop"}}))',
            limits=(1, 100),
        ),
        tile(
            "Held drops",
            "Tables that the drop limit holds until an operator decides. Runbook: drops-held.md",
            f"sum(max by (catalog) (sfn_tables_on_hold{{{CATALOG}}}))",
            limits=(1, 1),
        ),
        tile(
            "Error budget left",
            "What is left of the 30-day budget of the staleness objective, of the worst catalog. Needs the recording "
            "rules. Runbook: files-late.md",
            f"min(sfn:staleness_error_budget:remaining_ratio{{{RECORDED}}})",
            unit="percentunit",
            limits=(0.5, 0),
        ),
    ):
        board.with_panel(panel)


def add_freshness(board: dashboard.Dashboard) -> None:
    """Add the rows about the time from a commit to its SFN file, and about the objective for it."""
    board.with_row(dashboard.Row("Freshness: how late are the files?"))
    for panel in (
        graph(
            "Staleness of published commits",
            "The time from a commit to its SFN file. A commit shows here only when it is published, so see the next "
            "two graphs as well. The first file of a table does not count. A gap means that nothing was published.",
            *quantiles("sfn_staleness_seconds", CATALOG),
            unit="s",
            limits=(60, 300),
            is_logarithmic=True,
        ),
        graph(
            "Late tables by catalog",
            "Tables with a change that has waited for more than telemetry.late_after (one minute). sfn tables --late "
            "names them.",
            Query(f"max by (catalog) (sfn_late_tables{{{CATALOG}}})", "{{catalog}}"),
        ),
        graph(
            "Oldest wait by catalog",
            "How long the oldest change of each catalog has waited for its publish. A table with a dead letter counts "
            "from the time when the letter was opened.",
            Query(f"max by (catalog) (sfn_oldest_pending_age_seconds{{{CATALOG}}})", "{{catalog}}"),
            unit="s",
            limits=(60, 300),
        ),
    ):
        board.with_panel(panel)
    board.with_row(dashboard.Row("Staleness objective (needs the recording rules)"))
    for panel in (
        graph(
            "Commits published within 60 seconds",
            "The share of the commits of the last hour that met the objective. Commits that wait for their publish "
            "count as missed once they are late.",
            Query(f"1 - max by (catalog) (sfn:staleness_error:ratio_rate1h{{{RECORDED}}})", "{{catalog}}"),
            Query("max(sfn:staleness_objective:ratio)", "objective"),
            unit="percentunit",
        ).max(1),
        graph(
            "Burn rate",
            "How fast the error budget of 30 days is used up: at 1 it lasts for exactly 30 days. The lines are the "
            "limits of the alerts for 6 hours and for 1 hour.",
            *(
                Query(
                    f"max by (catalog) (sfn:staleness_error:ratio_rate{window}{{{RECORDED}}}) "
                    "/ (1 - scalar(sfn:staleness_objective:ratio))",
                    f"{{{{catalog}}}} {window}",
                )
                for window in ("1h", "6h", "3d")
            ),
            limits=(6, 14.4),
        ),
        graph(
            "Error budget left by catalog",
            "What is left of the budget of the last 30 days: below 0 the objective is missed.",
            Query(f"min by (catalog) (sfn:staleness_error_budget:remaining_ratio{{{RECORDED}}})", "{{catalog}}"),
            unit="percentunit",
        )
        .max(1)
        .min(-1),
    ):
        board.with_panel(panel)


def add_publishes(board: dashboard.Dashboard) -> None:
    """Add the rows about publishes and sweeps."""
    board.with_row(dashboard.Row("Publishes"))
    for panel in (
        graph(
            "Publishes by outcome",
            "Attempts per second. done: published, or nothing to do. rescheduled: checked again later. retry: failed, "
            "tried again. returned: not the table's fault, such as an outage. dead: given up.",
            Query(f"sum by (outcome) (rate(sfn_publications_total{{{CATALOG}}}{RATE}))", "{{outcome}}"),
            unit="ops",
            is_stacked=True,
        ),
        graph(
            "Failures by class",
            "Attempts per second that failed, by class of the error or reason of the dead letter.",
            Query(
                f'sum by (error_class) (rate(sfn_publications_total{{{CATALOG},error_class!=""}}{RATE}))',
                "{{error_class}}",
            ),
            unit="ops",
            is_stacked=True,
        ),
        graph(
            "Duration of a publish",
            "How long successful attempts take: the catalog's answer, and the writes to the store.",
            *quantiles("sfn_publication_duration_seconds", CATALOG),
            unit="s",
            is_logarithmic=True,
        ),
        graph(
            "Tables by state",
            "due: an event waits. retrying: failed, tried again. leased: in work. dead: given up. held: by the drop "
            "limit. Tables that only wait for their next regular check are left out.",
            Query(
                f'sum by (state) (max by (catalog, state) (sfn_pending_tables{{{CATALOG},state!="scheduled"}}))',
                "{{state}}",
            ),
            is_stacked=True,
        ),
        graph(
            "Dead letters by reason",
            "Open dead letters. sfn dead-letters list --by-cause shows their causes. Runbook: dead-letters.md",
            Query(f"sum by (reason) (max by (catalog, reason) (sfn_dead_letters{{{CATALOG}}})) > 0", "{{reason}}"),
            is_stacked=True,
        ),
        graph(
            "Leases that ended without a result",
            "Leases within five minutes that expired (a process died or stood still), or that were lost to another "
            "worker or to an operator. Runbook: leases-expired.md",
            Query(f"sum(increase(sfn_lease_expirations_total{{{PROCESS}}}[5m]))", "expired"),
            Query(f"sum(increase(sfn_lost_leases_total{{{PROCESS}}}[5m]))", "lost"),
        ),
    ):
        board.with_panel(panel)
    board.with_row(dashboard.Row("Sweeps"))
    for panel in (
        graph(
            "Time since the last sweep, in intervals",
            "1 means: the last complete sweep of a catalog ended one interval ago. SfnSweepOverdue fires at 4. Until "
            "the first sweep after a start there is no value. Runbook: sweep-overdue.md",
            Query(
                f"(time() - (max by (catalog) (sfn_sweep_last_end_timestamp_seconds{{{CATALOG}}}) > 0)) "
                f"/ max by (catalog) (sfn_sweep_interval_seconds{{{CATALOG}}})",
                "{{catalog}}",
            ),
            limits=(2, 4),
        ),
        graph(
            "Duration of the last sweep",
            "If a sweep takes longer than sweep.every, raise sweep.every.",
            Query(f"max by (catalog) (sfn_sweep_last_duration_seconds{{{CATALOG}}})", "{{catalog}}"),
            unit="s",
        ),
        graph(
            "Sweeps by outcome",
            "Sweeps per hour. swept: complete. retry and returned: interrupted, and tried again.",
            Query(f"sum by (outcome) (increase(sfn_sweeps_total{{{CATALOG}}}[1h]))", "{{outcome}}"),
            is_stacked=True,
        ),
        graph(
            "Tables compared",
            "Tables of the last complete sweep of each catalog.",
            Query(f"max by (catalog) (sfn_sweep_last_tables{{{CATALOG}}})", "{{catalog}}"),
        ),
        graph(
            "Tables that differed",
            "Tables that the last complete sweep found changed although no event had reported the change. If the "
            "number is often high, events are missing.",
            Query(f"max by (catalog) (sfn_sweep_last_differing{{{CATALOG}}})", "{{catalog}}"),
        ),
        graph(
            "Namespaces that could not be listed",
            "Their new tables are not found, and their drops are not published. Runbook: sweep-overdue.md",
            Query(f"max by (catalog) (sfn_sweep_last_unlisted_namespaces{{{CATALOG}}})", "{{catalog}}"),
            limits=(1, 1),
        ),
    ):
        board.with_panel(panel)


def add_catalogs(board: dashboard.Dashboard) -> None:
    """Add the row about catalogs and stores, and about tables that disappeared from a catalog."""
    board.with_row(dashboard.Row("Stores and catalogs"))
    for panel in (
        timeline(
            "Catalogs, stores and the process itself",
            "Whether something has succeeded since the last error. A store without a name belongs to tables that were "
            "never published. Scope process: it lacks file descriptors, threads or memory. Runbook: "
            "catalog-or-store-down.md",
            Query(f"max by (scope, name) (sfn_breaker_open{{{PROCESS}}})", "{{scope}} {{name}}"),
            states={"0": ("works", GREEN), "1": ("does not work", RED)},
        ),
        timeline(
            "Catalogs that have answered since the start",
            "A catalog that never answered is probably configured wrongly: sfn check. Runbook: "
            "catalog-or-store-down.md",
            Query(f"max by (catalog) (sfn_catalog_reached{{{CATALOG}}})", "{{catalog}}"),
            states={"1": ("answered", GREEN), "0": ("no answer yet", YELLOW)},
        ),
        graph(
            "Missing tables",
            "Tables with a live SFN file that the catalog does not list any more. Runbook: drops-held.md",
            Query(f"max by (catalog) (sfn_missing_tables{{{CATALOG}}})", "{{catalog}}"),
        ),
        graph(
            "Longest absence of a table",
            "Since when the first of the missing tables is missing. A drop that no event reported is published after "
            "absence_delay (10 minutes) and a sweep.",
            Query(f"max by (catalog) (sfn_oldest_missing_age_seconds{{{CATALOG}}})", "{{catalog}}"),
            unit="s",
            limits=(1800, 3600),
        ),
        timeline(
            "Drop limit",
            "Whether a catalog has reached its drop limit, so that further drops are held. Runbook: drops-held.md",
            Query(f"max by (catalog) (sfn_drop_limit_reached{{{CATALOG}}})", "{{catalog}}"),
            states={"0": ("not reached", GREEN), "1": ("reached", RED)},
            wide=8,
        ),
    ):
        board.with_panel(panel)


def add_inbox(board: dashboard.Dashboard) -> None:
    """Add the rows about events and the inbox."""
    board.with_row(dashboard.Row("Events"))
    for panel in (
        graph(
            "Events by result",
            "Events per second. duplicate: accepted before. ignored: of no interest. unmapped: of a catalog that the "
            "sender does not map. refused: 4xx. unavailable: 5xx.",
            Query(f"sum by (result) (rate(sfn_events_received_total{{{PROCESS}}}{RATE}))", "{{result}}"),
            unit="ops",
            is_stacked=True,
        ),
        graph(
            "Events by format",
            "Events per second, by the format in which they came. none: requests that failed before their format was "
            "known.",
            Query(f"sum by (format) (rate(sfn_events_received_total{{{PROCESS}}}{RATE})) > 0", "{{format}}"),
            unit="ops",
            is_stacked=True,
        ),
        graph(
            "Refused requests by status",
            "Requests within five minutes. 401: was a token changed on one side only? Runbook: events-refused.md",
            Query(f"sum by (status) (increase(sfn_requests_refused_total{{{PROCESS}}}[5m])) > 0", "{{status}}"),
        ),
        timeline(
            "NATS sources",
            "Whether each process receives the messages of its sources. Runbook: source-disconnected.md",
            Query(f"min by (source, instance) (sfn_pull_connected{{{PROCESS}}})", "{{source}} {{instance}}"),
            states={"1": ("connected", GREEN), "0": ("not connected", RED)},
            wide=8,
        ),
        graph(
            "Messages of NATS that were lost",
            "Messages of core NATS within five minutes for which the inbox was too slow. A sweep finds the commits. "
            "Runbook: source-disconnected.md",
            Query(f"sum by (source) (increase(sfn_pull_dropped_total{{{PROCESS}}}[5m]))", "{{source}}"),
        ),
        graph(
            "Bodies refused for lack of memory",
            "Bodies within five minutes of clients that had not identified themselves, answered with 503: "
            "listener.body_memory was used up. Find the client, or raise the setting. Runbook: events-refused.md",
            Query(f"sum by (of) (increase(sfn_bodies_refused_total{{{PROCESS}}}[5m]))", "{{of}}"),
        ),
    ):
        board.with_panel(panel)
    board.with_row(dashboard.Row("Inbox"))
    for panel in (
        graph(
            "Commit latency",
            "How long senders wait until their event is on the disk of the inbox.",
            *quantiles("sfn_ingest_commit_seconds", PROCESS),
            unit="s",
            is_logarithmic=True,
        ),
        graph(
            "Events in one transaction",
            "Many senders at once share one transaction, so a high number under load is good.",
            Query(
                f"sum(rate(sfn_ingest_batch_events_sum{{{PROCESS}}}{RATE})) "
                f"/ (sum(rate(sfn_ingest_batch_events_count{{{PROCESS}}}{RATE})) > 0)",
                "average",
            ),
            *quantiles("sfn_ingest_batch_events", PROCESS)[2:],
        ),
        graph(
            "Applied and coalesced",
            "Messages per second that became part of the state of their table, and events that joined a waiting event "
            "of the same table: one publish serves both.",
            Query(f"sum(rate(sfn_applied_total{{{PROCESS}}}{RATE}))", "applied"),
            Query(f"sum(rate(sfn_coalesced_total{{{PROCESS}}}{RATE}))", "coalesced"),
            unit="ops",
        ),
        graph(
            "Waiting messages",
            "disk: wait for their commit in this process; senders get 503 above listener.queue_limit. fold: accepted, "
            "and not yet part of the state of their tables.",
            Query(f'max by (queue) (sfn_waiting_messages{{{PROCESS},queue="fold"}})', "fold"),
            Query(f'sfn_waiting_messages{{{PROCESS},queue="disk"}}', "disk {{instance}}"),
        ),
        graph(
            "Oldest waiting message",
            "How long the oldest of these messages has waited.",
            Query(f"max by (queue) (sfn_oldest_waiting_age_seconds{{{PROCESS}}})", "{{queue}}"),
            unit="s",
            limits=(5, 30),
        ),
        graph(
            "Size of the inbox",
            "The files of an SQLite inbox. With PostgreSQL there is nothing here: watch the database itself.",
            Query(f"max by (file) (sfn_inbox_bytes{{{PROCESS}}})", "{{file}}"),
            unit="bytes",
        ),
    ):
        board.with_panel(panel)


def add_gateway(board: dashboard.Dashboard) -> None:
    """Add the row about gateways and the facade."""
    board.with_row(dashboard.Row("Gateway and facade"))
    for panel in (
        graph(
            "Requests through the gateway",
            "Requests per second. kind commit: they may change a table.",
            Query(
                f"sum by (gateway, kind) (rate(sfn_gateway_requests_total{{{PROCESS}}}{RATE}))", "{{gateway}} {{kind}}"
            ),
            unit="reqps",
        ),
        graph(
            "Time of the catalog's answer",
            "From the request to the header of the catalog's answer. The gateway's own work is not part of it.",
            *quantiles("sfn_gateway_seconds", COMMITS, legend="commit "),
            *quantiles("sfn_gateway_seconds", f'{PROCESS},kind="other"', legend="other ")[1:2],
            unit="s",
            is_logarithmic=True,
        ),
        graph(
            "Commits without success",
            "Share of the commits that the catalog answered with 4xx or 5xx, or did not answer. A 4xx is often a "
            "conflict of two writers, which is normal.",
            Query(
                f'sum by (answer) (rate(sfn_gateway_requests_total{{{COMMITS},answer=~"4xx|5xx|none"}}{RATE})) '
                f"/ on () group_left () (sum(rate(sfn_gateway_requests_total{{{COMMITS}}}{RATE})) > 0)",
                "{{answer}}",
            ),
            unit="percentunit",
        ).max(1),
        graph(
            "Commits with an open intent",
            "Commits in progress, and commits without a clear answer. The listener queries the catalog about each for "
            "at most 35 minutes.",
            Query(f"max by (catalog) (sfn_open_intents{{{CATALOG}}})", "{{catalog}}"),
        ),
        graph(
            "Commits that the inbox missed",
            "Commits within five minutes. unrecorded: without a note, because the inbox accepted none. unmapped: under "
            "a prefix that gateway.NAME.catalogs does not have. Runbook: gateway-commits.md",
            Query(
                f"sum by (gateway) (increase(sfn_gateway_unrecorded_total{{{PROCESS}}}[5m]))", "{{gateway}} unrecorded"
            ),
            Query(f"sum by (gateway) (increase(sfn_gateway_unmapped_total{{{PROCESS}}}[5m]))", "{{gateway}} unmapped"),
        ),
        graph(
            "Requests to the facade",
            "Requests per second by status. 304: the reader already has the table's metadata.",
            Query(f"sum by (status) (rate(sfn_facade_requests_total{{{PROCESS}}}{RATE})) > 0", "{{status}}"),
            unit="reqps",
            is_stacked=True,
        ),
    ):
        board.with_panel(panel)


def add_process(board: dashboard.Dashboard) -> None:
    """Add the row about the processes."""
    board.with_row(dashboard.Row("Process"))
    for panel in (
        graph(
            "Resident memory",
            "Memory of each process. If it grows without end, report it.",
            Query(f"process_resident_memory_bytes{{{PROCESS}}} and on (job, instance) sfn_ready", "{{instance}}"),
            unit="bytes",
            wide=6,
        ),
        graph(
            "CPU",
            "Processors that each process uses. The listener runs in one thread for the most part, so 1 is its limit.",
            Query(
                f"rate(process_cpu_seconds_total{{{PROCESS}}}{RATE}) and on (job, instance) sfn_ready", "{{instance}}"
            ),
            limits=(0.8, 1),
            wide=6,
        ),
        graph(
            "File descriptors",
            "Share of the limit of open files that is in use. The listener closes idle connections above one half.",
            Query(
                f"process_open_fds{{{PROCESS}}} / process_max_fds{{{PROCESS}}} and on (job, instance) sfn_ready",
                "{{instance}}",
            ),
            unit="percentunit",
            limits=(0.5, 0.8),
            wide=6,
        ).max(1),
        graph(
            "Time since the start",
            "A saw-tooth means that the process ends again and again. The legend has the version. Runbook: "
            "leases-expired.md",
            Query(
                f"(time() - process_start_time_seconds{{{PROCESS}}}) "
                "* on (job, instance) group_left (version, python) sfn_build_info",
                "{{instance}} {{version}} (Python {{python}})",
            ),
            unit="s",
            wide=6,
        ),
    ):
        board.with_panel(panel)


def variable(name: str, label: str, query: str, *, is_multi: bool) -> dashboard.QueryVariable:
    """Return a variable of the dashboard.

    Args:
        name: name in the queries.
        label: name that Grafana shows.
        query: Grafana's query for the values.
        is_multi: whether several values, or all, can be chosen.
    """
    made = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(is_multi)
        .include_all(is_multi)
    )
    if is_multi:
        # Not the list of all values: a dead letter of an undecodable request has an empty catalog.
        made.all_value(".*").current(model.VariableOption(selected=True, text="All", value="$__all"))
    return made


def build() -> dashboard.Dashboard:
    """Return the dashboard."""
    board = (
        dashboard.Dashboard("Iceberg SFN listener")
        .uid("iceberg-sfn")
        .description("What is late, since when, and why: the first row says whether something needs attention.")
        .tags(["iceberg", "iceberg-sfn"])
        .timezone("browser")
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("job", "Installation (job)", "label_values(sfn_build_info, job)", is_multi=False))
        .with_variable(
            variable("instance", "Process", f"label_values(sfn_build_info{{{JOB}}}, instance)", is_multi=True)
        )
        .with_variable(
            variable("catalog", "Catalog", f"label_values(sfn_catalog_reached{{{JOB}}}, catalog)", is_multi=True)
        )
        .annotation(
            dashboard.AnnotationQuery()
            .name("Starts of processes")
            .datasource(SOURCE)
            .enable(enable=True)
            .icon_color("blue")
            .expr(f"time() - process_start_time_seconds{{{PROCESS}}} < 60 and on (job, instance) sfn_ready")
            .step("60s")
            .title_format("start")
            .text_format("{{instance}}")
        )
    )
    add_verdict(board)
    add_freshness(board)
    add_publishes(board)
    add_catalogs(board)
    add_inbox(board)
    add_gateway(board)
    add_process(board)
    return board


def rendered() -> str:
    """Return the dashboard as JSON. Panels are numbered by their order, so that a link to one stays valid."""
    made = build().build()
    for number, panel in enumerate(made.panels or [], start=1):
        panel.id_val = number
    return json.dumps(json.loads(JSONEncoder().encode(made)), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    if "--stdout" in sys.argv[1:]:
        sys.stdout.write(rendered())
    else:
        FILE.write_text(rendered())
