"""What the dashboards are made of: panels, rows, variables, and the JSON that Grafana reads.

A board is data: a list of `Row`, each a title and panels; a panel is one function call that names what it shows, in
which unit, and by which queries. Placement, ids and everything that every panel has alike is added here.
"""

import dataclasses
import json

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
# What every query of a counter is taken over: four scrapes, at least.
OVER = "$__rate_interval"

GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "text"


@dataclasses.dataclass
class Query:
    expr: str
    legend: str = ""
    # "time_series", or "heatmap" for buckets.
    format: str = "time_series"


@dataclasses.dataclass
class Panel:
    kind: str
    title: str
    description: str
    unit: str
    queries: list
    width: int = 8
    height: int = 8
    options: dict = dataclasses.field(default_factory=dict)
    custom: dict = dataclasses.field(default_factory=dict)
    defaults: dict = dataclasses.field(default_factory=dict)
    overrides: list = dataclasses.field(default_factory=list)
    transformations: list = dataclasses.field(default_factory=list)

    def json(self, number, x, y):
        instant = self.kind in ("stat", "table", "bargauge")
        targets = []
        for place, query in enumerate(self.queries):
            target = {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "editorMode": "code",
                "format": "table" if self.kind == "table" else query.format,
                "instant": instant,
                "range": not instant,
            }
            targets.append(target)
        panel = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": targets,
            "fieldConfig": {
                "defaults": {"unit": self.unit, "custom": self.custom, **self.defaults},
                "overrides": self.overrides,
            },
            "options": self.options,
        }
        if self.transformations:
            panel["transformations"] = self.transformations
        return panel


@dataclasses.dataclass
class Row:
    title: str
    panels: list
    collapsed: bool = False


def thresholds(*steps, color=GREEN):
    """Steps of (from, color); below the first one `color` holds."""
    return {
        "mode": "absolute",
        "steps": [{"value": None, "color": color}, *({"value": at, "color": then} for at, then in steps)],
    }


def stat(title, description, unit, expr, width=3, steps=(), color=GREEN, **defaults):
    """One number of now, its past as a line behind it."""
    panel = Panel("stat", title, description, unit, [Query(expr)], width=width, height=4)
    panel.options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value",
        "wideLayout": True,
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
    }
    panel.defaults = {"thresholds": thresholds(*steps, color=color), "color": {"mode": "thresholds"}, **defaults}
    return panel


def graph(title, description, unit, *queries, width=8, height=8, stack=False, fill=10, overrides=(), **defaults):
    """Lines over time; a query is (expression, legend)."""
    panel = Panel("timeseries", title, description, unit, [Query(*query) for query in queries], width, height)
    panel.options = {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    panel.custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 40 if stack else fill,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
    }
    panel.defaults = {"color": {"mode": "palette-classic"}, "min": 0, **defaults}
    panel.overrides = list(overrides)
    return panel


def dashed(pattern):
    """Draws the series whose legend fits as a dashed line without fill: a limit beside what it limits."""
    return {
        "matcher": {"id": "byRegexp", "options": pattern},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "custom.lineWidth", "value": 2},
        ],
    }


def states(title, description, *queries, width=8, height=8, words=None, colors=None):
    """What was the case when: 0 and 1 as words on a time line."""
    words, colors = words or {0: "no", 1: "yes"}, colors or {0: GREEN, 1: RED}
    panel = Panel("state-timeline", title, description, "none", [Query(*query) for query in queries], width, height)
    panel.options = {
        "mergeValues": True,
        "showValue": "never",
        "alignValue": "left",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    panel.custom = {"fillOpacity": 80, "lineWidth": 0}
    mapping = {str(value): {"text": word, "color": colors[value], "index": at} for at, (value, word) in enumerate(words.items())}
    panel.defaults = {"mappings": [{"type": "value", "options": mapping}], "color": {"mode": "thresholds"}, "thresholds": thresholds()}
    return panel


def heatmap(title, description, unit, expr, width=8, height=8):
    """A histogram over time; classic buckets or native ones, whichever the server has."""
    panel = Panel("heatmap", title, description, unit, [Query(expr, "{{le}}", "heatmap")], width, height)
    panel.options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "reqps"},
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange", "reverse": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    panel.custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    return panel


def table(title, description, columns, width=24, height=8):
    """One line a label set. A column is (heading, unit, expression); every expression has the same labels."""
    panel = Panel("table", title, description, "short", [Query(expr) for _, _, expr in columns], width, height)
    panel.options = {"showHeader": True, "cellHeight": "sm", "frameIndex": 0}
    panel.custom = {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "inspect": False}
    letters = [chr(ord("A") + place) for place in range(len(columns))]
    names = {f"Value #{letter}" if len(columns) > 1 else "Value": head for letter, (head, _, _) in zip(letters, columns)}
    panel.overrides = [
        {"matcher": {"id": "byName", "options": head}, "properties": [{"id": "unit", "value": unit}]}
        for head, unit, _ in columns
    ]
    panel.transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": names}},
    ]
    return panel


def over(metric, selector="", by="", window=OVER):
    """The rate of a counter, summed over what is not named in `by`."""
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{braces(selector)}[{window}]))"


def quantile(q, metric, selector="", by="", window=OVER):
    """A quantile of a histogram that the server may have stored natively, or in classic buckets, or both."""
    native = f"sum by ({by}) (rate({metric}{braces(selector)}[{window}]))" if by else f"sum (rate({metric}{braces(selector)}[{window}]))"
    labels = f"le, {by}" if by else "le"
    classic = f"sum by ({labels}) (rate({metric}_bucket{braces(selector)}[{window}]))"
    return f"histogram_quantile({q}, {native}) or histogram_quantile({q}, {classic})"


def buckets(metric, selector="", window=OVER):
    """Rates of a histogram's buckets, native or classic."""
    native = f"sum (rate({metric}{braces(selector)}[{window}]))"
    return f"{native} or sum by (le) (rate({metric}_bucket{braces(selector)}[{window}]))"


def braces(selector):
    return f"{{{selector}}}" if selector else ""


def variable(name, label, query):
    """A choice of label values; nothing chosen is everything."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": f"variable-{name}", "qryType": 1},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }


def data_source():
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }


def annotation(name, expr, title, color):
    return {
        "name": name,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "datasource": SOURCE,
        "expr": expr,
        "titleFormat": title,
        "step": "15s",
        "useValueForTime": False,
    }


def board(uid, title, description, rows, variables, annotations, tags):
    """The whole dashboard. Panels fill a line from the left; one that does not fit begins the next."""
    panels, number, y = [], 1, 0
    for row in rows:
        head = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            "panels": [],
        }
        panels.append(head)
        number, y = number + 1, y + 1
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            (head["panels"] if row.collapsed else panels).append(panel.json(number, x, y))
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        # A row that is closed keeps its panels inside; they take no room.
        y = y + tallest if not row.collapsed else head["gridPos"]["y"] + 1
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["llm-router", *tags],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {"refresh_intervals": ["5s", "15s", "30s", "1m", "5m", "15m"]},
        "links": [
            {
                "title": "LLM router",
                "type": "dashboards",
                "tags": ["llm-router"],
                "asDropdown": False,
                "icon": "external link",
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {"list": annotations},
        "templating": {"list": [data_source(), *variables]},
        "panels": panels,
    }


def text(board):
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"
