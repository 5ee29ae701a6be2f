"""The operating guide has an entry for whatever may send somebody there; the metric reference has every metric."""

import functools
import re
import shlex
import subprocess

import reference
import sources
from stack import BIN
from test_live import fetch, pages

SOURCE = sources.ROOT / "router"


@functools.cache
def codes():
    """Every `code` that an error body of the public port may carry, from the places that make them."""
    found = set()
    for path in SOURCE.glob("src/proxy/**/*.rs"):
        text = path.read_text()
        found |= set(re.findall(r'StatusCode::\w+,\s*"([a-z_]+)"', text))
        found |= set(re.findall(r'bad_request\(\s*"([a-z_]+)"', text))
        found |= set(re.findall(r'Self::new\(status, "([a-z_]+)"', text))
    refusals = (SOURCE / "core/src/admission/refusal.rs").read_text()
    return found | set(re.findall(r'Self::\w+(?:\(_\)| \{ \.\. \}) => "([a-z_]+)"', refusals))


def test_every_error_code_has_an_entry():
    known = codes()
    assert {"concurrency_limit", "ttft_limit", "no_healthy_peer", "upstream_error", "rejected_by_rule", "bad_path"} <= known
    missing = known - sources.anchors(sources.OPERATING)
    assert not missing, missing


def test_every_alert_has_an_entry():
    anchors = sources.anchors(sources.OPERATING)
    for name, rule in sources.alerts().items():
        page, anchor = rule["annotations"]["runbook_url"].split("#")
        assert page == "docs/operating.md" and anchor in anchors, name


def test_no_entry_is_about_nothing():
    headings = re.findall(r"^### (\w+)$", sources.OPERATING.read_text(), re.MULTILINE)
    assert len(headings) == len(set(headings))
    for heading in headings:
        assert heading in sources.alerts() or heading in codes(), heading


def test_links_within_the_guide_lead_somewhere():
    text = sources.OPERATING.read_text()
    for anchor in re.findall(r"\]\(#([\w-]+)\)", text):
        assert anchor in sources.anchors(sources.OPERATING), anchor


def test_every_metric_the_guide_names_exists():
    known = sources.documented() | {rule["record"] for rule in sources.rules("record")}
    for name in re.findall(r"`((?:llm_router|bodylog|proxy)_\w+|llm_router:\w+:\w+)", sources.OPERATING.read_text()):
        assert name in known, name


def commands():
    """Every command that the guide tells somebody to type, with something in the place of what it leaves open."""
    text = sources.OPERATING.read_text()
    spans = re.findall(r"`(llmctl [^`]+)`", text) + re.findall(r"^(llmctl [^#\n]+)", text, re.MULTILINE)
    for span in sorted({span.strip() for span in spans}):
        given = {"N": "5", "NAME": "rate-limit", "URL": "http://127.0.0.1:1"}
        yield span, [given.get(word, word) for word in shlex.split(span)[1:]]


