"""The board "Body-log pipeline": from a router's capture over the listener's disk to the exporter's counts."""

from board import *

R = 'route=~"$route"'
I = 'instance=~"$instance"'


def window(metric, by, selector=I):
    return over(metric, selector, by)


NOW = Row("Now", [
    stat("Stored", "Records that the listener has acknowledged.", "cps", over("llm_router_bodylog_capture_frames_total", I + ',result="acked"')),
    stat("Lost in an hour", "Records lost on the router's side, whatever the reason.", "short", f"sum (increase(llm_router_bodylog_capture_dropped_total{{{I}}}[1h]))", steps=[(1, RED)], decimals=0),
    stat("Waiting longest", "How long the oldest record that the listener has not acknowledged has waited.", "s", f"max (llm_router_bodylog_capture_unacked_age_seconds{{{I}}})", steps=[(10, AMBER), (60, RED)]),
    stat("Spool in use", "The fullest router's disk spool: what waits for the listener.", "percentunit", f"max (llm_router_bodylog_capture_spool_bytes{{{I}}} / (llm_router_bodylog_capture_spool_limit_bytes{{{I}}} > 0))", steps=[(0.2, AMBER), (0.5, RED)], noValue="no spool"),
    stat("Listener's disk free", "Free share of the disk the records lie on.", "percentunit", f"min (bodylog_listener_disk_free_bytes{{{I}}} / bodylog_listener_disk_size_bytes{{{I}}})", steps=[(0.1, AMBER), (0.2, GREEN)], color=RED),
    stat("Listener", "Frames that the listener stored.", "cps", over("bodylog_listener_frames_total", I + ',result="stored"')),
    stat("Exporter behind", "Bytes of rows that the exporter has not read.", "bytes", f"max (bodylog_exporter_lag_bytes{{{I}}})", steps=[(1e6, AMBER), (1e8, RED)]),
    stat("Since last commit", "Age of the exporter's last checkpoint.", "s", f"max (time() - bodylog_exporter_last_commit_seconds{{{I}}})", steps=[(10, AMBER), (60, RED)]),
])

CAPTURE = Row("Router: capture", [
    graph("Records", "Records of exchanges: queued, acknowledged by the listener, lost.", "cps", (window("llm_router_bodylog_capture_frames_total", "instance, result"), "{{instance}} {{result}}")),
    graph("Lost, by reason", "`budget`: no memory; `spool_full`, `disk`: no room on disk; `meta`, `encode`: too large; `shutdown`: ended without a spool; `rejected`: refused by the listener.", "cps", (window("llm_router_bodylog_capture_dropped_total", "instance, reason"), "{{instance}} {{reason}}")),
    graph("Without bodies", "Records queued without bodies or headers for want of room: the step before losing them.", "cps", (window("llm_router_bodylog_capture_shed_total", "instance"), "{{instance}}")),
    graph(
        "Spool", "Bytes on disk that wait for the listener, and the most there may be.", "bytes",
        (f"llm_router_bodylog_capture_spool_bytes{{{I}}}", "{{instance}}"), (f"llm_router_bodylog_capture_spool_limit_bytes{{{I}}} > 0", "{{instance}} limit"), overrides=[dashed(".* limit")],
    ),
    graph(
        "Memory", "Bytes that records hold in memory, and the most they may.", "bytes",
        (f"llm_router_bodylog_capture_memory_bytes{{{I}}}", "{{instance}}"), (f"llm_router_bodylog_capture_memory_limit_bytes{{{I}}}", "{{instance}} limit"), overrides=[dashed(".* limit")],
    ),
    graph("Oldest unacknowledged", "How long the oldest record that is not acknowledged has waited.", "s", (f"llm_router_bodylog_capture_unacked_age_seconds{{{I}}}", "{{instance}}")),
    graph(
        "Acknowledgement", "From sending a record to its acknowledgement.", "s",
        *[(quantile(q, "llm_router_bodylog_capture_ack_seconds", I, "instance"), f"{{{{instance}}}} p{int(q * 100)}") for q in (0.5, 0.99)],
    ),
    states("Connected", "Whether a router is connected to its listener.", (f"llm_router_bodylog_capture_connected{{{I}}}", "{{instance}}"), words={1: "connected", 0: "not"}, colors={1: GREEN, 0: RED}),
    graph("Reconnects", "Connections to the listener tried after the first.", "cps", (window("llm_router_bodylog_capture_reconnects_total", "instance"), "{{instance}}")),
])

