//! Tests polling against routers with a few canned answers.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::round::round;
use super::*;

type Asked = (String, Option<String>);

/// A router that answers by path and query. Unknown paths and errors give 503.
#[derive(Clone, Default)]
struct Fake {
    answers: Arc<Mutex<BTreeMap<String, String>>>,
    /// The received paths and credentials.
    asked: Arc<Mutex<Vec<Asked>>>,
}

async fn answer(State(fake): State<Fake>, uri: Uri, headers: HeaderMap) -> (StatusCode, String) {
    let path = uri.to_string();
    let credential = headers.get("authorization");
    let credential = credential.map(|value| value.to_str().unwrap().to_owned());
    fake.asked.lock().push((path.clone(), credential));
    match fake.answers.lock().get(&path) {
        Some(answer) if answer.contains("error") => {
            (StatusCode::SERVICE_UNAVAILABLE, answer.clone())
        }
        Some(answer) => (StatusCode::OK, answer.clone()),
        None => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
    }
}

impl Fake {
    async fn start(tasks: &TaskTracker) -> (Self, RouterUrl) {
        let fake = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(fake.clone());
        tasks.spawn(service::http::serve(
            listener,
            service::connections::Connections::new(service::http::CONNECTIONS),
            app,
            CancellationToken::new(),
        ));
        (fake, RouterUrl::from_str(&url).unwrap())
    }

    fn says(&self, path: &str, answer: &str) {
        self.answers
            .lock()
            .insert(path.to_owned(), answer.to_owned());
    }

    fn falls_silent(&self, path: &str) {
        self.answers.lock().remove(path);
    }

    fn has_route(&self, route: &str) {
        self.says(
            &format!("/{route}/_route_state"),
            r#"{"limit":64,"active_level":1}"#,
        );
        self.says(
            &format!("/{route}/_tps_status"),
            r#"{"active":true,"ewma_tps":{"_":40}}"#,
        );
        self.says(
            &format!("/{route}/_ttft_status"),
            r#"{"active":false,"ewma_ms":{"_":700}}"#,
        );
        self.says(
            &format!("/{route}/_429_status?all=1"),
            r#"{"by_route":{"a":{"concurrency":2,"ttft":0,"tps":null},"b":{}}}"#,
        );
    }
}

fn client() -> Client {
    service::tls::install_crypto_provider();
    Client::new(Duration::from_secs(10), None).unwrap()
}

