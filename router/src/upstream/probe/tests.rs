use std::sync::atomic::{AtomicUsize, Ordering};

use router_core::load::{Freshness, LoadSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::telemetry::metrics::Metrics;
use crate::testing::Tables;
use service::tls::install_crypto_provider;

/// Long enough for any machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A peer that gives one answer after the other, repeats the last one, and reports the requests
/// that it got.
struct Peer {
    address: String,
    asked: mpsc::Receiver<String>,
    _serving: JoinSet<()>,
}

/// Stands for an answer that never comes.
const SILENCE: &str = "";

async fn peer(answers: &[&str]) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, asked) = mpsc::channel(64);
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut silent = Vec::new();
        for n in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = answers.get(n).or(answers.last()).unwrap();
            if answer == SILENCE {
                silent.push(stream);
            } else {
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
            // The test may have stopped listening.
            let _ = tell.send(String::from_utf8(head).unwrap()).await;
        }
    });
    Peer {
        address,
        asked,
        _serving: serving,
    }
}

impl Peer {
    async fn next(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.asked.recv())
            .await
            .expect("a probe")
            .expect("a peer")
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A supervisor over tables parsed from text.
struct Stage {
    made: Tables,
    tables: Arc<ArcSwap<RouteTable>>,
    replaced: watch::Sender<u64>,
    cancelled: CancellationToken,
    tasks: JoinSet<()>,
}

impl Stage {
    fn start(routes: &[(&str, &str)]) -> Self {
        install_crypto_provider();
        let mut made = Tables::new();
        let table = made.table("", routes);
        assert_eq!(
            table.routes().count(),
            table.entries.len(),
            "{:#?}",
            table.entries
        );
        let tables = Arc::new(ArcSwap::from_pointee(table));
        let replaced = watch::Sender::new(0);
        let cancelled = CancellationToken::new();
        let events = Arc::new(Events::new(Arc::clone(&made.metrics)));
        let mut tasks = JoinSet::new();
        tasks.spawn(supervise(
            Arc::clone(&tables),
            replaced.subscribe(),
            events,
            TaskTracker::new(),
            cancelled.clone(),
        ));
        Self {
            made,
            tables,
            replaced,
            cancelled,
            tasks,
        }
    }

    fn replace(&mut self, routes: &[(&str, &str)]) {
        self.tables.store(Arc::new(self.made.table("", routes)));
        self.replaced.send_modify(|n| *n += 1);
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.made.metrics
    }

    fn route(&self) -> Arc<Route> {
        Arc::clone(self.tables.load().routes().next().unwrap())
    }

    fn is_banned(&self) -> bool {
        let route = self.route();
        route
            .pool_ids()
            .any(|pool| route.peer_facts(pool)[0].banned)
    }

    /// Waits for a state that a probe causes.
    async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !is(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never {what}"));
    }

