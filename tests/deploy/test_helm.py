"""deploy/helm: rendered by Helm itself, valid for Kubernetes, accepted by the router, and the same as deploy/kubernetes."""

import json
import os
import pathlib
import re
import tomllib

import pytest
import yaml

from engine import BIN, ROOT
from test_files import TOOLS, accepted, run
from test_kubernetes import MANIFESTS, documents, rule_groups

CHART = ROOT / "deploy/helm/llm-router"
HELM = pathlib.Path(os.environ.get("LLM_ROUTER_TEST_HELM", ROOT / "target/clients/helm"))
HASHED = "sha256:" + "0" * 64 + ":team-a"

# Three ways to install it: as it comes, everything on, and the router alone.
SETS = {
    "default": {},
    "everything": {
        "image": {"repository": "images.example/llm", "tag": "0.1.0-rc1", "pullSecrets": [{"name": "pull"}]},
        "router": {
            "replicas": 5,
            "drain": {"delaySeconds": 10, "timeoutSeconds": 3600},
            "spool": {"size": "20Gi", "maxBytes": "16g", "storageClass": "fast"},
            "service": {"type": "LoadBalancer", "port": 80, "annotations": {"example/internal": "true"}},
            "topologySpread": {"enabled": True, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
            "podAnnotations": {"a": "b"},
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "cpu", "operator": "Exists"}],
            "priorityClassName": "system-cluster-critical",
            "extraEnv": [{"name": "RUST_LOG", "value": "debug"}],
        },
        "routes": {"chat": "# as text\npeers: 'vllm:8000'\n", "code": {"peers": [{"address": "code:8000"}], "full_policy": "wait"}},
        "keys": {"lines": [HASHED]},
        "monitoring": {
            "serviceMonitors": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "runbookBase": "https://docs.example/llm-router/"},
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "LLM"}},
        },
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public", "namespace": "gateways"}], "hostnames": ["llm.example"]},
    },
    "alone": {
        "bodylog": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "router": {"replicas": 1, "podDisruptionBudget": {"enabled": False}, "topologySpread": {"enabled": False}},
        "keys": {"existingSecret": "ours"},
    },
}
# Not of Kubernetes itself, so its schema does not know them.
FOREIGN = ("monitoring.coreos.com/", "gateway.networking.k8s.io/")


def helm(*arguments):
    return run(HELM / "helm", *arguments)


def render(tmp_path, values, release="llm-router", *more):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return helm("template", release, CHART, "--namespace", "llm-router", "-f", file, *more)


def rendered(tmp_path, values, release="llm-router", *more):
    return [d for d in yaml.safe_load_all(accepted(render(tmp_path, values, release, *more))) if d]


def find(objects, kind, name):
    return next(d for d in objects if d["kind"] == kind and d["metadata"]["name"] == name)


def test_the_chart_passes_helms_own_check():
    assert "0 chart(s) failed" in accepted(helm("lint", "--strict", CHART))


@pytest.mark.parametrize("name", SETS)
def test_what_it_renders_is_strictly_valid(tmp_path, name):
    for number, document in enumerate(rendered(tmp_path, SETS[name])):
        if not document["apiVersion"].startswith(FOREIGN):
            file = tmp_path / f"{number}.yaml"
            file.write_text(yaml.safe_dump(document))
            assert "passed" in accepted(run(TOOLS / "kubernetes-validate", "--strict", file)), document["kind"]


@pytest.mark.parametrize("name", SETS)
def test_the_router_accepts_its_configuration(tmp_path, name):
    objects = rendered(tmp_path, SETS[name])
    (tmp_path / "routes").mkdir()
    for file, text in find(objects, "ConfigMap", "llm-router-routes")["data"].items():
        (tmp_path / "routes" / file).write_text(text)
    main = find(objects, "ConfigMap", "llm-router-config")["data"]["router.yaml"]
    (tmp_path / "router.yaml").write_text(main.replace("/etc/llm-router/routes", "routes"))
    accepted(run(BIN / "router", "--check", "--config", tmp_path / "router.yaml"))


def plain(value):
    """Without what only a chart adds: labels of the release, and the default pull policy."""
    if isinstance(value, dict):
        dropped = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}
        return {k: plain(v) for k, v in value.items() if k not in dropped and (k, v) != ("imagePullPolicy", "IfNotPresent")}
    return [plain(each) for each in value] if isinstance(value, list) else value


def test_with_its_defaults_it_is_what_the_plain_manifests_are(tmp_path):
    objects = rendered(tmp_path, {}, "llm-router", "--set", "bodylog.nameOverride=bodylog")
    ours = {(d["kind"], d["metadata"]["name"]): plain(d) for d in objects}
    theirs = {(d["kind"], d["metadata"]["name"]): d for d in documents(*MANIFESTS.glob("*.yaml")) if d["kind"] not in ("Namespace", "Kustomization")}
    cluster_wide = {"ClusterRole", "ClusterRoleBinding"}
    assert {key for key in ours if key[0] not in cluster_wide} == {key for key in theirs if key[0] not in cluster_wide}
    for key, expected in theirs.items():
        if key[0] == "ClusterRole":
            assert find(objects, "ClusterRole", "llm-router-bodylog-exporter")["rules"] == expected["rules"]
        elif key[0] == "ConfigMap":
            found, expected = ({f: yaml.safe_load(text) for f, text in d["data"].items()} for d in (ours[key], expected))
            assert found == expected, key
        elif key[0] != "ClusterRoleBinding":
            for object in (ours[key], expected):
                # Labels of objects are for people; selectors, which are compared, are for the cluster.
                object["metadata"].pop("labels", None)
            expected.get("spec", {}).get("template", {}).get("spec", {}).pop("terminationGracePeriodSeconds", None)
            ours[key].get("spec", {}).get("template", {}).get("spec", {}).pop("terminationGracePeriodSeconds", None)
            assert ours[key] == expected, key


