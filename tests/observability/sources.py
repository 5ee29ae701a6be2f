"""What is under test, read from deploy/ and docs/: boards, rules, and every query in them."""

import dataclasses
import functools
import json
import pathlib
import re

import promql_parser
import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEPLOY = ROOT / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
BOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
METRICS = ROOT / "docs" / "metrics.md"
OPERATING = ROOT / "docs" / "operating.md"

# Series that are not ours, and whose.
FOREIGN = re.compile(r"up|vllm:.*|sglang:.*|llamacpp:.*")


@dataclasses.dataclass(frozen=True)
class Query:
    where: str
    expr: str


@functools.cache
def boards():
    return [json.loads(path.read_text()) for path in BOARDS]


@functools.cache
def rules(kind):
    """Every rule of a kind, "alert" or "record"."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


@functools.cache
def alerts():
    return {rule["alert"]: rule for rule in rules("alert")}


def panels(board):
    """Every panel but the rows, those inside closed rows included."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def concrete(expr, window):
    """A query as Grafana would send it with nothing chosen."""
    for variable, value in (("$__rate_interval", window), ("$route", ".*"), ("$model", ".*"), ("$peer", ".*"), ("$instance", ".*")):
        expr = expr.replace(variable, value)
    assert "$" not in expr, expr
    return expr


def board_queries(window):
    found = []
    for board in boards():
        for panel in panels(board):
            for target in panel["targets"]:
                found.append(Query(f"{board['title']} / {panel['title']} / {target['refId']}", concrete(target["expr"], window)))
        for note in board["annotations"]["list"]:
            found.append(Query(f"{board['title']} / annotation {note['name']}", concrete(note["expr"], window)))
    return found


def variables():
    """(where, metric selector, label) of each `label_values`."""
    for board in boards():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
                yield f"{board['title']} / ${variable['name']}", concrete(selector, "1m"), label


def recordings():
    return [Query(f"record {rule['record']}", rule["expr"]) for rule in rules("record")]


def operands():
    """An alert is silent when all is well, so what it compares is asked for: each side of each comparison."""
    found = []
    for name, rule in alerts().items():
        sides = sorted({str(side) for side in compared(promql_parser.parse(rule["expr"]))})
        found.extend(Query(f"alert {name}", side) for side in sides)
    return found


COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}


def compared(expr):
    if isinstance(expr, promql_parser.ParenExpr):
        yield from compared(expr.expr)
    elif isinstance(expr, promql_parser.BinaryExpr) and str(expr.op) in COMPARISONS:
        for side in (expr.lhs, expr.rhs):
            if not isinstance(side, promql_parser.NumberLiteral) and names(str(side)):
                yield side
    elif isinstance(expr, promql_parser.BinaryExpr):
        yield from compared(expr.lhs)
        yield from compared(expr.rhs)


@functools.cache
def names(expr):
    """The metrics that a query reads."""
    found = set()

    def look(node):
        if isinstance(node, promql_parser.VectorSelector):
            found.add(node.name)

    promql_parser.walk(promql_parser.parse(expr), look)
    return found


@functools.cache
def documented():
    """The names of docs/metrics.md with what Prometheus stores of each."""
    found = set()
    for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", METRICS.read_text(), re.MULTILINE):
        found.add(name)
        if kind == "histogram":
            found |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    return found


def anchors(path):
    """Where a link into a Markdown page may point."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
