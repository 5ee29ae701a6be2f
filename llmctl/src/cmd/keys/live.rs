//! `llmctl keys check --live`: checks whether a router uses the keys of this file. No key is sent
//! in either direction: the request has the file's fingerprint, and the router answers yes or no.

use std::time::Duration;

use proto::admin::{KeysAnswer, KeysInForce};
use router_config::units;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::client::Router;
use crate::exit::Failure;

/// Pause before asking again a router that has not loaded the file yet.
const PAUSE: Duration = Duration::from_millis(200);

/// The key state of a router; its JSON form is stable.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    /// Whether the router's keys are those of the file.
    pub(super) matches: bool,
    /// The file that the router reads.
    pub(super) router_file: String,
    /// `key_file_status`.
    pub(super) status: String,
    pub(super) in_force: KeysInForce,
    pub(super) count: usize,
    /// Why the router did not load the file; absent when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

/// Parses a time such as `12s`.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    units::duration(text).ok_or_else(|| "expected a time such as 12s, 1m or 0".to_owned())
}

/// Asks a router until it has the keys with this fingerprint, or the time is up.
///
/// # Errors
/// When the router cannot be reached or refuses to answer.
pub(super) async fn ask(
    router: &Router,
    fingerprint: &str,
    count: usize,
    wait: Duration,
) -> Result<Live, Failure> {
    let until = Instant::now() + wait;
    loop {
        let answer: KeysAnswer = router
            .get(&["_keys"], &[("fingerprint", fingerprint)])
            .await?;
        let matches = answer.matches == Some(true);
        if matches || Instant::now() >= until {
            let why = (!matches).then(|| why(&answer, count));
            let keys = answer.keys;
            return Ok(Live {
                matches,
                router_file: keys.file,
                status: keys.status,
                in_force: keys.in_force,
                count: keys.count,
                why,
            });
        }
        sleep(PAUSE).await;
    }
}

fn why(answer: &KeysAnswer, count: usize) -> String {
    let keys = &answer.keys;
    let detail = keys
        .detail
        .as_deref()
        .map_or(String::new(), |d| format!(" ({d})"));
    match (&*keys.status, keys.in_force) {
        ("ok", _) if keys.count != count => format!(
            "it has {} keys in force, the file holds {count}; it reads {}",
            keys.count, keys.file
        ),
        ("ok", _) => format!("it has other keys in force; it reads {}", keys.file),
        (status, KeysInForce::Keys) => format!(
            "it found {} {status}{detail} and keeps the {} keys it loaded before",
            keys.file, keys.count
        ),
        (status, KeysInForce::Open) => {
            format!(
                "it found {} {status}{detail} and is open to everyone",
                keys.file
            )
        }
        (status, KeysInForce::Closed) => {
            format!(
                "it found {} {status}{detail} and is closed to everyone",
                keys.file
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::admin::Keys;

    use super::*;

    fn answer(status: &str, in_force: KeysInForce, count: usize) -> KeysAnswer {
        KeysAnswer {
            keys: Keys {
                file: "/k".to_owned(),
                status: status.to_owned(),
                detail: None,
                in_force,
                count,
                fingerprint: None,
                problems: Vec::new(),
            },
            matches: Some(false),
        }
    }

    #[test]
    fn why_names_the_count_the_state_and_the_routers_own_file() {
        for (answer, words) in [
            (
                answer("ok", KeysInForce::Keys, 2),
                "it has 2 keys in force, the file holds 3; it reads /k",
            ),
            (
                answer("ok", KeysInForce::Keys, 3),
                "it has other keys in force; it reads /k",
            ),
            (
                answer("empty", KeysInForce::Keys, 3),
                "it found /k empty and keeps the 3 keys it loaded before",
            ),
            (
                answer("missing", KeysInForce::Open, 0),
                "it found /k missing and is open to everyone",
            ),
            (
                answer("missing", KeysInForce::Closed, 0),
                "it found /k missing and is closed to everyone",
            ),
        ] {
            assert_eq!(why(&answer, 3), words);
        }
    }
}
