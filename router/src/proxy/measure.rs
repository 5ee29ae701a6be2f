//! Takes samples of one relayed answer for its pool: the time to first token as soon as it is
//! known, the decode rate at the end.

use std::time::{Duration, Instant};

use answers::Meter;
use answers::inflate::Inflate;
use bytes::Bytes;
use http::{Method, header, response};
use router_bodylog::End;
use router_core::book::PoolId;
use router_core::signal::Sample;

use super::phase::Observed;
use super::respond::Media;

/// Answers below either bound give no rate sample: it would measure the overhead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    /// `tps_min_tokens`.
    pub tokens: u32,
    /// `tps_min_decode_s`.
    pub decode: Duration,
}

/// Measures one answer to a POST with a 2xx status. Other answers are not measured.
#[derive(Debug)]
pub(super) struct Measure {
    /// The pool whose signals the samples update.
    pub pool: PoolId,
    /// Reads the body. `None` if its content type or encoding is not supported.
    pub meter: Option<Meter>,
    is_stream: bool,
    /// Decodes a compressed answer for the meter.
    inflate: Option<Box<Inflate>>,
    /// Bytes decoded so far.
    inflated: usize,
}

/// Most decoded bytes that are read of a compressed answer: a small body may decode to a huge one.
const INFLATED_MAX: usize = 64 << 20;

/// The arrival time of a request and the times of its answer's chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// When the request's head was read.
    pub arrived: Instant,
    /// When the first chunk arrived.
    pub first: Option<Instant>,
    /// When the first event with generated content arrived.
    pub first_token: Option<Instant>,
    /// When the last chunk arrived.
    pub last: Option<Instant>,
}