LISTENER = Row("Listener", [
    graph("Frames", "Frames by what became of them. `refused`: the sender sends it again; `lost`: of version 1 and not stored.", "cps", (window("bodylog_listener_frames_total", "proto, result"), "{{proto}} {{result}}")),
    graph("Bytes", "Bytes of the frames received.", "Bps", (window("bodylog_listener_bytes_total", "proto"), "{{proto}}"), stack=True),
    graph("Unreadable frames", "Frames that could not be read, by what is wrong with them, and frames whose description could not.", "cps", (window("bodylog_listener_frame_errors_total", "kind"), "{{kind}}"), (window("bodylog_listener_bad_meta_total", "instance"), "bad meta")),
    graph(
        "Commit", "Writing and syncing one batch, 99th percentile, by output. More than a second: the disk is slow.", "s",
        (quantile(0.99, "bodylog_listener_commit_seconds", I, "output"), "{{output}}"),
    ),
    graph(
        "Arrival to durable", "From a frame's arrival to both files being durable.", "s",
        *[(quantile(q, "bodylog_listener_ack_lag_seconds", I, "instance"), f"{{{{instance}}}} p{int(q * 100)}") for q in (0.5, 0.99)],
    ),
    graph("Frames in memory", "Bytes of frames that wait to be written.", "bytes", (f"bodylog_listener_queue_bytes{{{I}}}", "{{instance}}")),
    graph("Connections", "Senders connected.", "short", (f"bodylog_listener_connections{{{I}}}", "{{instance}}")),
    graph(
        "Losses and doubts", "Batches that could not be written, frames left out, sequences that never came, frames stored before.", "cps",
        (window("bodylog_listener_write_errors_total", "output"), "write error {{output}}"),
        (window("bodylog_listener_shed_total", "reason"), "shed {{reason}}"),
        (window("bodylog_listener_gaps_total", "instance"), "gaps"),
        (window("bodylog_listener_duplicates_total", "instance"), "duplicates"),
        (window("bodylog_listener_quarantine_dropped_total", "instance"), "beyond quarantine"),
        (window("bodylog_listener_spilled_total", "instance"), "spilled"),
    ),
    graph("Shapes of answers", "Responses read, by their shape. Many that fit none: an API that is not understood, and counts without tokens.", "cps", (window("bodylog_listener_extract_total", "shape"), "{{shape}}"), stack=True),
])

DISK = Row("Listener: disk", [
    graph(
        "Room", "Free bytes of the disk, and its size.", "bytes",
        (f"bodylog_listener_disk_free_bytes{{{I}}}", "{{instance}} free"), (f"bodylog_listener_disk_size_bytes{{{I}}}", "{{instance}} size"), overrides=[dashed(".* size")],
    ),
    graph("Days until full", "At the pace of the last six hours; no line while it does not fill. Retention deletes before it is full.", "d", (f"bodylog_listener_disk_free_bytes{{{I}}} / (-deriv(bodylog_listener_disk_free_bytes{{{I}}}[6h]) * 86400 > 0)", "{{instance}}")),
    graph("Files", "Files below the root directory, by class.", "short", (f"sum by (class) (bodylog_listener_files{{{I}}})", "{{class}}")),
    graph("Oldest file", "Age of the oldest file, by class: how far back records reach.", "s", (f"max by (class) (bodylog_listener_oldest_seconds{{{I}}})", "{{class}}")),
    graph(
        "Packing an hour", "How long it takes to compress a closed hour, and how often it failed.", "s",
        (quantile(0.95, "bodylog_listener_archive_seconds", I, "instance", "6h"), "{{instance}} p95"), (f"sum by (instance) (increase(bodylog_listener_archive_failures_total{{{I}}}[1h]))", "{{instance}} failures in an hour"),
    ),
    graph("Last record", "Time since a record was stored last.", "s", (f"time() - (bodylog_listener_last_record_seconds{{{I}}} > 0)", "{{instance}}")),
])

