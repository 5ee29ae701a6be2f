//! A settled exchange on its way to the encoder: the captured data and the values of the exchange.
//! Everything is held by reference; the encoder makes texts and JSON.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use answers::Meter;
use answers::redact::{self, Form};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use proto::meta::{MetaOf, RespMetaOf, SCHEMA, Usage};
use router_core::decision::Choice;
use serde::Serialize;
use serde_json::value::RawValue;

use super::budget::Charge;
use super::capture::Capture;
use super::counters::RouteCounters;
use super::exchange::{End, Facts, Settled};
use super::headers::Recorded;
use super::sampling::SampledBy;

/// The record; see the module.
#[derive(Debug)]
pub(crate) struct Record {
    capture: Box<Capture>,
    settled: Box<dyn Settled>,
    sampled_by: SampledBy,
    has_headers: bool,
}

/// The two bodies in the form in which they are stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Of the request.
    pub request: Bytes,
    /// Of the answer.
    pub response: Bytes,
}

/// The meta object of a record, borrowed from it.
pub(super) type Told<'r> = MetaOf<Cow<'r, str>, Json<'r>, Recorded<'r>>;

/// A value of the meta object.
#[derive(Default, Serialize)]
#[serde(untagged)]
pub(super) enum Json<'r> {
    /// No value.
    #[default]
    Null,
    /// A routing decision.
    Choice(&'r Choice),
    /// JSON as the engine wrote it.
    Raw(&'r RawValue),
}

impl Record {
    pub(super) fn new(
        capture: Box<Capture>,
        settled: Box<dyn Settled>,
        sampled_by: SampledBy,
    ) -> Self {
        Self {
            capture,
            settled,
            sampled_by,
            has_headers: true,
        }
    }

    /// The counters of its route.
    pub(crate) fn counters(&self) -> Arc<RouteCounters> {
        Arc::clone(&self.capture.route.counters)
    }

    /// Arrival of its request, milliseconds since the Unix epoch.
    pub(crate) fn unix_ms(&self) -> i64 {
        self.settled.facts().unix_ms
    }

    /// Whether something was left out because room was short.
    pub(crate) fn is_shed(&self) -> bool {
        self.capture.is_shed || self.capture.tap.is_shed() || !self.has_headers
    }

    /// Drops the bodies.
    pub(crate) fn shed_bodies(&mut self) {
        self.capture.shed();
    }

    /// Drops the headers.
    pub(crate) fn shed_headers(&mut self) {
        self.has_headers = false;
    }

    /// The bodies, with the values redacted that the route names.
    pub(crate) fn bodies(&self) -> Stored {
        // Keep both bodies or none: half of them would look complete.
        if self.capture.is_shed || self.capture.tap.is_shed() {
            return Stored::default();
        }
        let paths = &self.capture.route.redact_paths;
        let request = self.capture.request.clone().unwrap_or_default();
        let mut response = Vec::new();
        let cut_at = self.capture.tap.write_to(&mut response);
        let form = self
            .capture
            .answer
            .as_ref()
            .map_or(Form::Document, |answer| answer.form());
        Stored {
            request: redact::body(&request, Form::Document, paths, None),
            response: redact::body(&response.into(), form, paths, cut_at),
        }
    }

    /// The parts that remain after encoding: the charge and the request's buffer.
    pub(crate) fn into_parts(self) -> (Charge, Option<Bytes>) {
        let capture = *self.capture;
        (capture.charge, capture.request)
    }

    /// The meta object.
    pub(super) fn meta(&self, stored: &Stored) -> Told<'_> {
        let (capture, facts) = (&*self.capture, self.settled.facts());
        let meter = facts.meter;
        let mut meta = Told {
            v: Some(SCHEMA),
            request_id: Some(facts.rid.into()),
            client_ip: Some(capture.client.to_string().into()),
            method: Some(facts.method.into()),
            uri: Some(redact::target(facts.target)),
            req_headers: self.has_headers.then(|| capture.headers.recorded()),
            route: Some((&*capture.route.name).into()),
            tenant: facts.owner.map(Cow::from),
            model_req: facts.model.map(Cow::from),
            model: meter.and_then(Meter::model).map(Cow::from),
            attempts: Some(facts.attempts),
            session_id: self.session_id(&facts),
            session_src: Some(facts.source.into()),
            reject_reason: capture.refusal.map(Cow::from),
            status: Some(facts.status),
            usage: meter.and_then(Meter::usage).map(usage),
            finish_reason: meter.and_then(Meter::finish_reason).map(Cow::from),
            stop_reason_raw: meter.and_then(raw_reason),
            complete: Some(is_complete(&facts)),
            client_gone: facts.end == End::Left,
            sampled_by: Some(self.sampled_by.as_str().into()),
            shed: self.is_shed().then(|| "bodies".into()),
            resp_meta: meter.and_then(resp_meta),
            ..Told::default()
        };
        self.add_bodies(&mut meta, stored);
        self.add_times(&mut meta, &facts);
        add_choice(&mut meta, &facts);
        meta
    }

    /// The session of the request, unless its source is one that must not be recorded.
    fn session_id(&self, facts: &Facts<'_>) -> Option<Cow<'_, str>> {
        let id = self.capture.session.as_deref()?;
        let paths = &self.capture.route.redact_paths;
        Some(match redact::hides(paths, facts.source) {
            true => redact::REDACTED.into(),
            false => id.into(),
        })
    }

    fn add_bodies<'r>(&'r self, meta: &mut Told<'r>, stored: &Stored) {
        let capture = &*self.capture;
        let kept = capture.request.as_ref().map_or(0, Bytes::len) as u64;
        meta.req_bytes = Some(capture.request_bytes);
        let is_cut = kept > 0 && kept < capture.request_bytes;
        meta.req_body_truncated = Some(is_cut || capture.awaits_body);
        meta.resp_bytes = Some(capture.tap.bytes);
        meta.chunk_count = Some(capture.tap.chunks);
        meta.resp_body_truncated = Some(capture.tap.is_truncated());
        let answer = capture.answer.as_ref();
        // A redacted body is plain text.
        let is_stored = !stored.response.is_empty() && stored.response != redact::REDACTED;
        meta.resp_encoding = answer
            .filter(|_| is_stored)
            .and_then(|answer| answer.encoding.as_deref())
            .map(Cow::from);
        meta.forwarded_to = answer.and_then(|answer| answer.forwarded_to.as_deref().map(Cow::from));
        meta.stream = capture
            .asked_for_stream
            .or(answer.filter(|answer| answer.is_stream).map(|_| true));
    }

    fn add_times<'r>(&'r self, meta: &mut Told<'r>, facts: &Facts<'r>) {
        let (capture, arrived) = (&*self.capture, facts.arrived);
        let since = |at: Instant| seconds(at.saturating_duration_since(arrived));
        meta.ts_unix_ms = Some(facts.unix_ms);
        meta.ts = DateTime::from_timestamp_millis(facts.unix_ms)
            .map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true).into());
        meta.first_chunk_t = capture.first_chunk.map(since);
        meta.first_token_t = facts.first_token.map(seconds);
        meta.last_chunk_t = capture
            .last_chunk
            .filter(|_| facts.end == End::Whole)
            .map(since);
        meta.rt = Some(seconds(facts.took));
        meta.queue_t = facts.queued.map(seconds);
        let answer = capture.answer.as_ref();
        meta.upstream_connect_t = answer.and_then(|answer| answer.connect).map(seconds);
    }
}

