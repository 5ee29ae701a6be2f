"""Against the real programs under traffic: every page is strict, every query returns data, in both ways of scraping."""

import math
import subprocess
import time
import urllib.request

import pytest
import sources
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from stack import until
from world import KEY, WINDOW

ALLOWED = yaml.safe_load((sources.HERE / "allowed.yml").read_text())
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# A name that llm-openresty's dashboards know.
OLD_NAMES = {"openresty_ttft_ewma_ms metric names should not contain abbreviated units"}


def pages(lively):
    return {
        "router": f"{lively.admin}/metrics",
        "router's peers": f"{lively.url}/proxy/metrics",
        "listener": f"{lively.listener_url}/metrics",
        "exporter": f"{lively.exporter_url}/metrics",
    }


def fetch(url, accept):
    request = urllib.request.Request(url, headers={"accept": accept, "authorization": f"Bearer {KEY}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        return reply.read().decode()


def test_every_page_is_strict_openmetrics(lively):
    for name, url in pages(lively).items():
        text = fetch(url, OPENMETRICS)
        families = list(text_string_to_metric_families(text))
        assert len(families) > 10, name
        for family in families:
            assert family.documentation, f"{name}: {family.name} has no help"


def test_every_text_page_passes_promtool(lively):
    for name, url in pages(lively).items():
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=fetch(url, "text/plain"), text=True, capture_output=True, timeout=30, check=False
        )
        said = {line for line in (checked.stdout + checked.stderr).splitlines() if line}
        assert said <= OLD_NAMES, f"{name}: {said}"


def test_every_target_is_up_in_both_ways_of_scraping(lively):
    jobs = {"llm-router", "bodylog-listener", "bodylog-exporter", "llm-engines", "prometheus"}
    for server in lively.servers:
        up = {}

        # One scrape may be cut on a busy machine.
        def all_up(server=server, up=up):
            up.update((series["metric"]["job"], series["value"][1]) for series in server.ask("query", query="min by (job) (up)")["result"])
            return set(up.values()) == {"1"}

        until(lambda up=up: f"every target to be up: {up}", all_up)
        assert set(up) == jobs


def test_histograms_are_stored_as_the_server_takes_them(lively):
    classic, native = lively.servers
    assert classic.ask("query", query="llm_router_ttft_seconds_bucket")["result"]
    assert not classic.ask("query", query="llm_router_ttft_seconds")["result"]
    assert not native.ask("query", query="llm_router_ttft_seconds_bucket")["result"]
    for name in ("llm_router_ttft_seconds", "bodylog_ttft_seconds", "bodylog_listener_commit_seconds"):
        assert any("histogram" in series for series in native.ask("query", query=name)["result"]), name


def numbers(series):
    for _, value in series.get("values", []):
        yield float(value)
    for _, histogram in series.get("histograms", []):
        yield float(histogram["sum"])


def is_silent(server, query):
    """Whether a query has no finite number in the last twenty seconds."""
    series = server.range(query.expr, 20)
    return not any(math.isfinite(number) for one in series for number in numbers(one))


@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
@pytest.mark.parametrize("kind", ["boards", "recordings", "alerts"])
def test_every_query_returns_a_finite_series(lively, native, kind):
    queries = {
        "boards": lambda: sources.board_queries(WINDOW),
        "recordings": sources.recordings,
        "alerts": sources.operands,
    }[kind]()
    assert len(queries) > 10
    server = lively.servers[int(native)]
    missing = [query for query in queries if query.where not in ALLOWED]

    # A rate needs two turns of the same length within its window: on a slow machine they come later than the question.
    def all_spoke():
        missing[:] = [query for query in missing if is_silent(server, query)]
        return not missing

    until(lambda: "\n".join(f"{query.where}: {query.expr}" for query in missing), all_spoke)


def test_every_variable_has_values(lively):
    for server in lively.servers:
        for where, selector, label in sources.variables():
            values = server.ask(f"label/{label}/values", **{"match[]": selector})
            assert len(values) > 1, where


def test_every_rule_evaluates_without_an_error(lively):
    for server in lively.servers:
        groups = server.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) == len(sources.rules("alert")) + len(sources.rules("record"))
        broken = [rule["name"] for rule in rules if rule["health"] != "ok"]
        assert not broken


def test_alerts_that_are_awake_read_well(lively):
    """A template that cannot be filled in is a text about itself."""
    alerts = until(
        "an alert: a route refuses most of its requests here", lambda: [alert for server in lively.servers for alert in server.ask("alerts")["alerts"]]
    )
    for alert in alerts:
        for text in alert["annotations"].values():
            assert "error expanding" not in text and "<no value>" not in text, text


def test_every_allowed_silence_is_still_a_query(lively):
    known = {query.where for query in sources.board_queries(WINDOW)}
    assert set(ALLOWED) <= known


def test_a_saturated_gate_is_named_with_its_number(lively):
    """The board's first question: which gate, which number, which peer."""
    for server in lively.servers:
        # Which of the two refuses more, and first, is a matter of how quick the machine is.
        def gates(server=server):
            refused = server.ask("query", query="llm_router:refusals:ratio_rate5m{route='narrow'} > 0")["result"]
            return {each["metric"]["gate"] for each in refused}

        until("both gates of the narrow route", lambda: gates() >= {"concurrency", "rule"})
        assert gates() <= {"concurrency", "rule"}
        until("a scrape while the slot is taken", lambda server=server: server.ask("query", query="max_over_time(llm_router:pool_used:ratio{route='narrow'}[1m]) >= 1")["result"])
