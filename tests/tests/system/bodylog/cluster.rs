//! The exporter with a cluster: an API server that holds a few objects.

use std::fs;
use std::io::Write;

use system_tests::tls::Authority;

use super::api_server::{ApiServer, Fault, ROUTES, slices};
use super::*;

/// Rows of one hour. Sequences increase by themselves.
struct Rows {
    store: TempDir,
    seq: u64,
}

impl Rows {
    fn new() -> Self {
        let store = directory();
        fs::create_dir_all(store.path().join("details/2026-01-02")).unwrap();
        Self { store, seq: 0 }
    }

    /// Appends a row with this backend, and with this route unless it is empty.
    fn append(&mut self, backend: &str, route: &str) {
        self.seq += 1;
        let row = json!({
            "v": 2, "ts": "2026-01-02T03:00:00.000Z", "pid": "p", "epoch": 1, "seq": self.seq,
            "backend": backend, "route": route, "model": "m", "status": 200, "rt": 0.5,
        });
        let path = self.store.path().join("details/2026-01-02/03.jsonl");
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(format!("{row}\n").as_bytes()).unwrap();
    }

    /// An exporter of these rows that polls this API server at short intervals.
    async fn exporter(&self, api: &ApiServer) -> Exporter {
        Exporter::start(
            exporter_over(self.store.path())
                .option("--kubernetes", &api.url())
                .option("--route-discovery-interval", "1"),
        )
        .await
    }
}

fn route(name: &str, service: &str) -> Value {
    json!({
        "metadata": {"namespace": "routing"},
        "spec": {"nginx": {"route": name, "service": "edge"}, "discovery": {"service": service}},
    })
}

