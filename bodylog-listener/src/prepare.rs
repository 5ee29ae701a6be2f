//! Turns one frame into its two lines. Pure except for the counters.

use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;
use std::ops::{Deref, Range};
use std::sync::Arc;

use answers::Meter;
use answers::finish::chat_word;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, FixedOffset, SecondsFormat, TimeDelta};
use proto::frame::Data;
use proto::meta::{Meta, MetaError, MetaOf, RespMeta, RespMetaOf, SCHEMA, Usage};
use proto::record::Record;
use proto::row::{DetailRow, NO_BACKEND};
use serde::Serialize;
use serde_json::Value;

use crate::extract::{self, Asked, Extracted, Shape};
use verbatim::{Json, Verbatim};

mod verbatim;

/// The sender of a frame, as the listener knows it.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The peer address of the connection.
    address: Arc<str>,
    /// Producer and epoch; `None` for version 1.
    run: Option<(Arc<str>, u64)>,
}

impl Sender {
    /// The sender at this address. `run` is producer and epoch; `None` for version 1.
    pub fn new(source: IpAddr, run: Option<(Arc<str>, u64)>) -> Self {
        Self {
            address: source.to_string().into(),
            run,
        }
    }
}

/// The two lines of a frame.
#[derive(Debug)]
pub struct Lines {
    /// The full record, with its line end.
    pub record: Vec<u8>,
    /// The slim row, with its line end.
    pub row: Vec<u8>,
    /// How the response was parsed.
    pub shape: Shape,
}

/// Why a frame can never be stored.
#[derive(Debug, thiserror::Error)]
pub enum Unstorable {
    /// The meta is not a JSON object.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The schema has a later major version.
    #[error("store a record of schema {0}, this program knows {SCHEMA}")]
    Schema(u32),
}

/// The fields that the listener itself writes into a record. Fields of the same names from a sender
/// are dropped, as are fields of a wrong type: they would be duplicate keys and make the line
/// unreadable.
const OURS: [&str; 14] = [
    "pid",
    "epoch",
    "seq",
    "source_addr",
    "ts_end",
    "req_body",
    "req_body_b64",
    "resp_body",
    "resp_body_b64",
    "resp_choices",
    "resp_meta",
    "resp_body_truncated",
    "resp_encoding",
    "shed",
];

/// Most bytes of the URI in a row, and of any other text. Keeps rows small regardless of what
/// clients send.
const URI_MAX: usize = 2048;
/// See [`URI_MAX`].
const TEXT_MAX: usize = 512;

/// The parsed meta object of a frame.
pub(crate) struct Told<'d>(Form<'d>);

enum Form<'d> {
    /// Stored verbatim.
    Verbatim(Verbatim<'d>),
    /// Serialised again.
    Taken(Meta),
}

impl Told<'_> {
    /// The `x-request-id` and the start time.
    pub(crate) fn request(&self) -> (Option<&str>, Option<&str>) {
        match &self.0 {
            Form::Verbatim(told) => (told.facts.request_id.as_deref(), told.facts.ts.as_deref()),
            Form::Taken(meta) => (meta.request_id.as_deref(), meta.ts.as_deref()),
        }
    }
}

/// Parses the meta of a frame. `without_bodies` must have the value that [`write`] gets later.
///
/// # Errors
/// See [`Unstorable`].
pub(crate) fn told<'d>(
    data: &'d Data,
    sender: &Sender,
    without_bodies: bool,
) -> Result<Told<'d>, Unstorable> {
    // A change to a body must be recorded in the meta object.
    let may_stand = !without_bodies && !extract::looks_like_gzip(&data.resp);
    if may_stand
        && let Some(told) = verbatim::read(&data.meta)
        && told.facts.resp_encoding.is_none()
    {
        return Ok(Told(Form::Verbatim(told)));
    }
    meta_of(data, sender).map(|meta| Told(Form::Taken(meta)))
}