impl Span {
    /// No chunk has arrived.
    pub(super) fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            first: None,
            first_token: None,
            last: None,
        }
    }

    /// Records a chunk.
    pub(super) fn chunk(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

impl Measure {
    /// Decides by the response's head whether to measure.
    pub(super) fn of(
        method: &Method,
        head: &response::Parts,
        pool: PoolId,
        observed: Observed,
    ) -> Option<Box<Self>> {
        if *method != Method::POST || !head.status.is_success() {
            return None;
        }
        let is_stream = observed.media == Media::EventStream;
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        let encoding = encoding.filter(|_| !observed.is_decoded);
        let inflate = encoding.and_then(|encoding| Inflate::of(encoding.as_bytes()));
        let meter = match (encoding.is_some() && inflate.is_none(), is_stream) {
            (true, _) => None,
            (false, true) => Some(Meter::stream()),
            (false, false) => (observed.media == Media::Json).then(Meter::document),
        };
        Some(Box::new(Self {
            pool,
            inflate: inflate.filter(|_| meter.is_some()).map(Box::new),
            inflated: 0,
            meter,
            is_stream,
        }))
    }

    /// Reads the relayed bytes. Returns the sample of the first token if this part of a stream
    /// contains it.
    pub(super) fn feed(&mut self, data: &[u8], span: &mut Span, now: Instant) -> Option<Sample> {
        if !self.read(data) {
            return None;
        }
        span.first_token = Some(now);
        let ttft = now.saturating_duration_since(span.arrived);
        Some(Sample::Ttft(ttft.as_secs_f64() * 1000.0))
    }

    /// Reads the relayed bytes, decoded. Returns whether they contain the first token.
    fn read(&mut self, data: &[u8]) -> bool {
        let Some(meter) = &mut self.meter else {
            return false;
        };
        let Some(inflate) = &mut self.inflate else {
            return meter.feed(data);
        };
        inflate.feed(Bytes::copy_from_slice(data));
        let mut has_token = false;
        loop {
            match inflate.decode() {
                Ok(Some(piece)) if self.inflated + piece.len() <= INFLATED_MAX => {
                    self.inflated += piece.len();
                    has_token |= meter.feed(&piece);
                }
                Ok(None) => return has_token,
                // An answer that cannot be decoded or is too large is not read any further.
                Ok(Some(_)) | Err(_) => {
                    self.meter = None;
                    return has_token;
                }
            }
        }
    }

    /// Reads what the last chunk left open.
    pub(super) fn finish(&mut self) {
        let Some(meter) = &mut self.meter else { return };
        // An answer that broke off has no sound end.
        if let Some(Ok(rest)) = self.inflate.as_mut().map(|inflate| inflate.finish()) {
            meter.feed(&rest);
        }
        meter.finish();
    }

    /// The sample of the whole answer. For a stream the rate covers the decode time, from the first
    /// token to the last chunk; otherwise the whole request. An answer that is too short gives no
    /// rate.
    pub(super) fn rate(&self, span: &Span, end: End, least: Least) -> Option<Sample> {
        let meter = self.meter.as_ref();
        let began = if self.is_stream {
            span.first_token.or(span.first)
        } else {
            Some(span.arrived)
        };
        let time = match (began, span.last) {
            (Some(began), Some(last)) => last.saturating_duration_since(began),
            _ => Duration::ZERO,
        };
        match meter.and_then(Meter::completion) {
            Some(tokens)
                if tokens >= u64::from(least.tokens) && time >= least.decode && !time.is_zero() =>
            {
                Some(Sample::Tps(tokens as f64 / time.as_secs_f64()))
            }
            // A running or opening usage is not the final usage of the answer.
            _ if end == End::Left && !meter.is_some_and(Meter::is_complete) => {
                Some(Sample::Aborted)
            }
            None if end == End::Whole && meter.and_then(Meter::usage).is_none() => {
                Some(Sample::NoUsage)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const JSON: &[(&str, &str)] = &[("content-type", "application/json; charset=utf-8")];

    fn measure(method: &Method, status: u16, headers: &[(&str, &str)]) -> Option<Box<Measure>> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let head = response.body(()).unwrap().into_parts().0;
        let observed = Observed {
            media: Media::of(&head.headers),
            is_decoded: false,
            is_held: false,
        };
        Measure::of(method, &head, PoolId(0), observed)
    }

    /// A request that arrived at 0 ms, with the times of its first and last chunk in milliseconds.
    fn span(first: u64, last: u64) -> Span {
        let mut span = Span::new(Instant::now());
        for ms in [first, last] {
            span.chunk(span.arrived + Duration::from_millis(ms));
        }
        span
    }

    fn rate(
        headers: &[(&str, &str)],
        body: &str,
        first: u64,
        last: u64,
        end: End,
    ) -> Option<Sample> {
        let mut measure = measure(&Method::POST, 200, headers).unwrap();
        let now = Instant::now();
        measure.feed(body.as_bytes(), &mut Span::new(now), now);
        let least = Least {
            tokens: 16,
            decode: Duration::from_millis(500),
        };
        measure.rate(&span(first, last), end, least)
    }

    fn usage(tokens: u64) -> String {
        format!("data: {{\"usage\":{{\"completion_tokens\":{tokens}}}}}\n\n")
    }

    #[test]
    fn only_a_success_that_answers_a_post_is_measured() {
        assert!(measure(&Method::POST, 200, JSON).is_some());
        assert!(measure(&Method::POST, 299, STREAM).is_some());
        assert!(measure(&Method::POST, 300, JSON).is_none());
        assert!(measure(&Method::POST, 429, JSON).is_none());
        assert!(measure(&Method::GET, 200, JSON).is_none());
    }

    #[test]
    fn the_first_token_of_a_stream_is_a_sample_and_its_first_byte_is_not() {
        let mut span = Span::new(Instant::now());
        let mut stream = measure(&Method::POST, 200, STREAM).unwrap();
        let mut feed = |text: &str, us| {
            let now = span.arrived + Duration::from_micros(us);
            let data = format!("data: {text}\n\n");
            stream.feed(data.as_bytes(), &mut span, now)
        };
        let opening = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
        let token = r#"{"choices":[{"delta":{"content":"x"}}]}"#;
        assert_eq!(feed(opening, 10), None);
        assert_eq!(feed(token, 35_500), Some(Sample::Ttft(35.5)));
        assert_eq!(feed(token, 40_000), None);
        let mut document = measure(&Method::POST, 200, JSON).unwrap();
        let now = span.arrived;
        let answer = r#"{"choices":[{"message":{"content":"x"}}]}"#;
        assert_eq!(document.feed(answer.as_bytes(), &mut span, now), None);
    }

    #[test]
    fn the_wait_before_the_first_token_is_no_decoding() {
        let mut stream = measure(&Method::POST, 200, STREAM).unwrap();
        let mut span = span(0, 2250);
        let first_token = span.arrived + Duration::from_millis(1000);
        let body = "data: {\"choices\":[{\"text\":\"x\"}]}\n\n".to_owned() + &usage(20);
        stream.feed(body.as_bytes(), &mut span, first_token);
        let least = Least {
            tokens: 16,
            decode: Duration::from_millis(500),
        };
        let rate = stream.rate(&span, End::Whole, least);
        assert_eq!(rate, Some(Sample::Tps(16.0)));
    }

    #[test]
    fn the_last_usage_counts_and_the_time_is_that_of_decoding() {
        let body = usage(19) + &usage(20);
        let sample = rate(STREAM, &body, 700, 1950, End::Whole);
        assert_eq!(sample, Some(Sample::Tps(16.0)));
    }

    #[test]
    fn the_rate_of_a_document_is_over_the_whole_request() {
        let body = r#"{"usage":{"completion_tokens":20}}"#;
        let sample = rate(JSON, body, 1250, 1250, End::Whole);
        assert_eq!(sample, Some(Sample::Tps(16.0)));
    }

    #[test]
    fn too_few_tokens_or_too_short_a_time_give_no_sample() {
        for (tokens, ms, expected) in [
            (15, 1000, None),
            (16, 490, None),
            (16, 500, Some(Sample::Tps(32.0))),
        ] {
            assert_eq!(rate(STREAM, &usage(tokens), 0, ms, End::Whole), expected);
        }
    }

    #[test]
    fn missing_usage_is_told_apart_by_who_ended_the_answer() {
        for (end, expected) in [
            (End::Whole, Some(Sample::NoUsage)),
            (End::Broken, None),
            (End::Left, Some(Sample::Aborted)),
        ] {
            assert_eq!(rate(STREAM, "data: {}\n\n", 0, 900, end), expected);
        }
    }

    #[test]
    fn usage_without_completion_is_usage() {
        let body = r#"{"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
        assert_eq!(rate(JSON, body, 0, 900, End::Whole), None);
    }

    #[test]
    fn the_opening_usage_of_a_stream_left_early_is_no_rate() {
        let body =
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"output_tokens\":1}}}\n\n";
        assert_eq!(rate(STREAM, body, 0, 900, End::Left), Some(Sample::Aborted));
    }

    #[test]
    fn a_body_in_an_encoding_that_is_not_decoded_counts_as_one_without_usage() {
        let br = [JSON[0], ("content-encoding", "br")];
        let body = r#"{"usage":{"completion_tokens":20}}"#;
        let sample = rate(&br, body, 0, 900, End::Whole);
        assert_eq!(sample, Some(Sample::NoUsage));
    }

    #[test]
    fn a_body_that_passes_in_gzip_is_read_as_well() {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(usage(20).as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let headers = [STREAM[0], ("content-encoding", "gzip")];
        let mut measure = measure(&Method::POST, 200, &headers).unwrap();
        let now = Instant::now();
        for piece in gzip.chunks(7) {
            measure.feed(piece, &mut Span::new(now), now);
        }
        measure.finish();
        let usage = measure.meter.and_then(|meter| meter.usage());
        assert_eq!(usage.map(|usage| usage.completion), Some(20));
    }
}