    async fn end(mut self) {
        self.cancelled.cancel();
        tokio::time::timeout(PATIENCE, self.tasks.join_next())
            .await
            .expect("the supervisor ends")
            .unwrap()
            .unwrap();
    }
}

fn route(address: &str, more: &str) -> String {
    format!("peers: [{{address: '{address}', name: gpu-a}}]\nhealth_check_interval: 10ms\n{more}")
}

#[test]
fn jitter_stays_within_a_tenth() {
    let mut rng = StdRng::seed_from_u64(7);
    let factors: Vec<f64> = (0..1000).map(|_| jitter(&mut rng)).collect();
    assert!(factors.iter().all(|factor| (0.9..=1.1).contains(factor)));
    assert!(
        factors.iter().any(|factor| *factor < 0.95) && factors.iter().any(|factor| *factor > 1.05)
    );
}

#[tokio::test]
async fn a_failing_peer_is_banned_and_comes_back_by_itself() {
    let (ok, bad) = (
        answer("200 OK", r#"{"data":[{"id":"m1"}]}"#),
        answer("503 Service Unavailable", ""),
    );
    let mut peer = peer(&[&ok, &bad, &ok]).await;
    let stage = Stage::start(&[("chat", &route(&peer.address, ""))]);
    let request = peer.next().await;
    assert!(
        request.starts_with("GET /v1/models HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request
            .to_lowercase()
            .contains(&format!("host: {}\r\n", peer.address)),
        "{request}"
    );
    assert!(
        !request.to_lowercase().contains("authorization"),
        "{request}"
    );
    let banned = r#"llm_router_peer_bans_total{route="chat",peer="ADDRESS"} 1"#
        .replace("ADDRESS", &peer.address);
    stage
        .until("banned", |stage| stage.metrics().text().contains(&banned))
        .await;
    stage.until("back", |stage| !stage.is_banned()).await;
    assert!(stage.route().serves("m1"));
    stage.end().await;
}

#[tokio::test]
async fn a_refused_connection_bans() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let stage = Stage::start(&[("chat", &route(&address, ""))]);
    stage.until("banned", Stage::is_banned).await;
    stage.end().await;
}

#[tokio::test]
async fn a_busy_answer_leaves_the_state_as_it_is() {
    let busy = answer("429 Too Many Requests", "");
    for first in [answer("200 OK", ""), answer("500 Oops", "")] {
        let mut peer = peer(&[&first, &busy, SILENCE, &busy]).await;
        let stage = Stage::start(&[("chat", &route(&peer.address, "health_timeout: 50ms"))]);
        for _ in 0..5 {
            peer.next().await;
        }
        assert_eq!(stage.is_banned(), first.contains("500"), "{first}");
        stage.end().await;
    }
}

#[tokio::test]
async fn the_peers_own_path_and_key_are_used_and_models_are_learned_besides() {
    let mut peer = peer(&[&answer(
        "200 OK",
        r#"{"data":[{"id":"m1","aliases":["m1-alias"]}]}"#,
    )])
    .await;
    let file = format!(
        "peers: [{{url: 'http://{}/base', probe: /health, api_key: sk-peer}}]\nhealth_check_interval: 10ms\n",
        peer.address
    );
    let stage = Stage::start(&[("chat", &file)]);
    let (first, second) = (peer.next().await, peer.next().await);
    assert!(
        first.starts_with("GET /base/health HTTP/1.1\r\n"),
        "{first}"
    );
    assert!(
        second.starts_with("GET /base/v1/models HTTP/1.1\r\n"),
        "{second}"
    );
    for request in [first, second] {
        assert!(
            request
                .to_lowercase()
                .contains("authorization: bearer sk-peer\r\n"),
            "{request}"
        );
    }
    stage
        .until("learned", |stage| stage.route().serves("m1-alias"))
        .await;
    stage.end().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_bans() {
    let elsewhere = peer(&[&answer("200 OK", "")]).await;
    let away = format!(
        "HTTP/1.1 307 Away\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address
    );
    let peer = peer(&[&away]).await;
    let mut elsewhere = elsewhere;
    let stage = Stage::start(&[("chat", &route(&peer.address, ""))]);
    stage.until("banned", Stage::is_banned).await;
    assert!(elsewhere.asked.try_recv().is_err());
    stage.end().await;
}

#[tokio::test]
async fn disabled_peers_are_left_alone() {
    let (mut off, mut on) = (
        peer(&[&answer("200 OK", "")]).await,
        peer(&[&answer("200 OK", "")]).await,
    );
    let file = format!(
        "peers: [{{address: '{}', enabled: false}}, {{address: '{}'}}]\nhealth_check_interval: 10ms\n",
        off.address, on.address
    );
    let stage = Stage::start(&[("chat", &file)]);
    for _ in 0..5 {
        on.next().await;
    }
    assert!(off.asked.try_recv().is_err());
    stage.end().await;
}

#[tokio::test]
async fn a_reload_changes_the_path_at_once_and_ends_what_is_gone() {
    let (mut kept, mut gone) = (
        peer(&[&answer("200 OK", "")]).await,
        peer(&[&answer("200 OK", "")]).await,
    );
    let slow = |address: &str, path: &str| {
        format!(
            "peers: [{{address: '{address}'}}]\nhealth_check_interval: 1h\nhealth_probe_path: {path}\n"
        )
    };
    let (before, after) = (
        slow(&kept.address, "/v1/models"),
        slow(&kept.address, "/ping"),
    );
    let mut stage = Stage::start(&[("kept", &before), ("gone", &route(&gone.address, ""))]);
    let removed = Arc::downgrade(&stage.route());
    assert_eq!(removed.upgrade().unwrap().name.as_ref(), "gone");
    assert!(kept.next().await.starts_with("GET /v1/models "));
    gone.next().await;
    stage.replace(&[("kept", &after)]);
    // With an hour between probes, only the reload can have caused this one.
    assert!(kept.next().await.starts_with("GET /ping "));
    // Only the probes of the removed route still held it.
    stage
        .until("let go of", |_| removed.upgrade().is_none())
        .await;
    stage.end().await;
}

/// A peer that answers every request of a connection and counts connections and requests.
struct KeepingPeer {
    address: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

async fn keeping_peer(answer: String) -> KeepingPeer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counts = (Arc::clone(&connections), Arc::clone(&requests));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut all = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counts.0.fetch_add(1, Ordering::SeqCst);
            let (answer, requests) = (answer.clone(), Arc::clone(&counts.1));
            all.spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        requests.fetch_add(1, Ordering::SeqCst);
                        // A page that is too long is not read to its end.
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                }
            });
        }
    });
    KeepingPeer {
        address,
        connections,
        requests,
        _serving: serving,
    }
}