/// The meta object of a frame, with its origin added.
fn meta_of(data: &Data, sender: &Sender) -> Result<Meta, Unstorable> {
    let mut meta = Meta::from_json(&data.meta)?;
    if let Some(v) = meta.v.filter(|v| *v > SCHEMA) {
        return Err(Unstorable::Schema(v));
    }
    for name in OURS {
        meta.extra.remove(name);
    }
    // These fields are not taken from the sender: deduplication depends on them.
    meta.pid = None;
    meta.epoch = None;
    meta.seq = None;
    if let Some((producer, epoch)) = &sender.run {
        meta.pid = Some(producer.to_string());
        meta.epoch = Some(*epoch);
        meta.seq = Some(data.seq);
    }
    Ok(meta)
}

/// Makes the lines of a frame, without its bodies if `without_bodies` is set.
///
/// # Errors
/// See [`Unstorable`].
pub fn lines(data: &Data, sender: &Sender, without_bodies: bool) -> Result<Lines, Unstorable> {
    let told = told(data, sender, without_bodies)?;
    let (mut record, mut row) = (Vec::new(), Vec::new());
    let shape = write(told, data, sender, without_bodies, [&mut record, &mut row]);
    Ok(Lines { record, row, shape })
}

/// Appends the record and the row of a frame, without its bodies if they must be left out. Returns
/// how the response was parsed.
pub(crate) fn write(
    told: Told<'_>,
    data: &Data,
    sender: &Sender,
    without_bodies: bool,
    out: [&mut Vec<u8>; 2],
) -> Shape {
    match told.0 {
        Form::Verbatim(told) => write_verbatim(told, data, sender, out),
        Form::Taken(meta) => write_taken(meta, data, sender, without_bodies, out),
    }
}

fn write_verbatim<'s>(
    mut told: Verbatim<'s>,
    data: &'s Data,
    sender: &'s Sender,
    [out, row]: [&mut Vec<u8>; 2],
) -> Shape {
    let facts = &mut told.facts;
    let (bodies, found) = Bodies::read(facts, data, &data.resp);
    let found = found.map(Cow::Owned, Json::Found);
    facts.resp_meta = merge(facts.resp_meta.take(), found);
    if let Some((producer, epoch)) = &sender.run {
        facts.pid = Some(Cow::Borrowed(producer));
        facts.epoch = Some(*epoch);
        facts.seq = Some(data.seq);
    }
    let (shape, asked, reading) = (bodies.shape, bodies.asked, bodies.reading);
    let record = Record {
        source_addr: Some((&*sender.address).into()),
        ts_end: ts_end(facts.ts.as_deref(), facts.rt).map(Cow::Owned),
        req_body: bodies.req,
        req_body_b64: bodies.is_req_b64,
        resp_body: bodies.resp,
        resp_body_b64: bodies.is_resp_b64,
        resp_choices: bodies.choices,
        meta: Meta::default(),
    };
    write_row(&told.facts, &record, &asked, &reading, row);
    make_room(out, &record);
    told.write(out, |out| {
        let Some((producer, epoch)) = &sender.run else {
            return;
        };
        out.extend_from_slice(b",\"pid\":");
        serde_json::to_writer(&mut *out, &**producer).expect(FINITE);
        let _ = write!(out, ",\"epoch\":{epoch},\"seq\":{}", data.seq);
    });
    record.write_beside_meta(out).expect(FINITE);
    out.push(b'\n');
    shape
}

