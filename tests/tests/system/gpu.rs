//! A scripted llama.cpp, and the router's view of it.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::peer::{COMPLETION, Exchange, Gate, Peer, Seen};
use system_tests::router::{Router, Setup};
use system_tests::wait::{until, until_answer};
use system_tests::wire::{Reply, call};

use crate::common::{CHAT, CHAT_PATH, setup};

/// A llama.cpp whose reports the test controls.
pub(crate) struct Gpu {
    pub(crate) peer: Peer,
    /// Chats wait at this gate.
    pub(crate) gate: Gate,
    /// Whether `/metrics` accepts requests and never answers.
    pub(crate) hangs: Arc<AtomicBool>,
    /// Running requests of other clients.
    pub(crate) others: Arc<AtomicU32>,
}

/// The fixed reports of a [`Gpu`].
#[derive(Clone, Copy)]
pub(crate) struct Says {
    /// Running requests of other clients.
    pub(crate) others: u32,
    pub(crate) model: &'static str,
    pub(crate) alias: &'static str,
    /// Time that it takes to answer `/metrics`.
    pub(crate) slow: Duration,
}

pub(crate) const SAYS: Says = Says {
    others: 0,
    model: "tiny",
    alias: "small",
    slow: Duration::ZERO,
};

impl Gpu {
    pub(crate) async fn new(says: Says) -> Self {
        let (gate, hangs) = (Gate::default(), Arc::new(AtomicBool::new(false)));
        let others = Arc::new(AtomicU32::new(says.others));
        let (chats, silent, busy) = (gate.clone(), Arc::clone(&hangs), Arc::clone(&others));
        let peer = Peer::spawn_with_probes(move |seen, exchange| {
            let now = Now {
                hangs: silent.load(Ordering::SeqCst),
                others: busy.load(Ordering::SeqCst),
            };
            answer(says, now, chats.clone(), seen, exchange)
        })
        .await;
        Self {
            peer,
            gate,
            hangs,
            others,
        }
    }

    /// A `Gpu` that lets every chat pass.
    pub(crate) async fn open(says: Says) -> Self {
        let gpu = Self::new(says).await;
        gpu.gate.open(1000);
        gpu
    }

    pub(crate) fn address(&self) -> String {
        self.peer.address.to_string()
    }

    pub(crate) fn chats(&self) -> usize {
        let seen = self.peer.requests();
        seen.iter().filter(|seen| is_chat(seen)).count()
    }
}

pub(crate) fn is_chat(seen: &Seen) -> bool {
    seen.method == "POST" && seen.target.starts_with("/v1/")
}

/// The state of a [`Gpu`] at the time of a request.
struct Now {
    hangs: bool,
    others: u32,
}

async fn answer(says: Says, now: Now, gate: Gate, seen: Seen, mut exchange: Exchange) -> Exchange {
    let json = [("content-type", "application/json")];
    match seen.target.as_str() {
        "/metrics" if now.hangs => pending().await,
        "/metrics" => {
            tokio::time::sleep(says.slow).await;
            let page = format!(
                "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing {}\nllamacpp:requests_deferred 0\n",
                now.others
            );
            let plain = [("content-type", "text/plain; version=0.0.4")];
            exchange.reply(200, &plain, page).await;
        }
        "/props" => exchange.reply(200, &json, r#"{"total_slots":1}"#).await,
        "/health" => exchange.reply(200, &json, r#"{"status":"ok"}"#).await,
        "/v1/models" => {
            let list = json!({"object": "list", "data": [
                {"id": says.model, "aliases": [says.alias], "object": "model"}]});
            exchange.reply(200, &json, list.to_string()).await;
        }
        _ => {
            exchange.step(&gate).await;
            exchange.reply(200, &json, COMPLETION).await;
        }
    }
    exchange
}

/// The route `r` over one-slot peers at these addresses. It never refuses for load.
pub(crate) fn over(addresses: &[String], options: &str) -> Setup {
    let fixed = "poll_interval: 100ms\npoll_timeout: 1s\nhealth_check_interval: 1h\nfull_policy: overflow\n";
    setup().route("r", &format!("{}{fixed}{options}\n", peers_at(addresses)))
}

pub(crate) fn addresses<const N: usize>(gpus: [&Gpu; N]) -> Vec<String> {
    gpus.iter().map(|gpu| gpu.address()).collect()
}

/// `/proxy/metrics` by peer name.
pub(crate) async fn backends(router: &Router) -> BTreeMap<String, Value> {
    let json = [("accept", "application/json")];
    let reply = call(router.public, "GET", "/proxy/metrics", &json, "").await;
    let list = reply.json()["backends"].as_array().unwrap().clone();
    let named = |backend: Value| (backend["backend"].as_str().unwrap().to_owned(), backend);
    list.into_iter().map(named).collect()
}

pub(crate) async fn until_backend(
    router: &Router,
    name: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) {
    until_answer(what, async || {
        is(&backends(router).await[name]).then_some(())
    })
    .await;
}

/// The name of the peer that served a chat, and the mode that chose it.
pub(crate) fn placed(reply: &Reply) -> (String, String) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let header = |name: &str| reply.header(name).to_owned();
    (header("x-proxy-backend"), header("x-routed-mode"))
}

pub(crate) async fn chat(router: &Router) -> (String, String) {
    placed(&router.post(CHAT_PATH, CHAT).await)
}

/// The value of the `/proxy/metrics` series with all these labels. `None` without such a series.
pub(crate) async fn counted(router: &Router, name: &str, labels: &[&str]) -> Option<f64> {
    let page = router.get("/proxy/metrics").await.text();
    let found = page.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    })?;
    found.rsplit(' ').next()?.parse().ok()
}

/// `peers: […]` of one-slot peers at these addresses, `gpu0` and so on.
pub(crate) fn peers_at(addresses: &[String]) -> String {
    let peers = addresses.iter().enumerate();
    let peers: Vec<_> = peers
        .map(|(n, address)| format!("{{name: gpu{n}, address: '{address}', max_concurrency: 1}}"))
        .collect();
    format!("peers: [{}]\n", peers.join(", "))
}

/// Options for ten polls a second and a single probe.
pub(crate) const FAST: &str =
    "balance: least_busy\npoll_interval: 100ms\npoll_timeout: 1s\nhealth_check_interval: 1h\n";

/// Polls `/proxy/metrics` until a series has a value.
pub(crate) async fn until_counted(router: &Router, name: &str, labels: &[&str], value: f64) {
    let what = format!("{name} {labels:?} to be {value}");
    until_answer(&what, async || {
        (counted(router, name, labels).await == Some(value)).then_some(())
    })
    .await;
}

/// Waits until the router has loaded a changed file. The load at start was the first.
pub(crate) async fn until_reloaded(router: &Router) {
    let loads = || router.log().matches("configuration loaded").count();
    until("the reload", || loads() >= 2).await;
}
