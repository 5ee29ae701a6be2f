"""Families of the programs' pages, and what docs/metrics.md says of them."""

import re

import sources
from prometheus_client.parser import text_string_to_metric_families

# The headings of docs/metrics.md, by page.
SECTIONS = {"router": "Router", "router's peers": "Router, peers as placement sees them", "listener": "bodylog-listener", "exporter": "bodylog-exporter"}


def documented(page):
    """Name, type, labels and help of each row below the heading of a page."""
    section = sources.METRICS.read_text().split(f"\n## {SECTIONS[page]}\n")[1].split("\n## ")[0]
    for name, kind, labels, help_ in re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| [^|]+ \| (.*) \|$", section, re.MULTILINE):
        yield name, kind, re.findall(r"`(\w+)`", labels), help_


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