const KEPT: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_route_without_peers_is_no_router_that_does_not_answer() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    fake.says("/_routes", r#"{"routes":[{"name":"a","status":"ok"}]}"#);
    fake.has_route("a");
    let routers = std::slice::from_ref(&url);
    for (error, is_up) in [
        (
            r#"{"error":{"message":"no peers","code":"no_healthy_peer"}}"#,
            true,
        ),
        (r#"{"error":"no peers configured","route":"a"}"#, true),
        (r#"{"error":{"code":"route_invalid"}}"#, false),
        (r#"{"error"#, false),
    ] {
        fake.says("/a/_route_state", error);
        let (polled, _) = round(routers, &client(), &Polled::default(), &[], KEPT).await;
        let a = &polled.routers[0].routes["a"];
        assert_eq!(
            (polled.is_up, a.state.is_fresh),
            (Some(is_up), is_up),
            "{error}"
        );
        let healthy = a
            .state
            .value
            .as_ref()
            .map(|state| state.healthy_peers_in_level);
        assert_eq!(healthy, is_up.then_some(Some(0.0)), "{error}");
    }
}

#[tokio::test]
async fn a_round_asks_every_route_and_once_for_refusals() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    fake.says(
        "/_routes",
        r#"{"routes":[{"name":"a","status":"ok"},{"name":"b","status":"stale"},{"name":"broken","status":"invalid"},{"name":"../etc"}]}"#,
    );
    fake.has_route("a");
    fake.has_route("b");
    let (polled, refusals) = round(
        std::slice::from_ref(&url),
        &client(),
        &Polled::default(),
        &[],
        KEPT,
    )
    .await;
    assert_eq!(polled.is_up, Some(true));
    assert!(polled.last_success_ms.is_some());
    let router = &polled.routers[0];
    assert_eq!(*router.router, *url.label());
    assert_eq!(
        router.routes.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["a", "b"]
    );
    let a = &router.routes["a"];
    assert_eq!(a.state.value.as_ref().unwrap().limit, Some(64.0));
    assert_eq!(a.tps.value.as_ref().unwrap().ewma_tps["_"], 40.0);
    assert_eq!(a.ttft.value.as_ref().unwrap().active, Some(false));
    assert_eq!(a.up(), [true; 3]);
    let (_, reading) = &refusals[0];
    assert_eq!(reading["a"].get("concurrency"), Some(&2));
    assert_eq!(reading["a"].get("tps"), None, "null is no number");
    let asked = fake.asked.lock();
    assert_eq!(asked.len(), 1 + 3 * 2 + 1, "{asked:?}");
}

#[tokio::test]
async fn a_route_that_falls_silent_keeps_its_values_for_a_while_and_others_go_on() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    let urls = [url];
    fake.says("/_routes", r#"{"routes":[{"name":"a"},{"name":"b"}]}"#);
    fake.has_route("a");
    fake.has_route("b");
    let client = client();
    let (first, _) = round(&urls, &client, &Polled::default(), &[], KEPT).await;
    fake.falls_silent("/b/_tps_status");
    fake.says("/a/_route_state", r#"{"limit":32}"#);
    let (second, _) = round(&urls, &client, &first, &[], KEPT).await;
    assert_eq!(second.is_up, Some(false));
    assert_eq!(second.errors, 1);
    assert_eq!(second.last_success_ms, first.last_success_ms);
    let routes = &second.routers[0].routes;
    assert_eq!(routes["a"].state.value.as_ref().unwrap().limit, Some(32.0));
    assert_eq!(routes["a"].up(), [true; 3]);
    assert_eq!(routes["b"].up(), [true, false, true]);
    assert_eq!(
        routes["b"].tps.value,
        first.routers[0].routes["b"].tps.value
    );

    let mut old = second;
    let tps = &mut old.routers[0].routes.get_mut("b").unwrap().tps;
    tps.at_ms = tps.at_ms.map(|at| at - KEPT.as_millis() as i64 - 1);
    let (third, _) = round(&urls, &client, &old, &[], KEPT).await;
    let b = &third.routers[0].routes["b"];
    assert_eq!(b.tps.value, None, "too old");
    assert!(b.state.value.is_some());
    assert!(b.answered_ms().unwrap() < third.routers[0].routes["a"].answered_ms().unwrap());
}

#[tokio::test]
async fn a_router_that_is_gone_does_not_hide_another() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    fake.says("/_routes", r#"{"routes":[{"name":"a"}]}"#);
    fake.has_route("a");
    // The listener is dropped, so the address refuses connections.
    let gone = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let urls = [RouterUrl::from_str(&gone).unwrap(), url];
    let (polled, refusals) = round(&urls, &client(), &Polled::default(), &[], KEPT).await;
    assert_eq!(polled.is_up, Some(false));
    assert!(polled.routers[0].routes.is_empty());
    assert_eq!(polled.routers[1].routes["a"].up(), [true; 3]);
    assert_eq!(refusals.len(), 1);
}

#[tokio::test]
async fn routes_that_are_no_more_disappear_but_not_because_nobody_answers() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    let urls = [url];
    fake.says("/_routes", r#"{"routes":[{"name":"a"},{"name":"b"}]}"#);
    fake.has_route("a");
    fake.has_route("b");
    let client = client();
    let (first, _) = round(&urls, &client, &Polled::default(), &[], KEPT).await;
    fake.falls_silent("/_routes");
    let (second, _) = round(&urls, &client, &first, &[], KEPT).await;
    assert_eq!(second.routers[0].routes.len(), 2);
    fake.says("/_routes", r#"{"routes":[{"name":"b"}]}"#);
    let (third, _) = round(&urls, &client, &second, &[], KEPT).await;
    assert_eq!(third.routers[0].routes.len(), 1);
}

#[tokio::test]
async fn a_router_that_tells_no_routes_is_asked_about_those_of_the_cluster() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    let urls = [url];
    fake.has_route("a");
    let client = client();
    let routes = ["a".into()];
    let (polled, refusals) = round(&urls, &client, &Polled::default(), &routes, KEPT).await;
    assert_eq!(polled.is_up, Some(true));
    assert_eq!(polled.routers[0].routes["a"].up(), [true; 3]);
    assert_eq!(refusals.len(), 1);
    // The router's own list takes precedence.
    fake.says("/_routes", r#"{"routes":[{"name":"b"}]}"#);
    fake.has_route("b");
    let (polled, _) = round(&urls, &client, &polled, &routes, KEPT).await;
    assert!(polled.routers[0].routes.keys().eq(["b".into()].iter()));
    // If a router listed its routes once, its silence does not bring back those of the cluster.
    fake.falls_silent("/_routes");
    let (polled, _) = round(&urls, &client, &polled, &routes, KEPT).await;
    assert_eq!(polled.is_up, Some(false));
    assert!(polled.routers[0].routes.keys().eq(["b".into()].iter()));
}

#[tokio::test]
async fn an_answer_without_end_or_without_sense_is_none() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    fake.says("/_routes", r#"{"routes":[{"name":"a"}]}"#);
    fake.has_route("a");
    fake.says(
        "/a/_tps_status",
        &format!(r#"{{"x":"{}"}}"#, "y".repeat(2 << 20)),
    );
    fake.says("/a/_ttft_status", "<html>");
    let (polled, _) = round(&[url], &client(), &Polled::default(), &[], KEPT).await;
    assert_eq!(polled.routers[0].routes["a"].up(), [true, false, false]);
}

#[tokio::test]
async fn the_token_is_read_at_each_round() {
    let tasks = TaskTracker::new();
    let (fake, url) = Fake::start(&tasks).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    service::tls::install_crypto_provider();
    let client = Client::new(Duration::from_secs(10), Some(path.clone())).unwrap();
    for token in ["first", "second"] {
        std::fs::write(&path, format!("{token}\n")).unwrap();
        round(
            std::slice::from_ref(&url),
            &client,
            &Polled::default(),
            &[],
            KEPT,
        )
        .await;
        let asked = std::mem::take(&mut *fake.asked.lock());
        assert_eq!(asked[0].1.as_deref(), Some(&*format!("Bearer {token}")));
    }
}