fn write_taken(
    meta: Meta,
    data: &Data,
    sender: &Sender,
    without_bodies: bool,
    [out, row]: [&mut Vec<u8>; 2],
) -> Shape {
    let (resp, is_cut) = extract::unpacked(&data.resp, meta.resp_encoding.as_deref());
    let (bodies, found) = Bodies::read(&meta, data, &resp);
    let (shape, asked, reading) = (bodies.shape, bodies.asked, bodies.reading);
    let mut record = Record {
        source_addr: Some((&*sender.address).into()),
        ts_end: ts_end(meta.ts.as_deref(), meta.rt).map(Cow::Owned),
        req_body: bodies.req,
        req_body_b64: bodies.is_req_b64,
        resp_body: bodies.resp,
        resp_body_b64: bodies.is_resp_b64,
        resp_choices: bodies.choices,
        meta,
    };
    if matches!(resp, Cow::Owned(_)) {
        record.meta.resp_encoding = None;
        if is_cut {
            record.meta.resp_body_truncated = Some(true);
        }
    }
    record.meta.resp_meta = merge(record.meta.resp_meta.take(), found);
    write_row(&record.meta, &record, &asked, &reading, row);
    if without_bodies {
        record.meta.shed = Some("disk".into());
        record.req_body = Cow::Borrowed("");
        record.resp_body = Cow::Borrowed("");
        record.req_body_b64 = false;
        record.resp_body_b64 = false;
        record.resp_choices.clear();
        if let Some(found) = &mut record.meta.resp_meta {
            found.reasoning = None;
            found.tool_calls.clear();
        }
    }
    make_room(out, &record);
    record.write_json(out).expect(FINITE);
    out.push(b'\n');
    shape
}

/// The parsed bodies.
struct Bodies<'b> {
    req: Cow<'b, str>,
    is_req_b64: bool,
    resp: Cow<'b, str>,
    is_resp_b64: bool,
    choices: Vec<Value>,
    asked: Asked,
    shape: Shape,
    reading: Reading,
}

/// The usage and finish reason of an answer, as the router would have read them.
#[derive(Default)]
struct Reading {
    usage: Option<Usage>,
    /// The chat API's word for it.
    finish_reason: Option<String>,
}

impl Reading {
    /// Parses an answer whose sender reported neither usage nor finish reason.
    fn of<S, J, H>(meta: &MetaOf<S, J, H>, resp: &[u8], shape: Shape) -> Self {
        let told = meta.resp_meta.as_ref();
        let is_told = meta.usage.is_some()
            || meta.finish_reason.is_some()
            || told.is_some_and(|told| told.usage.is_some() || told.finish_reason.is_some());
        let mut meter = match shape {
            Shape::Json if !is_told => Meter::document(),
            Shape::Stream if !is_told => Meter::stream(),
            _ => return Self::default(),
        };
        meter.feed(resp);
        meter.finish();
        Self {
            usage: meter.usage().map(usage_of),
            finish_reason: meter.finish_reason().map(str::to_owned),
        }
    }
}

fn usage_of(usage: answers::Usage) -> Usage {
    Usage {
        prompt: usage.prompt,
        completion: usage.completion,
        cached: usage.cached,
        reasoning: usage.reasoning,
        total: usage.total,
    }
}

impl<'b> Bodies<'b> {
    /// Parses both bodies. `resp` is the decompressed response. Returns the findings in the
    /// response separately.
    fn read<S, J, H>(meta: &MetaOf<S, J, H>, data: &'b Data, resp: &'b [u8]) -> (Self, RespMeta) {
        let found = if meta.status.is_none_or(|status| status < 400) {
            extract::extract(resp)
        } else {
            Extracted::nothing()
        };
        let reading = Reading::of(meta, resp, found.shape);
        let (req, is_req_b64) = text_or_base64(&data.req);
        let (resp, is_resp_b64) = match found.text {
            Some(text) => (Cow::Owned(text), false),
            None => text_or_base64(resp),
        };
        let is_told = meta.stream.is_some() && meta.model_req.is_some();
        let asked = if is_req_b64 || is_told {
            Asked::default()
        } else {
            extract::asked(&req)
        };
        let bodies = Self {
            req,
            is_req_b64,
            resp,
            is_resp_b64,
            choices: found.choices,
            asked,
            shape: found.shape,
            reading,
        };
        (bodies, found.meta)
    }
}

