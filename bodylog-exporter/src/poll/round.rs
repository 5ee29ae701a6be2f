//! One round: all routers, routes and endpoints concurrently.

use std::time::Duration;

use http::header::HeaderValue;
use serde::de::DeserializeOwned;

use super::client::{AskError, Client, RouterUrl};
use super::decode::{RefusalStatus, RouteList};
use super::{ENDPOINTS, Polled, Reading, RoutePoll, RouteState, RouterPoll};
use crate::aggregate::RefusalReading;

/// Refusal counters by router.
pub(super) type Refusals = Vec<(Box<str>, RefusalReading)>;

/// Asks all routers and merges the answers with the values known `before`. `routes` are those of
/// the cluster: a router that does not list its own is asked about them.
pub(super) async fn round(
    routers: &[RouterUrl],
    client: &Client,
    before: &Polled,
    routes: &[Box<str>],
    kept: Duration,
) -> (Polled, Refusals) {
    let credential = client.credential().await;
    let asked = routers.iter().map(|url| {
        let known = before
            .routers
            .iter()
            .find(|router| *router.router == *url.label());
        let asking = Asking {
            url,
            client,
            credential: credential.as_ref(),
            routes,
        };
        asking.router(known, kept)
    });
    let answers = futures_util::future::join_all(asked).await;
    let mut polled = Polled {
        routers: Vec::new(),
        errors: before.errors,
        is_up: Some(true),
        last_success_ms: before.last_success_ms,
    };
    let mut refusals = Vec::new();
    for (router, reading, is_up) in answers {
        if let Some(reading) = reading {
            refusals.push((router.router.clone(), reading));
        }
        polled.routers.push(router);
        if !is_up {
            polled.is_up = Some(false);
        }
    }
    if polled.is_up == Some(true) {
        polled.last_success_ms = Some(now_ms());
    } else {
        polled.errors += 1;
    }
    (polled, refusals)
}

/// One router in one round.
#[derive(Clone, Copy)]
struct Asking<'a> {
    url: &'a RouterUrl,
    client: &'a Client,
    credential: Option<&'a HeaderValue>,
    routes: &'a [Box<str>],
}

impl Asking<'_> {
    /// The router's routes and refusals, and whether every call was answered.
    async fn router(
        self,
        known: Option<&RouterPoll>,
        kept: Duration,
    ) -> (RouterPoll, Option<RefusalReading>, bool) {
        let listed = self.get::<RouteList>(&["_routes"], &[]).await;
        let tells_routes = listed.is_some() || known.is_some_and(|known| known.tells_routes);
        // llm-openresty does not list its routes; the cluster's are equivalent.
        let given = Some(self.routes).filter(|routes| !tells_routes && !routes.is_empty());
        let mut is_up = listed.is_some() || given.is_some();
        let names = match (listed, given) {
            (Some(list), _) => list.names(),
            (None, Some(given)) => given.to_vec(),
            // If a router does not list its routes this time, use the last known ones.
            (None, None) => {
                known.map_or_else(Vec::new, |known| known.routes.keys().cloned().collect())
            }
        };
        let routes = names.iter().map(|name| {
            let before = known.and_then(|known| known.routes.get(name)).cloned();
            self.route(name, before.unwrap_or_default(), kept)
        });
        let refused = async {
            match names.first() {
                Some(first) => {
                    let path = [&**first, "_429_status"];
                    self.get::<RefusalStatus>(&path, &[("all", "1")]).await
                }
                None => None,
            }
        };
        let (polls, refused) = tokio::join!(futures_util::future::join_all(routes), refused);
        is_up &= names.is_empty() || refused.is_some();
        is_up &= polls.iter().all(|poll| poll.up() == [true; 3]);
        let router = RouterPoll {
            router: self.url.label().into(),
            tells_routes,
            routes: names.into_iter().zip(polls).collect(),
        };
        (router, refused.map(RefusalStatus::reading), is_up)
    }

    async fn route(self, name: &str, before: RoutePoll, kept: Duration) -> RoutePoll {
        let [state, tps, ttft] = ENDPOINTS.map(|endpoint| [name, endpoint]);
        let (state, tps, ttft) = tokio::join!(
            self.state(&state),
            self.get(&tps, &[]),
            self.get(&ttft, &[])
        );
        let now_ms = now_ms();
        RoutePoll {
            state: Reading::update(before.state, state, now_ms, kept),
            tps: Reading::update(before.tps, tps, now_ms, kept),
            ttft: Reading::update(before.ttft, ttft, now_ms, kept),
        }
    }

    /// A route without peers answers with an error that says so. That is an answer, and must not be
    /// taken for a missing router.
    async fn state(self, path: &[&str]) -> Option<RouteState> {
        match self.ask(path, &[]).await {
            Err(AskError::NoPeers) => Some(RouteState::without_peers()),
            answer => self.heard(path, answer),
        }
    }

    async fn get<T: DeserializeOwned>(self, path: &[&str], query: &[(&str, &str)]) -> Option<T> {
        let answer = self.ask(path, query).await;
        self.heard(path, answer)
    }

    async fn ask<T: DeserializeOwned>(
        self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, AskError> {
        self.client
            .ask(self.url, self.credential, path, query)
            .await
    }

    fn heard<T>(self, path: &[&str], answer: Result<T, AskError>) -> Option<T> {
        answer
            .inspect_err(|error| {
                tracing::debug!(
                    router = self.url.label(),
                    path = path.join("/"),
                    %error,
                    "a router did not answer"
                );
            })
            .ok()
    }
}

fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
