//! A settled exchange as the body log reads it.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use router_bodylog::{Facts, PeerNames, Settled};
use router_core::decision::Choice;

use super::exchange::Times;
use super::measure::End;
use crate::state::Peer;
use answers::Meter;

/// What an exchange knows at its end.
#[derive(Debug)]
pub(super) struct Recorded {
    pub rid: Arc<str>,
    pub method: Method,
    /// As the client sent it.
    pub uri: Uri,
    /// The path without the route prefix starts here.
    pub path_at: usize,
    pub owner: Option<Arc<str>>,
    pub model: Option<Arc<str>>,
    pub source: Arc<str>,
    pub choice: Option<Choice>,
    pub peer: Option<Arc<Peer>>,
    pub attempts: u32,
    pub status: u16,
    pub unix_ms: i64,
    pub times: Times,
    pub queued: Option<Duration>,
    pub took: Duration,
    pub end: End,
    pub meter: Option<Meter>,
}

impl Settled for Recorded {
    fn facts(&self) -> Facts<'_> {
        let target = self.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Facts {
            rid: &self.rid,
            method: self.method.as_str(),
            target: target.get(self.path_at..).unwrap_or("/"),
            owner: self.owner.as_deref(),
            model: self.model.as_deref(),
            source: &self.source,
            choice: self.choice.as_ref(),
            peer: self.peer.as_ref().map(|peer| PeerNames {
                key: peer.spec.key.as_str(),
                name: &peer.spec.name,
            }),
            attempts: self.attempts,
            status: self.status,
            unix_ms: self.unix_ms,
            arrived: self.times.arrived,
            queued: self.queued,
            took: self.took,
            end: match self.end {
                End::Whole => router_bodylog::End::Whole,
                End::Broken => router_bodylog::End::Broken,
                End::Left => router_bodylog::End::Left,
            },
            meter: self.meter.as_ref(),
        }
    }
}
