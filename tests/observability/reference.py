"""docs/metrics.md, made from what the programs show: name, type, labels and meaning are theirs."""

import re

from prometheus_client.parser import text_string_to_metric_families

HEAD = """# Metrics

Made from the pages of running programs (`UPDATE_DOCS=1 tests/observability/run`); a test keeps the two equal. Each page is Prometheus text, OpenMetrics
or protobuf, by `Accept`; histograms have native buckets in protobuf and classic ones in all three. Series exist from the moment their route, peer
or file is known, at zero, and go with it. What the exporter counts from rows begins with the first row.
"""

SECTIONS = {
    "router": ("Router", "`/metrics` on the admin port; no token is asked for."),
    "router's peers": ("Router, peers as placement sees them", "`/proxy/metrics` on the public port; wants a key where any key exists, and shows the routes that the key opens and those that are open."),
    "listener": ("bodylog-listener", "`/metrics` on the HTTP port."),
    "exporter": ("bodylog-exporter", "`/metrics`. `openresty_` is `--poll-prefix`: what the routers say of themselves, under the names of llm-openresty. With several routers those have a label `router`. `bodylog_service_` and `bodylog_route_resolver_` are there in a cluster."),
}

UNITS = [
    (r"_timestamp_seconds$|_(?:last_ts|last_commit|last_record|last_success|start_time)_seconds$", "Unix time, s"),
    (r"_tok_per_second$|_tps_(?:ewma|threshold)$|openresty_tps_ewma$", "tokens/s"),
    (r"_seconds(?:_total)?$", "s"),
    (r"_ms$", "ms"),
    (r"_bytes(?:_limit)?(?:_total)?$", "bytes"),
    (r"_tokens(?:_total)?$|_tokens_total$", "tokens"),
    (r"_(?:healthy|fresh|held|success|valid|active|connected|tripped|has_signal|up|banned|key_file_status|info)$", "0 or 1"),
]



def unit(name):
    return next((unit for pattern, unit in UNITS if re.search(pattern, name)), "count")


def page(urls):
    from test_live import fetch

    parts = [HEAD]
    for key, (title, where) in SECTIONS.items():
        parts.append(f"\n## {title}\n\n{where}\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n")
        for family in sorted(families(fetch(urls[key], "text/plain")), key=lambda family: family.name):
            labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
            parts.append(f"| `{family.name}` | {family.type} | {labels} | {unit(family.name)} | {family.help} |\n")
    return "".join(parts)


class Family:
    def __init__(self, name, kind, help_, labels):
        self.name, self.type, self.help, self.labels = name, kind, help_, labels


def families(text):
    """Families of a 0.0.4 page: the names are those that Prometheus stores."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    labels = {name: [] for name in kinds}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name if sample.name in kinds else re.sub(r"_(bucket|count|sum)$", "", sample.name)
            for label in sample.labels:
                if label != "le" and label not in labels[name]:
                    labels[name].append(label)
    for name, kind in kinds.items():
        help_ = helps[name].replace("|", "\\|").replace("<", "&lt;")
        yield Family(name, kind, help_, labels[name])