/// A slice of the service. An endpoint is `address`, or `address!` when it is not ready. The first
/// one is the pod `pod-0`.
fn slice(service: &str, endpoints: &[&str]) -> Value {
    let endpoints = endpoints.iter().enumerate().map(|(n, text)| {
        json!({
            "addresses": [text.trim_end_matches('!')],
            "conditions": {"ready": !text.ends_with('!')},
            "targetRef": {"kind": "Pod", "name": format!("pod-{n}"), "namespace": "inference"},
        })
    });
    json!({
        "metadata": {"namespace": "inference", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

/// One route over one service with one pod.
async fn small_cluster() -> ApiServer {
    let api = ApiServer::start().await;
    api.put(ROUTES, "chat", route("chat", "inference/vllm"));
    api.put(&slices("inference"), "vllm-1", slice("vllm", &["10.9.0.1"]));
    api
}

/// Waits until the page has each of these samples.
async fn shows(exporter: &Exporter, samples: &[&str]) -> String {
    // Numbers are compared by value, not as text.
    let read = |line: &str| -> Option<(String, f64)> {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    let is_there = |page: &str, sample: &str| page.lines().any(|line| read(line) == read(sample));
    until_answer(&format!("{samples:#?}"), async || {
        let page = exporter.page().await;
        samples
            .iter()
            .all(|sample| is_there(&page, sample))
            .then_some(page)
    })
    .await
}

/// The sample with a number of requests.
fn requests(service: &str, route: &str, backend: &str, count: u64) -> String {
    format!(
        "bodylog_requests_total{{service=\"{service}\",route=\"{route}\",backend=\"{backend}\",model=\"m\",status_class=\"2xx\",stream=\"unknown\"}} {count}"
    )
}

async fn counted(exporter: &Exporter, service: &str, route: &str, backend: &str, count: u64) {
    shows(exporter, &[&requests(service, route, backend, count)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_get_the_route_and_service_of_their_pod_and_changes_arrive() {
    let api = small_cluster().await;
    api.put(ROUTES, "groups", route("groups", "inference/lws-leader"));
    api.put(
        &slices("inference"),
        "lws-1",
        slice("lws-leader", &["10.9.1.1", "10.9.1.2!"]),
    );
    api.put(
        ROUTES,
        "no-route-of-a-router",
        json!({"spec": {"nginx": {"route": 7}}}),
    );
    let mut rows = Rows::new();
    rows.append("10.9.0.1:8000", "");
    rows.append("10.9.0.1:8000 (retry#1)", "");
    rows.append("10.9.1.2:8000", "");
    rows.append("10.9.0.1:8000", "own");
    rows.append("(none)", "chat");
    rows.append("10.9.9.9:8000", "");
    rows.append("10.9.0.7:8000", "named");
    let exporter = rows.exporter(&api).await;
    let page = shows(
        &exporter,
        &[
            &requests("inference/vllm", "chat", "10.9.0.1:8000", 2),
            &requests("inference/lws", "groups", "10.9.1.2:8000", 1),
            &requests("inference/vllm", "own", "10.9.0.1:8000", 1),
            &requests("inference/vllm", "chat", "(none)", 1),
            &requests("unknown", "unknown", "10.9.9.9:8000", 1),
            &requests("named", "named", "10.9.0.7:8000", 1),
        ],
    )
    .await;
    assert_eq!(
        sum(&page, "bodylog_route_resolver_errors_total"),
        0,
        "{}",
        exporter.log()
    );
    shows(
        &exporter,
        &[
            "bodylog_route_resolver_up 1",
            "bodylog_route_resolver_pods 3",
            "bodylog_route_resolver_routes 2",
            "bodylog_service_replicas{service=\"inference/lws\",route=\"groups\"} 2",
            "bodylog_service_replicas_ready{service=\"inference/lws\",route=\"groups\"} 1",
            "bodylog_service_replicas{service=\"inference/vllm\",route=\"chat\"} 1",
        ],
    )
    .await;

    // First one more pod, then one more route.
    api.put(
        &slices("inference"),
        "vllm-1",
        slice("vllm", &["10.9.0.1", "10.9.0.2"]),
    );
    shows(&exporter, &["bodylog_route_resolver_pods 4"]).await;
    rows.append("10.9.0.2:8000", "");
    counted(&exporter, "inference/vllm", "chat", "10.9.0.2:8000", 1).await;
    api.put(&slices("inference"), "late-1", slice("late", &["10.9.2.1"]));
    api.put(ROUTES, "late", route("late", "inference/late"));
    shows(&exporter, &["bodylog_route_resolver_pods 5"]).await;
    rows.append("10.9.2.1:8000", "");
    counted(&exporter, "inference/late", "late", "10.9.2.1:8000", 1).await;
    api.delete(ROUTES, "late");
    shows(&exporter, &["bodylog_route_resolver_routes 2"]).await;
    let lists = api.asked(ROUTES);
    assert_eq!(lists, 1, "routes are listed once and watched from there on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_went_maps_a_while_longer_over_a_restart_too() {
    let api = small_cluster().await;
    let mut rows = Rows::new();
    let mut exporter = rows.exporter(&api).await;
    shows(&exporter, &["bodylog_route_resolver_pods 1"]).await;
    api.delete(&slices("inference"), "vllm-1");
    let gone = "bodylog_service_replicas{service=\"inference/vllm\",route=\"chat\"} 0";
    shows(&exporter, &[gone, "bodylog_route_resolver_pods 1"]).await;
    rows.append("10.9.0.1:8000", "");
    counted(&exporter, "inference/vllm", "chat", "10.9.0.1:8000", 1).await;
    exporter.kill().await;
    rows.append("10.9.0.1:8000", "");
    exporter.restart().await;
    counted(&exporter, "inference/vllm", "chat", "10.9.0.1:8000", 2).await;
    shows(&exporter, &[gone, "bodylog_route_resolver_pods 1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_is_counted_and_what_is_known_stays() {
    let api = small_cluster().await;
    let mut rows = Rows::new();
    let exporter = rows.exporter(&api).await;
    let errors = async || {
        sum(
            &exporter.page().await,
            "bodylog_route_resolver_errors_total",
        )
    };
    let faults = [
        Fault::Status(403),
        Fault::Status(500),
        Fault::Garbage,
        Fault::Endless,
    ];
    for (seen, fault) in (1..).zip(faults) {
        shows(&exporter, &["bodylog_route_resolver_up 1"]).await;
        let before = errors().await;
        api.set(fault);
        shows(&exporter, &["bodylog_route_resolver_up 0"]).await;
        assert!(errors().await > before, "{fault:?}");
        rows.append("10.9.0.1:8000", "");
        counted(&exporter, "inference/vllm", "chat", "10.9.0.1:8000", seen).await;
        shows(&exporter, &["bodylog_route_resolver_pods 1"]).await;
        api.set(Fault::None);
    }
    shows(&exporter, &["bodylog_route_resolver_up 1"]).await;
    api.put(&slices("inference"), "vllm-2", slice("vllm", &["10.9.0.2"]));
    shows(&exporter, &["bodylog_route_resolver_pods 2"]).await;
    let log = exporter.log();
    for cause in [
        "status 403",
        "status 500",
        "not understood",
        "answers again",
    ] {
        assert!(log.contains(cause), "no {cause} in\n{log}");
    }
    assert!(!log.contains("secret-looking"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_died_is_found_again_where_it_was() {
    let mut api = small_cluster().await;
    let mut rows = Rows::new();
    let exporter = rows.exporter(&api).await;
    shows(&exporter, &["bodylog_route_resolver_up 1"]).await;
    api.die().await;
    shows(&exporter, &["bodylog_route_resolver_up 0"]).await;
    rows.append("10.9.0.1:8000", "");
    counted(&exporter, "inference/vllm", "chat", "10.9.0.1:8000", 1).await;
    api.put(&slices("inference"), "vllm-2", slice("vllm", &["10.9.0.2"]));
    api.revive().await;
    shows(
        &exporter,
        &[
            "bodylog_route_resolver_up 1",
            "bodylog_route_resolver_pods 2",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_the_api_server_forgot_is_listed_anew() {
    let api = small_cluster().await;
    let rows = Rows::new();
    let exporter = rows.exporter(&api).await;
    shows(&exporter, &["bodylog_route_resolver_pods 1"]).await;
    let before = sum(
        &exporter.page().await,
        "bodylog_route_resolver_errors_total",
    );
    // No watcher gets this change.
    api.forget();
    api.put(&slices("inference"), "vllm-2", slice("vllm", &["10.9.0.2"]));
    until_answer("routes and slices to be listed again", async || {
        let lists = [api.asked(ROUTES), api.asked(&slices("inference"))];
        lists.iter().all(|count| *count > 1).then_some(())
    })
    .await;
    let page = shows(&exporter, &["bodylog_route_resolver_pods 2"]).await;
    let after = sum(&page, "bodylog_route_resolver_errors_total");
    assert_eq!(after, before, "that is no error\n{}", exporter.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_wait_for_the_first_answer() {
    let api = small_cluster().await;
    api.set(Fault::Silence);
    let mut rows = Rows::new();
    rows.append("10.9.0.1:8000", "");
    let exporter = rows.exporter(&api).await;
    until_answer("the API server to be asked", async || {
        (api.asked(ROUTES) > 0).then_some(())
    })
    .await;
    let page = exporter.page().await;
    assert_eq!(sum(&page, "bodylog_exporter_lines_total"), 0, "{page}");
    api.set(Fault::None);
    counted(&exporter, "inference/vllm", "chat", "10.9.0.1:8000", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topmost_owner_says_how_many_pods_there_should_be() {
    let api = small_cluster().await;
    let apps = "/apis/apps/v1/namespaces/inference";
    let groups = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/inference/leaderworkersets";
    let owned = |version: &str, kind: &str, name: &str| json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}]);
    let pod = owned("apps/v1", "StatefulSet", "vllm");
    let pods = "/api/v1/namespaces/inference/pods";
    api.put(pods, "pod-0", json!({"metadata": {"ownerReferences": pod}}));
    let set = owned("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm");
    // During a rollout it is larger than wanted.
    let set = json!({"metadata": {"ownerReferences": set}, "spec": {"replicas": 9}});
    api.put(&format!("{apps}/statefulsets"), "vllm", set);
    let rows = Rows::new();
    let exporter = rows.exporter(&api).await;
    until_answer("the topmost owner to be asked for", async || {
        (api.asked(&format!("{groups}/vllm")) > 0).then_some(())
    })
    .await;
    let page = exporter.page().await;
    assert!(!page.contains("bodylog_service_replicas_desired"), "{page}");
    api.put(groups, "vllm", json!({"spec": {"replicas": 4}}));
    let desired = "bodylog_service_replicas_desired{service=\"inference/vllm\",route=\"chat\"} 4";
    shows(&exporter, &[desired]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_kind_is_one_without_routes() {
    let api = ApiServer::start().await;
    api.set(Fault::Status(404));
    let mut rows = Rows::new();
    rows.append("10.9.0.1:8000", "chat");
    let exporter = rows.exporter(&api).await;
    counted(&exporter, "chat", "chat", "10.9.0.1:8000", 1).await;
    let page = shows(
        &exporter,
        &[
            "bodylog_route_resolver_up 1",
            "bodylog_route_resolver_routes 0",
        ],
    )
    .await;
    assert_eq!(
        sum(&page, "bodylog_route_resolver_errors_total"),
        0,
        "{}",
        exporter.log()
    );
    api.set(Fault::None);
    api.put(&slices("inference"), "vllm-1", slice("vllm", &["10.9.0.1"]));
    api.put(ROUTES, "chat", route("chat", "inference/vllm"));
    shows(&exporter, &["bodylog_route_resolver_pods 1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_a_cluster_nothing_is_asked_or_said() {
    for (host, option) in [("", "auto"), ("127.0.0.1", "auto"), ("127.0.0.1", "off")] {
        let mut rows = Rows::new();
        rows.append("10.9.0.1:8000", "chat");
        // The host variable alone does not mean a cluster: a pod may have no service account.
        let host = [("KUBERNETES_SERVICE_HOST".to_owned(), host.to_owned())];
        let start = exporter_over(rows.store.path()).environment(host);
        let exporter = Exporter::start(start.option("--kubernetes", option)).await;
        counted(&exporter, "chat", "chat", "10.9.0.1:8000", 1).await;
        let page = exporter.page().await;
        for family in ["bodylog_route_resolver", "bodylog_service_replicas"] {
            assert!(!page.contains(family), "{page}");
        }
        let log = exporter.log();
        assert!(!log.contains("WARN"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_the_service_account_opens_the_api_server() {
    let authority = Authority::make();
    let account = directory();
    let token = "token-of-the-account";
    let files = [
        ("ca.crt", fs::read_to_string(authority.root()).unwrap()),
        ("token", token.to_owned()),
        ("namespace", "llm-router".to_owned()),
    ];
    for (name, text) in files {
        fs::write(account.path().join(name), text).unwrap();
    }
    // The files have one fixed path on the machine, so the exporter gets its own view of the file
    // system.
    let view = "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && cp \"$0\"/* /run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";
    let account = account.path().to_str().unwrap().to_owned();
    let arguments = [
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        view,
        &account,
    ];
    let tried = tokio::process::Command::new("unshare")
        .args(arguments)
        .arg("true")
        .output()
        .await;
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        return eprintln!("skipped: no view of the files of its own: {tried:?}");
    }

    let api = ApiServer::start_tls(&authority, token).await;
    api.put(ROUTES, "chat", route("chat", "inference/vllm"));
    api.put(&slices("inference"), "vllm-1", slice("vllm", &["10.9.0.1"]));
    let mut rows = Rows::new();
    rows.append("10.9.0.1:8000", "");
    let (host, port) = (api.address.ip().to_string(), api.address.port().to_string());
    let exporter = Exporter::start(
        exporter_over(rows.store.path())
            .under("unshare", &arguments)
            .environment([
                ("KUBERNETES_SERVICE_HOST".to_owned(), host),
                ("KUBERNETES_SERVICE_PORT".to_owned(), port),
            ]),
    )
    .await;
    counted(&exporter, "inference/vllm", "chat", "10.9.0.1:8000", 1).await;
    shows(&exporter, &["bodylog_route_resolver_up 1"]).await;
    assert!(!exporter.log().contains(token), "{}", exporter.log());
}