fn staying(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
}

const POLLED: &str = "load_signal: engine\npoll_interval: 10ms\n";

#[tokio::test]
async fn a_reused_connection_that_died_is_no_failed_probe() {
    let keeps = staying("200 OK", r#"{"data":[]}"#);
    let mut peer = peer(&[&keeps]).await;
    let stage = Stage::start(&[("chat", &route(&peer.address, ""))]);
    for _ in 0..5 {
        peer.next().await;
    }
    let never = r#"llm_router_peer_bans_total{route="chat",peer="ADDRESS"} 1"#;
    let never = never.replace("ADDRESS", &peer.address);
    assert!(!stage.is_banned() && !stage.metrics().text().contains(&never));
    stage.end().await;
}

#[tokio::test]
async fn polls_and_probes_share_connections() {
    let peer = keeping_peer(staying("200 OK", "vllm:num_requests_running 3\n")).await;
    let stage = Stage::start(&[("chat", &route(&peer.address, POLLED))]);
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    stage
        .until("asked often", |_| count(&peer.requests) >= 50)
        .await;
    // Two requests that overlap need two connections, and one of the two is kept.
    assert!(count(&peer.connections) < count(&peer.requests) / 2);
    stage.end().await;
}

/// A peer with its load page at another address.
fn paged(peer: &KeepingPeer, page: &KeepingPeer) -> String {
    format!(
        "peers: [{{address: '{}', metrics_url: 'http://{}/metrics'}}]\nhealth_check_interval: 10ms\n{POLLED}",
        peer.address, page.address
    )
}

#[tokio::test]
async fn a_load_page_that_is_too_long_or_elsewhere_by_redirect_is_no_sample() {
    let page = "vllm:num_requests_running 3\n";
    let elsewhere = keeping_peer(staying("200 OK", page)).await;
    let long = format!("{page}{}", "#".repeat(8 << 20));
    let away = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/metrics\r\ncontent-length: 0\r\n\r\n",
        elsewhere.address
    );
    let peer = keeping_peer(staying("200 OK", r#"{"data":[]}"#)).await;
    let load = |stage: &Stage| {
        let known = stage
            .route()
            .known_load(&PeerKey::new(peer.address.as_str()));
        let reading = known.unwrap().reading;
        reading.load(&LoadSpec::default(), Freshness::Fresh, 0, 1)
    };
    for answer in [staying("200 OK", &long), away] {
        let page = keeping_peer(answer).await;
        let stage = Stage::start(&[("chat", &paged(&peer, &page))]);
        // One poll at a time: the first one has ended.
        let asked = |_: &Stage| page.requests.load(Ordering::SeqCst) >= 2;
        stage.until("polled twice", asked).await;
        assert_eq!(load(&stage), 0);
        stage.end().await;
    }
    assert_eq!(elsewhere.requests.load(Ordering::SeqCst), 0);
    let stage = Stage::start(&[("chat", &paged(&peer, &elsewhere))]);
    stage.until("sampled", |stage| load(stage) == 3).await;
    stage.end().await;
}

#[tokio::test]
async fn a_load_page_elsewhere_has_a_connection_of_its_own() {
    let peer = keeping_peer(staying("200 OK", r#"{"data":[]}"#)).await;
    let page = keeping_peer(staying("200 OK", "vllm:num_requests_running 3\n")).await;
    let stage = Stage::start(&[("chat", &paged(&peer, &page))]);
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    stage
        .until("asked often", |_| {
            count(&page.requests) >= 20 && count(&peer.requests) >= 20
        })
        .await;
    assert_eq!((count(&page.connections), count(&peer.connections)), (1, 1));
    stage.end().await;
}

mod polls;
