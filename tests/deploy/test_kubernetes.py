"""deploy/kubernetes: strictly valid, and true to the files it repeats."""

import os
import re

import pytest
import yaml

from engine import BIN, ROOT
from test_files import TOOLS, accepted, run

MANIFESTS = ROOT / "deploy/kubernetes"
RULES = MANIFESTS / "monitoring/prometheus-rule.yaml"
CORE = sorted(path for path in MANIFESTS.glob("*.yaml*") if path.name != "kustomization.yaml") + [ROOT / "deploy/examples/single-pod.yaml"]


def documents(*paths):
    return [document for path in paths for document in yaml.safe_load_all(path.read_text())]


def find(kind, name):
    return next(d for d in documents(*CORE) if d["kind"] == kind and d["metadata"]["name"] == name)


def pods():
    for document in documents(*CORE):
        spec = document.get("spec", {})
        if document["kind"] == "Pod":
            yield document["metadata"]["name"], spec
        elif "template" in spec:
            yield document["metadata"]["name"], spec["template"]["spec"]


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_a_manifest_is_strictly_valid(path):
    assert "passed" in accepted(run(TOOLS / "kubernetes-validate", "--strict", path))


def test_a_misspelt_field_would_be_found(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((MANIFESTS / "router.yaml").read_text().replace("readinessProbe", "readynessProbe"))
    assert run(TOOLS / "kubernetes-validate", "--strict", wrong).returncode != 0


@pytest.mark.parametrize(("name", "pod"), list(pods()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_pod_may_do_little_and_writes_where_a_volume_is(name, pod):
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for d in documents(*CORE) for claim in d.get("spec", {}).get("volumeClaimTemplates", [])}
    for container in pod["containers"]:
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] and not locked["allowPrivilegeEscalation"]
        assert locked["capabilities"]["drop"] == ["ALL"]
        for mount in container.get("volumeMounts", []):
            # A file mounted with subPath never changes: keys and routes would be those of the start for ever.
            assert mount["name"] in volumes and "subPath" not in mount, name


def test_what_the_config_maps_hold_is_what_the_router_accepts(tmp_path):
    main = find("ConfigMap", "llm-router-config")["data"]["router.yaml"]
    (tmp_path / "routes").mkdir()
    for name, text in find("ConfigMap", "llm-router-routes")["data"].items():
        (tmp_path / "routes" / name).write_text(text)
    (tmp_path / "router.yaml").write_text(main.replace("/etc/llm-router/routes", "routes"))
    accepted(run(BIN / "router", "--check", "--config", tmp_path / "router.yaml"))
    accepted(run(BIN / "llmctl", "route", "check", "--strict", tmp_path))


def test_a_pod_lives_longer_than_the_longest_stream():
    main = yaml.safe_load(find("ConfigMap", "llm-router-config")["data"]["router.yaml"])["server"]
    seconds = sum(int(main[key].removesuffix("s")) for key in ("drain_delay", "drain_timeout"))
    pod = find("StatefulSet", "llm-router")["spec"]["template"]["spec"]
    records = 10
    assert pod["terminationGracePeriodSeconds"] >= seconds + records
    compose = yaml.safe_load((ROOT / "deploy/docker-compose.yml").read_text())
    assert int(compose["services"]["router"]["stop_grace_period"].removesuffix("s")) >= seconds + records
    unit = (ROOT / "deploy/systemd/llm-router.service").read_text()
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE).group(1)) >= seconds + records


def test_names_meet_across_the_manifests():
    names = {(d["kind"], d["metadata"]["name"]) for d in documents(*CORE)}
    replicas = find("StatefulSet", "llm-router")["spec"]["replicas"]
    exporter = next(c for c in find("StatefulSet", "bodylog")["spec"]["template"]["spec"]["containers"] if c["name"] == "exporter")
    polled = next(e["value"] for e in exporter["env"] if e["name"] == "BODYLOG_EXPORTER_ROUTER").split(",")
    assert polled == [f"http://llm-router-{n}.llm-router-pods:8090" for n in range(replicas)]
    for kind, name in [("Service", "llm-router-pods"), ("Service", "bodylog-listener"), ("Service", "bodylog-exporter")]:
        assert (kind, name) in names
    labels = [d["metadata"]["labels"] for d in documents(*CORE) if d["kind"] == "Service"]
    jobs = {job["job_name"] for job in yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]}
    for monitor in documents(MANIFESTS / "monitoring/service-monitors.yaml"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert sum(wanted <= label.items() for label in labels) == 1, monitor["metadata"]["name"]
        assert monitor["metadata"]["name"] in jobs, "rules and dashboards go by the job"


def test_the_account_of_the_exporter_may_read_what_it_asks_for_and_no_more():
    pod = find("StatefulSet", "bodylog")["spec"]["template"]["spec"]
    account = find("ServiceAccount", pod["serviceAccountName"])["metadata"]
    (binding,) = [d for d in documents(*CORE) if d["kind"] == "ClusterRoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}]
    rules = find("ClusterRole", binding["roleRef"]["name"])["rules"]
    allowed = {(group, resource): set(rule["verbs"]) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]}
    assert set().union(*allowed.values()) == {"get", "list", "watch"}
    options = accepted(run(BIN / "bodylog-exporter", "--help"))
    group, plural = (re.search(rf"--modelroute-{part} .*?\[default: (\S+)\]", options, re.DOTALL).group(1) for part in ("group", "plural"))
    assert allowed[group, plural] == allowed["discovery.k8s.io", "endpointslices"] == {"list", "watch"}
    assert not {resource for _, resource in allowed} & {"secrets", "configmaps", "*"}
    # The token is where the exporter looks for it, and nowhere else.
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    mounts = {c["name"]: [m["name"] for m in c["volumeMounts"] if m["mountPath"] == place] for c in pod["containers"]}
    assert mounts == {"listener": [], "exporter": ["account"]}
    (volume,) = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "account"]
    files = [source["serviceAccountToken"]["path"] for source in volume["sources"] if "serviceAccountToken" in source]
    files += [item["path"] for source in volume["sources"] for kind in ("configMap", "downwardAPI") for item in source.get(kind, {}).get("items", [])]
    assert sorted(files) == ["ca.crt", "namespace", "token"]


def rule_groups():
    return [group for path in sorted((ROOT / "deploy/prometheus/rules").glob("*.yml")) for group in yaml.safe_load(path.read_text())["groups"]]


def test_the_prometheus_rule_is_the_rules_of_the_stack():
    groups = rule_groups()
    assert groups
    if os.environ.get("UPDATE_DOCS"):
        rule = {
            "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
            "metadata": {"name": "llm-router", "namespace": "llm-router"}, "spec": {"groups": groups},
        }  # fmt: skip
        head = "# For the Prometheus operator: deploy/prometheus/rules in one object. Written by tests/deploy with UPDATE_DOCS=1.\n"
        RULES.write_text(head + yaml.safe_dump(rule, sort_keys=False, width=118, allow_unicode=True))
    (rule,) = documents(RULES)
    assert rule["spec"]["groups"] == groups, "UPDATE_DOCS=1 writes it anew"