/// The sender's values win: it saw the whole response, while the stored one may be truncated.
fn merge<S, J>(
    told: Option<RespMetaOf<S, J>>,
    found: RespMetaOf<S, J>,
) -> Option<RespMetaOf<S, J>> {
    let Some(mut told) = told else {
        return (!found.is_empty()).then_some(found);
    };
    told.id = told.id.or(found.id);
    told.model = told.model.or(found.model);
    told.finish_reason = told.finish_reason.or(found.finish_reason);
    told.stop_reason = told.stop_reason.or(found.stop_reason);
    told.usage = told.usage.or(found.usage);
    told.actual_usage = told.actual_usage.or(found.actual_usage);
    told.reasoning = told.reasoning.or(found.reasoning);
    told.error = told.error.or(found.error);
    if told.tool_calls.is_empty() {
        told.tool_calls = found.tool_calls;
    }
    (!told.is_empty()).then_some(told)
}

fn text_or_base64(bytes: &[u8]) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), false),
        Err(_) => (Cow::Owned(BASE64_STANDARD.encode(bytes)), true),
    }
}

fn ts_end(ts: Option<&str>, rt: Option<f64>) -> Option<String> {
    let ts = ts?;
    let rt = rt.filter(|rt| *rt > 0.0 && *rt < 1e9).unwrap_or(0.0);
    let took = (rt * 1000.0).round() as i64;
    if let Some(end) = later_in_the_minute(ts, took) {
        return Some(end);
    }
    let start: DateTime<FixedOffset> = DateTime::parse_from_rfc3339(ts).ok()?;
    let end = start.checked_add_signed(TimeDelta::milliseconds(took))?;
    Some(end.to_rfc3339_opts(SecondsFormat::Millis, ts.ends_with('Z')))
}

/// Adds this many milliseconds to a time. Handles only the simple case: a time in the router's own
/// format, on a day that every month has, and with the result in the same minute.
fn later_in_the_minute(ts: &str, ms: i64) -> Option<String> {
    let bytes = ts.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd.dddZ";
    let is_plain = bytes.len() == shape.len()
        && bytes.iter().zip(shape).all(|(byte, like)| match like {
            b'd' => byte.is_ascii_digit(),
            _ => byte == like,
        });
    if !is_plain {
        return None;
    }
    let number = |range: Range<usize>| {
        let digits = bytes[range].iter();
        digits.fold(0, |n, digit| n * 10 + i64::from(digit - b'0'))
    };
    let is_time = (1..=12).contains(&number(5..7))
        && (1..=28).contains(&number(8..10))
        && number(11..13) < 24
        && number(14..16) < 60;
    let end = number(17..19) * 1000 + number(20..23) + ms;
    if !is_time || !(0..60_000).contains(&end) {
        return None;
    }
    let mut out = ts.to_owned();
    out.truncate(17);
    for (at, place) in [10_000, 1000, 100, 10, 1].into_iter().enumerate() {
        if at == 2 {
            out.push('.');
        }
        out.push(char::from(b'0' + (end / place % 10) as u8));
    }
    out.push('Z');
    Some(out)
}

/// Quotes and line ends grow when escaped. Without spare room, a large body would be reallocated
/// for them.
fn make_room(out: &mut Vec<u8>, record: &Record<'_>) {
    let bodies = record.req_body.len() + record.resp_body.len();
    out.reserve(2048 + bodies + bodies / 8);
}

const FINITE: &str = "records have text keys and finite numbers";

