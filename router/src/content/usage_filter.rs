//! Drops the usage chunk that the client did not ask for from its stream.
//!
//! Drops the data of a chunk that has a usage object and no choices, and the blank line that ends
//! the event. Anything that is not understood stays.

use std::sync::LazyLock;

use answers::json::may_have;
use answers::sse::{Piece, field};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));

/// The state of the event that is passing.
#[derive(Debug, Default)]
pub(super) struct UsageFilter {
    /// Whether some line of the event passed, so that its end must pass too.
    open: bool,
    /// Whether its data was dropped.
    dropped: bool,
    /// Whether the last line was dropped. The rest of its line end is then dropped too.
    last_dropped: bool,
}

impl UsageFilter {
    /// Whether to drop a piece. Never if its line has begun to pass.
    pub(super) fn drops(&mut self, piece: Piece<'_>, passing: bool) -> bool {
        self.last_dropped = match piece {
            Piece::End(_) => self.last_dropped,
            Piece::Line { text: b"", .. } => {
                let whole = self.dropped && !self.open;
                *self = Self::default();
                whole
            }
            Piece::Line { text, .. } if !passing && is_usage_chunk(text) => {
                self.dropped = true;
                true
            }
            Piece::Line { .. } | Piece::Rest(_) => {
                self.open = true;
                false
            }
        };
        self.last_dropped
    }

    /// Whether a chunk of whole events has no usage chunk. Its lines then need no look of their own.
    pub(super) fn leaves_alone(&self, chunk: &[u8]) -> bool {
        !self.open && !self.dropped && chunk.ends_with(b"\n\n") && !may_have(chunk, &USAGE, b'{')
    }

    /// Whether a line with this beginning may be dropped: it is data, and no choices have been seen
    /// in it.
    pub(super) fn may_drop(start: &[u8]) -> bool {
        static CHOICES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"choices\""));
        let is_data = start.starts_with(b"data:") || b"data:".starts_with(start);
        let choices = CHOICES.find(start).map(|at| &start[at + 9..]);
        let inside = choices.and_then(|rest| {
            let value = rest.trim_ascii_start().strip_prefix(b":")?;
            Some(
                value
                    .trim_ascii_start()
                    .strip_prefix(b"[")?
                    .trim_ascii_start(),
            )
        });
        is_data && inside.is_none_or(|inside| matches!(inside.first(), None | Some(b']')))
    }
}

fn is_usage_chunk(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        choices: &'a RawValue,
        #[serde(borrow)]
        usage: &'a RawValue,
    }
    let Some(data) = field(line, b"data").filter(|data| may_have(data, &USAGE, b'{')) else {
        return false;
    };
    serde_json::from_slice::<Chunk<'_>>(data).is_ok_and(|chunk| {
        let choices = chunk.choices.get().strip_prefix('[');
        let is_empty = choices.is_some_and(|rest| rest.trim_start() == "]");
        is_empty && chunk.usage.get().starts_with('{')
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::content::filter::Filter;

    const USAGE: &str =
        r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;

    fn passed(stream: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut filter = Filter::new(true, None);
        let mut out = Vec::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([stream.len()]) {
            out.extend_from_slice(&filter.feed(&Bytes::copy_from_slice(&stream[from..to])));
            from = to;
        }
        out.extend_from_slice(&filter.finish());
        assert!(!filter.holds());
        out
    }

    /// Feeds a stream whole, cut at every two places, and byte by byte.
    fn expect(stream: &str, expected: &str) {
        let bytes = stream.as_bytes();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(text(passed(bytes, &[])), expected);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let out = text(passed(bytes, &[first, second]));
                assert_eq!(out, expected, "cut at {first} and {second}");
            }
        }
        let every: Vec<usize> = (1..bytes.len()).collect();
        assert_eq!(text(passed(bytes, &every)), expected);
    }

    #[test]
    fn the_usage_chunk_goes_with_its_blank_line_and_all_else_stays() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = format!(
                ": hi{end}{end}data: {{\"choices\":[{{}}],\"usage\":null}}{end}{end}\
                 {USAGE}{end}{end}data: [DONE]{end}{end}"
            );
            let without = stream.replace(&format!("{USAGE}{end}{end}"), "");
            expect(&stream, &without);
        }
    }

    #[test]
    fn it_goes_at_the_end_of_a_stream_that_just_stops() {
        expect(&format!("data: x\n\n{USAGE}\n"), "data: x\n\n");
        expect(&format!("data: x\n\n{USAGE}"), "data: x\n\n");
    }

    #[test]
    fn lines_around_it_in_its_event_stay_and_so_does_their_end() {
        expect(&format!("id: 7\n{USAGE}\n\n"), "id: 7\n\n");
        expect(&format!("{USAGE}\nid: 7\n\n"), "id: 7\n\n");
    }

    #[test]
    fn a_chunk_that_says_more_passes() {
        for stay in [
            r#"data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#,
            r#"data: {"choices":[],"prompt_filter_results":[]}"#,
            r#"data: {"choices":[],"usage":null}"#,
            r#"data: {"usage":{"prompt_tokens":1}}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":1}"#,
            r#"data: {"choices":[],"choices":[],"usage":{}}"#,
            r#"event: {"choices":[],"usage":{}}"#,
            "data: [DONE]",
            "data",
        ] {
            let stream = format!("{stay}\n\n");
            expect(&stream, &stream);
        }
    }

    #[test]
    fn the_beginning_of_a_line_is_held_back_only_while_it_may_become_usage() {
        for (start, held) in [
            ("dat", true),
            ("data: {\"id\":\"c\",\"choi", true),
            ("data: {\"choices\": [ ", true),
            ("data: {\"choices\":[],\"us", true),
            (": ping", false),
            ("event: x", false),
            ("data: {\"choices\" : [ {\"del", false),
        ] {
            let mut filter = Filter::new(true, None);
            let chunk = Bytes::copy_from_slice(start.as_bytes());
            assert_eq!(filter.feed(&chunk).is_empty(), held, "{start}");
            assert_eq!(filter.holds(), held, "{start}");
            assert_eq!(filter.finish().len(), if held { start.len() } else { 0 });
        }
    }

    #[test]
    fn a_chunk_of_whole_lines_passes_without_a_copy() {
        let mut filter = Filter::new(true, None);
        let chunk = Bytes::from("data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n".to_owned());
        let out = filter.feed(&chunk);
        assert_eq!((out.as_ptr(), out.len()), (chunk.as_ptr(), chunk.len()));
    }
}
