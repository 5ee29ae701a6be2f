"""Rules by promtool: they are valid, and every alert fires when it should and is silent when it should be."""

import dataclasses
import json
import re
import subprocess

import pytest
import sources
import yaml

CASES = yaml.safe_load((sources.HERE / "alerts.yml").read_text())
PROMETHEUS = sources.DEPLOY / "prometheus"
SEVERITIES = {"critical", "warning", "info"}
# How often rules are evaluated. Cases that last for hours are less often, and still within the five minutes that a query looks
# back: a recorded series may be of the round before.
SHORT, LONG = "30s", "4m"
TEMPLATES = {"humanize", "humanizePercentage", "humanizeDuration"}


def promtool(*arguments, cwd=PROMETHEUS):
    return subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arguments", [("check", "config", "prometheus.yml"), ("check", "rules", *[f"rules/{path.name}" for path in sources.RULES])], ids=["config", "rules"])
def test_promtool_accepts(arguments):
    checked = promtool(*arguments)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not():
    assert set(CASES) == set(sources.alerts())
    for name, case in CASES.items():
        assert set(case) == {"fires", "silent"}, name


def test_alerts_fire_and_are_silent(tmp_path):
    """`fires` lists the labels an alert fires with; `silent` is the near miss."""
    files = []
    for interval in (SHORT, LONG):
        cases = [case for case in all_cases() if case.interval == interval]
        tests = [together(bunch) for bunch in bunches(cases)]
        files.append(tmp_path / f"{interval}.yml")
        files[-1].write_text(yaml.safe_dump({"rule_files": [str(path) for path in sources.RULES], "evaluation_interval": interval, "tests": tests}))
    tested = promtool("test", "rules", *map(str, files))
    assert tested.returncode == 0, tested.stdout + tested.stderr


@dataclasses.dataclass
class Case:
    alert: str
    given: dict
    expected: list
    # Every metric that may decide it.
    metrics: set

    @property
    def interval(self):
        return LONG if "h" in self.given["at"] else SHORT


def all_cases():
    recorded = {rule["record"]: sources.names(rule["expr"]) for rule in sources.rules("record")}

    def behind(names):
        """The scraped metrics behind names that may be recorded ones."""
        return set().union(*(behind(recorded[name]) if name in recorded else {name} for name in names))

    for name, kinds in CASES.items():
        rule = sources.alerts()[name]
        for kind, given in kinds.items():
            labels = [{"alertname": name, "alertstate": "firing", **rule["labels"], **given["labels"]}] if kind == "fires" else []
            yield Case(name, given, labels, behind(sources.names(rule["expr"])) | {series.split("{")[0] for series in given["series"]})


def bunches(cases):
    """Cases that have no metric in common share a test of promtool's: each test has a database of its own, which takes time."""
    found = []
    for case in cases:
        for bunch in found:
            if not any(case.metrics & other.metrics for other in bunch):
                bunch.append(case)
                break
        else:
            found.append([case])
    return found


def together(bunch):
    return {
        "name": ", ".join(case.alert for case in bunch),
        "interval": "30s",
        "input_series": [{"series": series, "values": values} for case in bunch for series, values in case.given["series"].items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}',
                "eval_time": case.given["at"],
                "exp_samples": [{"labels": f"ALERTS{{{selector(labels)}}}", "value": 1} for labels in case.expected],
            }
            for case in bunch
        ],
    }


def selector(labels):
    return ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))


@pytest.mark.parametrize("name", sources.alerts())
def test_an_alert_says_what_and_what_to_do(name):
    rule = sources.alerts()[name]
    assert rule["labels"]["severity"] in SEVERITIES
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == f"docs/operating.md#{name.lower()}"
    labels = CASES[name]["fires"]["labels"]
    text = notes["summary"] + notes["description"]
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= set(labels)
    assert set(re.findall(r"\$value \| (\w+)", text)) <= TEMPLATES