EXPORTER = Row("Exporter", [
    graph("Behind", "Bytes not read yet, about.", "bytes", (f"bodylog_exporter_lag_bytes{{{I}}}", "{{instance}}")),
    graph("Newest row", "Time since the newest row counted ended. Without traffic it grows; with bytes to read it is a lag.", "s", (f"time() - (bodylog_exporter_last_ts_seconds{{{I}}} > 0)", "{{instance}}")),
    graph("Last commit", "Age of the last checkpoint. It is written every two seconds.", "s", (f"time() - bodylog_exporter_last_commit_seconds{{{I}}}", "{{instance}}")),
    graph("Rows", "Rows read, read before, and unreadable by kind.", "cps", (window("bodylog_exporter_lines_total", "instance"), "read"), (window("bodylog_exporter_duplicates_total", "instance"), "counted before"), (window("bodylog_exporter_bad_lines_total", "kind"), "bad: {{kind}}")),
    graph("Files taken up anew", "Files replaced, cut or deleted, hours found compressed, starts without a checkpoint or from the older one.", "cps", (window("bodylog_exporter_file_resets_total", "cause"), "{{cause}}"), (window("bodylog_exporter_recovery_total", "instance"), "compressed"), (window("bodylog_exporter_cold_starts_total", "instance"), "cold start"), (window("bodylog_exporter_checkpoint_fallbacks_total", "instance"), "older checkpoint")),
    graph("Errors", "Checkpoints that could not be written, files that could not be read.", "cps", (window("bodylog_exporter_checkpoint_errors_total", "instance"), "checkpoint"), (window("bodylog_exporter_read_errors_total", "instance"), "read")),
    graph("Series", "The ten largest families of the page.", "short", (f"topk(10, max by (metric) (bodylog_exporter_series{{{I}}}))", "{{metric}}")),
    graph("Capped labels", "Rows whose label value had no place and became `other`.", "cps", (window("bodylog_exporter_capped_total", "label"), "{{label}}")),
    graph("Checkpoint", "Size of the checkpoint.", "bytes", (f"bodylog_exporter_checkpoint_bytes{{{I}}}", "{{instance}}")),
])

CLUSTER = Row("Exporter: what the cluster says", [
    states("API server", "Whether the cluster's API server answers for routes and pods. Without it rows are counted by what was known.", (f"bodylog_route_resolver_up{{{I}}}", "{{instance}}"), words={1: "answers", 0: "fails"}, colors={1: GREEN, 0: RED}),
    graph("Addresses that map", "Addresses of pods by which rows get route and service, and routes that can be polled.", "short", (f"bodylog_route_resolver_pods{{{I}}}", "{{instance}} addresses"), (f"bodylog_route_resolver_routes{{{I}}}", "{{instance}} routes")),
    graph("Answers that were none", "Answers of the API server that were not as they should be.", "cps", (window("bodylog_route_resolver_errors_total", "instance"), "{{instance}}")),
])

POLLS = Row("Exporter: what the routers say", [
    states("Answered", "Whether a router answered the last question about a route.", (f"min by (route, endpoint) (bodylog_exporter_poll_up{{{R}}})", "{{route}} {{endpoint}}"), words={1: "yes", 0: "no"}, colors={1: GREEN, 0: RED}),
    graph("Age of the answers", "Age of the oldest last answer of a route. They are asked every 15 seconds.", "s", (f"max by (route) (bodylog_exporter_poll_age_seconds{{{R}}})", "{{route}}")),
    graph("Rounds with an error", "Rounds of questions in which some call was not answered.", "cps", (over("openresty_poll_errors_total"), "errors")),
    graph("Active tier", "Priority of the tier in use, and its healthy peers. A lower tier than usual: the better one is down.", "short", (f"max by (route) (openresty_route_active_level{{{R}}})", "{{route}} tier"), (f"sum by (route) (openresty_route_healthy_peers{{{R}}})", "{{route}} healthy peers")),
    graph("Room of the tier", "Requests that the tier in use may have, and has.", "short", (f"sum by (route) (openresty_route_active_limit{{{R}}})", "{{route}} limit"), (f"sum by (route) (openresty_peer_active_conns{{{R}}})", "{{route}} in flight"), overrides=[dashed(".* limit")]),
    graph("Refusals", "Refusals as the routers count them; they survive a router's restart.", "reqps", (over("openresty_rejected_total", R, "route, reason"), "{{route}} {{reason}}")),
])

BOARD = board(
    "llm-bodylog",
    "Body-log pipeline",
    "Capture, delivery, storage and counting of exchanges. Made by deploy/grafana/source; the metrics are explained in docs/metrics.md.",
    [NOW, CAPTURE, LISTENER, DISK, EXPORTER, CLUSTER, POLLS],
    [
        variable("instance", "Instance", 'label_values(up{job=~"llm-router|bodylog-.*"}, instance)'),
        variable("route", "Route", "label_values(llm_router_limit, route)"),
    ],
    [annotation("Restarts", "changes(process_start_time_seconds[1m]) > 0", "{{instance}} restarted", BLUE)],
    ["body log"],
)
