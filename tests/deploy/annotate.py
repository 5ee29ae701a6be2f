"""deploy/examples/router.yaml and routes/every-option.yaml, made from docs/options.md, which is made from the router's code."""

import re
import textwrap

from engine import ROOT

WIDTH = 118
# Where the table has no value to show, one that says what it looks like.
SHAPES = {
    "peers": "", "metric": "p95", "q": ".95", "threshold": "30000", "min_turn": "1", "share": ".85", "tol": "1",
    "ttft_metrics": "", "tps_metrics": "", "session_prio_table": "", "reject_rules": "",
    "adaptive_cc_interval": "20s", "api_keys": "{sk-of-this-route: team-a}", "request_timeout": "10m",
    "pin_model": "false", "reject_rules_enabled": "true", "max_concurrency": "64", "slots": "64",
    "address": '"10.0.0.11:8000"', "url": "https://engine.example/base", "metrics_url": "http://10.0.0.11:9000/metrics",
    "probe": "/health", "api_key": "${ENGINE_KEY}", "gpu": "4090", "name": "node-a", "status": "413",
    "message": "at most 2 MB", "field": "input_bytes", "op": "gt", "value": "2000000", "all": "[{field: stream, op: absent}]",
    "any": "[{field: stream, op: absent}]", "peers_by_model": '{some-model: [{address: "10.0.0.12:8000"}]}',
}  # fmt: skip
# Defaults that name where the value comes from.
ELSEWHERE = {"server.request_timeout", "tps_window", "default_max", "health_probe_path", "reject_rules_status", "host:port"}
# The first item of a list is written under these keys, commented out, from a table of its own.
TABLES = {"ttft_metrics": "ttft_metrics[]", "tps_metrics": "ttft_metrics[]", "session_prio_table": "session_prio_table[]", "reject_rules": "reject_rules[]"}
HEAD = "# Every option of {}, with its default. Made from the option catalogue; docs/options.md is the same as tables.\n"


def tables():
    """`{section: [(key, value, default, meaning)]}`, by the first name of its heading."""
    found = {}
    for block in re.split(r"^#{2,3} ", (ROOT / "docs/options.md").read_text(), flags=re.MULTILINE)[1:]:
        section = re.match(r"`([^`]+)`", block).group(1)
        rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*) \|$", block.replace(r"\|", "¦"), re.MULTILINE)
        found[section] = [tuple(cell.replace("¦", "|") for cell in row) for row in rows]
    return found


def comment(text, indent):
    prefix = " " * indent + "# "
    return textwrap.fill(text, WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False, break_on_hyphens=False) + "\n"


def option(row, indent=0, off=False):
    """One option under its meaning. Without a default to write down, it is commented out and shows its shape."""
    key, kind, default, meaning = row
    written = re.fullmatch(r"`([^`]*)`", default)
    shown = bool(written) and written.group(1) not in ELSEWHERE
    if shown:
        value, said = written.group(1), f"{meaning} ({kind})"
    else:
        value, said = SHAPES[key], f"{meaning} ({kind}; default: {default})"
    mark = "" if shown and not off else "# "
    return comment(said, indent) + f"{' ' * indent}{mark}{key}: {value}".rstrip() + "\n"


def section(name, meaning, rows, indent=0, inner=""):
    head = comment(meaning, indent) + " " * indent + f"{name}:\n"
    return head + "".join(option(row, indent + 2) for row in rows if row[0] != "spool") + inner


def items(key, rows):
    """An item of a list, commented out: the list itself is empty by default."""
    said = "".join(comment(f"{row[0]}: {row[3]} ({row[1]}; default: {row[2]})", 2) for row in rows)
    body = ", ".join(f"{row[0]}: {SHAPES[row[0]]}" for row in rows if row[0] not in ("all", "any"))
    return said + f"# {key}:\n#   - {{{body}}}\n"


def main_file():
    found = tables()
    meanings = {key: meaning for key, _, _, meaning in found["router.yaml"]}
    spool = section("spool", dict((row[0], row[3]) for row in found["bodylog"])["spool"], found["bodylog.spool"], 2)
    parts = [section(name, meanings[name], found[name]) for name in ("server", "keys")]
    parts += [option(row) for row in found["router.yaml"] if row[0] in ("routes", "defaults")]
    parts += [section("bodylog", meanings["bodylog"], found["bodylog"], inner=spool)]
    assert {"server", "keys", "routes", "defaults", "bodylog"} == meanings.keys(), "a new section of the main file"
    return HEAD.format("`router.yaml`") + "\n" + "\n".join(parts)


def route_file():
    found = tables()
    rows = {row[0]: row for row in found["routes/<name>.yaml"]}
    peer = found["peers[]"]
    text = HEAD.format("a route file")
    text += "# All but `name`, `peers` and `peers_by_model` may also stand under `defaults` of router.yaml, for every route.\n\n"
    text += comment(f"{rows['name'][3]} ({rows['name'][1]}; default: {rows['name'][2]})", 0) + "# name: every-option\n"
    text += comment(f"{rows['peers'][3]} ({rows['peers'][1]})", 0) + "peers:\n"
    first, *rest = peer
    text += comment(f"{first[3]} ({first[1]})", 4).replace("    # ", "  - # ", 1).replace("    # ", "    # ")
    text += f"    address: {SHAPES['address']}\n" + "".join(option(row, 4) for row in rest)
    for key, row in rows.items():
        if key in ("name", "peers"):
            continue
        text += option(row) if key not in TABLES else option((*row[:2], f"`{row[2].strip('`')}`", row[3])) + items(key, found[TABLES[key]])
    return text


FILES = {"router.yaml": main_file, "routes/every-option.yaml": route_file}