fn is_complete(facts: &Facts<'_>) -> bool {
    match facts.meter {
        Some(meter) => meter.is_complete(),
        None => facts.end == End::Whole,
    }
}

fn add_choice<'r>(meta: &mut Told<'r>, facts: &Facts<'r>) {
    if let Some(peer) = facts.peer {
        // Version 1 adds a note about retries to one of them; here both are the same.
        meta.peer = Some(peer.key.into());
        meta.peer_clean.clone_from(&meta.peer);
        meta.peer_name = Some(peer.name.into());
    }
    if let Some(choice) = facts.choice {
        if let Choice::Send { mode, .. } = choice {
            meta.mode = Some(mode.as_str().into());
        }
        meta.decision = Some(Json::Choice(choice));
    }
}

fn usage(usage: answers::Usage) -> Usage {
    Usage {
        prompt: usage.prompt,
        completion: usage.completion,
        cached: usage.cached,
        reasoning: usage.reasoning,
        total: usage.total,
    }
}

/// The engine's own finish reason, if it differs from the chat API's.
fn raw_reason(meter: &Meter) -> Option<Cow<'_, str>> {
    let raw = meter.raw_finish()?;
    (meter.finish_reason() != Some(raw)).then(|| raw.into())
}

fn resp_meta(meter: &Meter) -> Option<RespMetaOf<Cow<'_, str>, Json<'_>>> {
    let meta = RespMetaOf {
        id: meter.id().map(Cow::from),
        model: meter.model().map(Cow::from),
        usage: meter.raw_usage().and_then(raw),
        actual_usage: meter.raw_actual_usage().and_then(raw),
        ..RespMetaOf::default()
    };
    (!meta.is_empty()).then_some(meta)
}

fn raw(json: &[u8]) -> Option<Json<'_>> {
    serde_json::from_slice(json).ok().map(Json::Raw)
}

/// Seconds, rounded to milliseconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;