/// Appends the row of an exchange. `record` supplies the values besides its meta fields.
fn write_row<S: Deref<Target = str>, J: Serialize, H>(
    meta: &MetaOf<S, J, H>,
    record: &Record<'_>,
    asked: &Asked,
    reading: &Reading,
    out: &mut Vec<u8>,
) {
    fn cut(text: &str, max: usize) -> Cow<'_, str> {
        Cow::Borrowed(&text[..text.floor_char_boundary(max)])
    }
    fn text(value: &Option<impl Deref<Target = str>>) -> Cow<'_, str> {
        cut(value.as_deref().unwrap_or_default(), TEXT_MAX)
    }
    let found = meta.resp_meta.as_ref();
    let found_usage = || {
        let usage = serde_json::to_vec(found?.usage.as_ref()?).ok()?;
        answers::Usage::of(&usage).map(usage_of)
    };
    let usage = meta.usage.or(reading.usage).or_else(found_usage);
    let usage = usage.unwrap_or_default();
    let finish_reason = meta
        .finish_reason
        .as_deref()
        .or(reading.finish_reason.as_deref())
        .or_else(|| {
            found?
                .finish_reason
                .as_deref()
                .or(found?.stop_reason.as_deref())
        })
        .map(chat_word)
        .unwrap_or_default();
    let model_req = meta.model_req.as_deref().or(asked.model.as_deref());
    let model = meta.model.as_deref().or_else(|| found?.model.as_deref());
    let row = DetailRow {
        v: SCHEMA,
        ts: text(&meta.ts),
        ts_end: text(&record.ts_end),
        request_id: text(&meta.request_id),
        pid: text(&meta.pid),
        epoch: meta.epoch.unwrap_or(0),
        seq: meta.seq.unwrap_or(0),
        source_addr: text(&record.source_addr),
        method: text(&meta.method),
        uri: cut(meta.uri.as_deref().unwrap_or_default(), URI_MAX),
        route: text(&meta.route),
        tenant: text(&meta.tenant),
        model_req: cut(model_req.unwrap_or_default(), TEXT_MAX),
        model: cut(model.unwrap_or_default(), TEXT_MAX),
        stream: meta.stream.or(asked.stream),
        status: meta.status.unwrap_or(0),
        peer: text(&meta.peer),
        peer_name: text(&meta.peer_name),
        forwarded_to: text(&meta.forwarded_to),
        backend: cut(backend(meta), TEXT_MAX),
        attempts: meta.attempts.unwrap_or(0),
        mode: text(&meta.mode),
        session_src: text(&meta.session_src),
        reject_reason: text(&meta.reject_reason),
        finish_reason: cut(finish_reason, TEXT_MAX),
        complete: meta.complete,
        client_gone: meta.client_gone,
        resp_body_truncated: meta.resp_body_truncated.unwrap_or(false),
        frt: meta.first_chunk_t.unwrap_or(0.0),
        first_token_t: meta.first_token_t,
        lct: meta.last_chunk_t.unwrap_or(0.0),
        rt: meta.rt.unwrap_or(0.0),
        upstream_connect_t: meta.upstream_connect_t,
        queue_t: meta.queue_t,
        chunk_count: meta.chunk_count.unwrap_or(0),
        req_bytes: meta.req_bytes.unwrap_or(record.req_body.len() as u64),
        resp_bytes: meta
            .resp_bytes
            .filter(|bytes| *bytes > 0)
            .unwrap_or(record.resp_body.len() as u64),
        prompt_tokens: usage.prompt,
        completion_tokens: usage.completion,
        cached_tokens: usage.cached,
        total_tokens: usage.total,
        reasoning_tokens: usage.reasoning,
        sampled_by: text(&meta.sampled_by),
        shed: text(&meta.shed),
    };
    row.write_json(out).expect(FINITE);
    out.push(b'\n');
}

/// `host:port` of the backend that answered.
fn backend<S: Deref<Target = str>, J, H>(meta: &MetaOf<S, J, H>) -> &str {
    if let Some(url) = meta.forwarded_to.as_deref().filter(|url| !url.is_empty()) {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        return host.split(['/', '?']).next().unwrap_or(host);
    }
    let peer = meta.peer_clean.as_deref().or(meta.peer.as_deref());
    match peer.filter(|peer| !peer.is_empty()) {
        None => NO_BACKEND,
        Some(peer) if !peer.contains('(') => peer,
        Some(peer) => peer.split_once(" (retry#").map_or(peer, |(clean, _)| clean),
    }
}

#[cfg(test)]
mod tests;