def test_a_pod_lives_longer_than_the_longest_stream(tmp_path):
    objects = rendered(tmp_path, SETS["everything"])
    main = yaml.safe_load(find(objects, "ConfigMap", "llm-router-config")["data"]["router.yaml"])["server"]
    assert (main["drain_delay"], main["drain_timeout"]) == ("10s", "3600s")
    pod = find(objects, "StatefulSet", "llm-router")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 10 + 3600 + 10


def test_the_exporter_asks_each_router(tmp_path):
    objects = rendered(tmp_path, SETS["everything"], "prod")
    pods = find(objects, "StatefulSet", "prod-llm-router-bodylog")["spec"]["template"]["spec"]["containers"]
    (value,) = [e["value"] for c in pods for e in c["env"] if e["name"] == "BODYLOG_EXPORTER_ROUTER"]
    assert value.split(",") == [f"http://prod-llm-router-{n}.prod-llm-router-pods:8090" for n in range(5)]
    assert find(objects, "Service", "prod-llm-router-pods") and find(objects, "StatefulSet", "prod-llm-router")["spec"]["replicas"] == 5


def test_rules_and_dashboards_are_those_of_the_stack_with_links_to_the_runbook(tmp_path):
    objects = rendered(tmp_path, SETS["everything"])
    groups = find(objects, "PrometheusRule", "llm-router")["spec"]["groups"]
    links = [rule["annotations"].pop("runbook_url") for group in groups for rule in group["rules"] if "alert" in rule]
    assert links and all(re.fullmatch(r"https://docs\.example/llm-router/docs/operating\.md#\w+", link) for link in links)
    expected = rule_groups()
    for rule in (rule for group in expected for rule in group["rules"] if "alert" in rule):
        del rule["annotations"]["runbook_url"]
    assert groups == expected
    for path in (ROOT / "deploy/grafana/dashboards").glob("*.json"):
        board = find(objects, "ConfigMap", f"llm-router-{path.stem}")
        assert json.loads(board["data"][path.name]) == json.loads(path.read_text())
        assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    jobs = {m["spec"]["endpoints"][0]["relabelings"][0]["replacement"] for m in objects if m["kind"] == "ServiceMonitor"}
    assert jobs == {"llm-router", "bodylog-listener", "bodylog-exporter"}


def test_a_secret_is_made_only_from_given_lines(tmp_path):
    made = [d for d in rendered(tmp_path, SETS["everything"]) if d["kind"] == "Secret"]
    assert [d["stringData"]["keys"].strip() for d in made] == [HASHED]
    alone = rendered(tmp_path, SETS["alone"])
    assert not [d for d in alone if d["kind"] == "Secret"]
    volumes = find(alone, "StatefulSet", "llm-router")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "keys", "secret": {"secretName": "ours", "defaultMode": 0o440}} in volumes
    assert {d["kind"] for d in alone} == {"ConfigMap", "StatefulSet", "Service"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"router": {"replica": 3}}, "replica"),
        ({"router": {"replicas": 0}}, "replicas"),
        ({"bodylog": {"storage": {"size": "much"}}}, "size"),
        ({"router": {"config": {"server": {"drain_delay": "1s"}}}}, "the chart sets drain_delay"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs: name the Gateway"),
        ({"keys": {"existingSecret": "a", "lines": ["k:o"]}}, "keys: set either existingSecret or lines"),
    ],
)
def test_a_wrong_value_is_refused_by_name(tmp_path, values, said):
    refused = render(tmp_path, values)
    assert refused.returncode != 0 and said in refused.stderr


def test_the_packaged_chart_holds_its_rules_and_has_the_version_of_the_programs(tmp_path):
    accepted(helm("package", CHART, "--destination", tmp_path))
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    package = tmp_path / f"llm-router-{version}.tgz"
    accepted(run("tar", "-xzf", package, "-C", tmp_path))
    assert not list((tmp_path / "llm-router/files").rglob("*.md"))
    assert {p.name for p in (tmp_path / "llm-router/files/rules").iterdir()} == {p.name for p in (ROOT / "deploy/prometheus/rules").iterdir()}


def test_kustomize_builds_the_plain_manifests():
    built = [d for d in yaml.safe_load_all(accepted(run(HELM / "kubectl", "kustomize", MANIFESTS))) if d]
    expected = [d for d in documents(*MANIFESTS.glob("*.yaml")) if d["kind"] != "Kustomization"]
    key = lambda d: (d["kind"], d["metadata"]["name"])  # noqa: E731
    assert sorted(map(key, built)) == sorted(map(key, expected))
    monitoring = accepted(run(HELM / "kubectl", "kustomize", MANIFESTS / "monitoring"))
    assert {d["kind"] for d in yaml.safe_load_all(monitoring)} == {"ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/examples/autoscaling").glob("*.yaml")), ids=lambda file: file.name)
def test_autoscaling_asks_for_metrics_that_there_are(file):
    pages = (ROOT / "docs/metrics.md").read_text()
    for name in set(re.findall(r"\bllm_router_(?:pool_in_flight|waiting|[a-z_]+)(?=\{)", file.read_text())):
        assert f"`{name}`" in pages, name
