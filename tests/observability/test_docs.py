"""The operating guide has an entry for whatever may send somebody there; the metric reference has every metric."""

import functools
import os
import re

import reference
import sources
from test_live import pages

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


def test_the_metric_reference_is_what_the_programs_show(lively):
    made = reference.page(pages(lively))
    if os.environ.get("UPDATE_DOCS"):
        sources.METRICS.write_text(made)
    assert sources.METRICS.read_text() == made, "UPDATE_DOCS=1 tests/observability/run writes docs/metrics.md"