def test_every_command_of_the_guide_can_be_typed():
    known = list(commands())
    assert len(known) > 15
    for span, arguments in known:
        asked = subprocess.run([BIN / "llmctl", *arguments, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
        assert asked.returncode == 0, f"{span}\n{asked.stderr}"


# What users of older versions and of the programs these follow may rely on: names and labels, in no order.
PROMISED = """
llm_router_requests_total route model peer code
llm_router_refusals_total route gate bucket
llm_router_ttft_seconds route
llm_router_inter_chunk_seconds route
llm_router_request_seconds route
llm_router_overhead_seconds route
llm_router_tokens_total route model owner kind
llm_router_in_flight route peer
llm_router_limit route model
llm_router_peer_healthy route peer
llm_router_peer_load route peer
llm_router_sessions route
llm_router_override_active route switch
llm_router_bodylog_capture_frames_total result
llm_router_bodylog_capture_dropped_total reason
llm_router_bodylog_capture_shed_total
llm_router_bodylog_capture_spool_bytes
llm_router_bodylog_capture_unacked_age_seconds
llm_router_bodylog_capture_ack_seconds
llm_router_bodylog_capture_reconnects_total
llm_router_config_last_reload_success
llm_router_build_info version
proxy_backend_busy route backend
proxy_backend_external route backend
proxy_backend_in_flight route backend
proxy_backend_load route backend
proxy_backend_slots route backend
proxy_backend_slots_reported route backend
proxy_backend_fresh route backend
proxy_backend_held route backend
proxy_backend_sample_age_seconds route backend
proxy_backend_idle_seconds route backend
proxy_backend_polls_total route backend result
proxy_selected_total route backend strategy reason
proxy_rejected_total route reason
proxy_waiting route
proxy_wait_seconds route
proxy_requests_total route code
proxy_ttfb_seconds route
proxy_request_seconds route
bodylog_listener_frames_total proto result
bodylog_listener_bytes_total proto
bodylog_listener_frame_errors_total kind
bodylog_listener_connections
bodylog_listener_queue_bytes
bodylog_listener_commit_seconds output
bodylog_listener_ack_lag_seconds
bodylog_listener_duplicates_total
bodylog_listener_gaps_total
bodylog_listener_write_errors_total output
bodylog_listener_shed_total reason
bodylog_listener_disk_free_bytes
bodylog_listener_files class
bodylog_listener_oldest_seconds class
bodylog_listener_archive_seconds
bodylog_listener_archive_failures_total
bodylog_listener_extract_total shape
bodylog_listener_last_record_seconds
bodylog_requests_total service route backend model status_class stream
bodylog_prompt_tokens_total service route backend model
bodylog_completion_tokens_total service route backend model
bodylog_cached_tokens_total service route backend model
bodylog_reasoning_tokens_total service route backend model
bodylog_total_tokens_total service route backend model
bodylog_req_bytes_total service route backend model
bodylog_resp_bytes_total service route backend model
bodylog_finish_reason_total service route backend model finish_reason
bodylog_rt_seconds service route backend model stream
bodylog_ttft_seconds service route backend model prompt_bucket
bodylog_output_tok_per_second service route backend model prompt_bucket
bodylog_overall_output_tok_per_second service route backend model
bodylog_decode_output_tok_per_second service route backend model
bodylog_tpot_seconds service route backend model
bodylog_rejects_total route status reason
bodylog_retries_total service route backend model
bodylog_truncated_total service route backend model cause
bodylog_usage_missing_total service route backend model
bodylog_router_overhead_seconds service route backend model
bodylog_exporter_lines_total
bodylog_exporter_offset_bytes
bodylog_exporter_last_ts_seconds
bodylog_exporter_recovery_total
bodylog_exporter_cold_starts_total
bodylog_exporter_file_resets_total cause
bodylog_exporter_series metric
bodylog_exporter_capped_total label
bodylog_exporter_poll_up route endpoint
bodylog_exporter_poll_age_seconds route
bodylog_service_replicas service route
bodylog_service_replicas_ready service route
bodylog_service_replicas_desired service route
bodylog_route_resolver_up
bodylog_route_resolver_pods
bodylog_route_resolver_routes
bodylog_route_resolver_errors_total
openresty_route_active_level service route
openresty_route_active_limit service route
openresty_route_healthy_peers service route
openresty_peer_active_conns service route peer name priority
openresty_peer_banned service route peer name priority
openresty_peer_max_concurrency service route peer name priority
openresty_tps_limiter_active service route
openresty_ttft_limiter_active service route
openresty_tps_ewma service route model
openresty_ttft_ewma_ms service route model
openresty_adaptive_cc service route model
openresty_adaptive_cc_min service route model
openresty_adaptive_cc_max service route model
openresty_adaptive_cc_conc service route model
openresty_adaptive_cc_rej service route model
openresty_rejected_total service route reason
openresty_poll_up
openresty_poll_last_success_seconds
openresty_poll_errors_total
"""


def test_every_promised_name_is_there_with_its_labels():
    rows = dict(re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]+) \|", sources.METRICS.read_text(), re.MULTILINE))
    for line in PROMISED.split("\n"):
        name, *labels = line.split() or [None]
        if name:
            assert name in rows, name
            assert set(re.findall(r"`(\w+)`", rows[name])) == set(labels), name


def test_counters_and_histograms_exist_before_the_first_request(lively):
    """A counter that appears with its first event hides that event from a rate."""
    for page in ("router", "router's peers", "listener"):
        seen = {family.name: family.type for family in reference.families(lively.untouched[page])}
        for family in reference.families(fetch(pages(lively)[page], "text/plain")):
            if family.type in ("counter", "histogram"):
                assert family.name in seen, family.name


def test_the_programs_show_what_the_metric_reference_declares(lively):
    for page, url in pages(lively).items():
        shown = {(family.name, family.type, tuple(family.labels), family.help) for family in reference.families(fetch(url, "text/plain"))}
        assert shown == {(name, kind, tuple(labels), help_) for name, kind, labels, help_ in reference.documented(page)}, page
