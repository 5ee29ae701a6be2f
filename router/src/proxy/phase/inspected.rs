//! The third phase: the body of a request was read and inspected.

use std::sync::Arc;
use std::time::Instant;

use router_config::valid::AliasAnswers;

use super::Authorised;
use crate::content::alias::{self, Alias};
use crate::proxy::stored::StoredUse;
use crate::state::Route;

/// Facts about a request body that was read.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Received {
    /// Length in bytes.
    pub(in crate::proxy) bytes: u64,
    /// When its last byte arrived.
    pub(in crate::proxy) at: Instant,
}

/// The contents of a request.
#[derive(Debug)]
pub(in crate::proxy) struct Asked {
    /// The body's `model`, its first 128 bytes.
    pub(in crate::proxy) model: Option<Arc<str>>,
    /// Both names of a model that the client asked for by an alias.
    pub(in crate::proxy) alias: Option<Box<Alias>>,
    /// What the request has to do with stored objects.
    pub(in crate::proxy) stored: StoredUse,
    /// The session, as in `X-Routed-Session`.
    pub(in crate::proxy) session: Arc<str>,
    /// The source of the session id, as in `X-Routed-Source`.
    pub(in crate::proxy) source: Arc<str>,
}

impl Asked {
    /// The model's name at the engine.
    pub(in crate::proxy) fn served_model(&self) -> Option<&str> {
        match &self.alias {
            Some(alias) => Some(&alias.served),
            None => self.model.as_deref(),
        }
    }

    /// The name to put into answers in place of the engine's, as a JSON string.
    pub(in crate::proxy) fn model_for_client(&self, route: &Route) -> Option<Arc<[u8]>> {
        let alias = self.alias.as_ref()?;
        match route.options.alias_answers.value {
            AliasAnswers::Asked => Some(alias::quoted(&alias.asked).into()),
            AliasAnswers::Served => None,
        }
    }
}

/// A request with a body that was read and inspected.
#[derive(Debug)]
pub(in crate::proxy) struct Inspected {
    /// The phase before.
    pub(in crate::proxy) authorised: Authorised,
    /// The body.
    pub(in crate::proxy) received: Received,
    /// The contents.
    pub(in crate::proxy) asked: Asked,
}

/// An inspected request that waits for a slot.
#[derive(Debug)]
pub(in crate::proxy) struct Queued {
    /// The request.
    pub(in crate::proxy) inspected: Inspected,
    /// Number of requests that were already waiting when it arrived.
    pub(in crate::proxy) ahead: u32,
}
