//! Reads one answer from the client's side: when content came, and what it was.

use std::time::Duration;

use answers::Usage;
use answers::meter::Meter;
use answers::sse::Events;
use serde_json::Value;

/// The dialect of the API under load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// POST /v1/chat/completions
    #[default]
    Openai,
    /// POST /v1/messages
    Anthropic,
}

/// What was seen of an answer so far.
#[derive(Debug)]
pub(super) struct Answer {
    meter: Meter,
    events: Events,
    text: String,
    error: Option<String>,
    /// From the send to the first event with content.
    pub(super) ttft: Option<Duration>,
    /// Between two reads with content, divided over the events of the later read.
    pub(super) gaps: Vec<Gap>,
    last_content: Duration,
}

/// The time between two events with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) each: Duration,
    pub(super) events: u64,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            meter: Meter::stream(),
            events: Events::default(),
            text: String::new(),
            error: None,
            ttft: None,
            gaps: Vec::new(),
            last_content: Duration::ZERO,
        }
    }
}

impl Answer {
    /// Takes the next bytes, which came `at` after the send.
    pub(super) fn feed(&mut self, chunk: &[u8], at: Duration) {
        self.meter.feed(chunk);
        let (text, error) = (&mut self.text, &mut self.error);
        let mut with_content = 0;
        self.events.feed(chunk, |event| {
            let Ok(event) = serde_json::from_slice::<Value>(event.data) else {
                return;
            };
            if let Some(said) = error_of(&event) {
                error.get_or_insert(said);
            }
            let delta = content_of(&event);
            if delta.counts {
                with_content += 1;
            }
            text.push_str(delta.text);
        });
        if with_content == 0 {
            return;
        }
        match self.ttft {
            None => self.ttft = Some(at),
            Some(_) => self.gaps.push(Gap {
                each: at.saturating_sub(self.last_content) / with_content,
                events: with_content.into(),
            }),
        }
        self.last_content = at;
    }

    /// The end of the body.
    ///
    /// # Errors
    /// The class of the fault: an error event, a cut stream, or an answer without content.
    pub(super) fn finish(mut self) -> Result<Whole, String> {
        self.meter.finish();
        if let Some(error) = self.error {
            return Err(format!("error event: {error}"));
        }
        if !self.meter.is_complete() {
            return Err("cut: the stream ended without its terminator".to_owned());
        }
        let ttft = self.ttft.ok_or("empty: an answer without content")?;
        let streamed = 1 + self.gaps.iter().map(|gap| gap.events).sum::<u64>();
        Ok(Whole {
            ttft,
            gaps: self.gaps,
            text: self.text,
            usage: self.meter.usage(),
            output: self.meter.completion().unwrap_or(streamed),
        })
    }
}

/// A complete answer.
#[derive(Debug, PartialEq)]
pub(super) struct Whole {
    pub(super) ttft: Duration,
    pub(super) gaps: Vec<Gap>,
    pub(super) text: String,
    /// What the engine counted; `None` where it does not.
    pub(super) usage: Option<Usage>,
    /// From the usage, else the number of events with content.
    pub(super) output: u64,
}

/// The content of one event.
#[derive(Debug, Default)]
struct Delta<'a> {
    text: &'a str,
    /// Reasoning and tool calls are content too, but do not go into the next turn's prompt.
    counts: bool,
}

fn content_of(event: &Value) -> Delta<'_> {
    // OpenAI: choices[0].delta. Anthropic: content_block_delta.
    let delta = match event["type"].as_str() {
        Some("content_block_delta") => &event["delta"],
        Some(_) => return Delta::default(),
        None => &event["choices"][0]["delta"],
    };
    let said = |name: &str| delta[name].as_str().filter(|text| !text.is_empty());
    let text = said("content").or_else(|| said("text")).unwrap_or_default();
    let hidden = ["reasoning_content", "reasoning", "thinking", "partial_json"];
    Delta {
        text,
        counts: !text.is_empty()
            || hidden.iter().any(|name| said(name).is_some())
            || delta["tool_calls"].is_array(),
    }
}

fn error_of(event: &Value) -> Option<String> {
    let error = event.get("error").filter(|error| !error.is_null())?;
    let word = ["type", "code"]
        .iter()
        .find_map(|name| error[*name].as_str());
    Some(word.unwrap_or("unnamed").chars().take(60).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENAI: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        : ping\n\n\
        data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"h\u{e9}\"}}]}\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"llo\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":48}}}\n\n\
        data: [DONE]\n\n";
    const ANTHROPIC: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":16,\"cache_read_input_tokens\":48}}}\n\n\
        event: ping\ndata: {\"type\":\"ping\"}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\u{e9}\"}}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"llo\"}}\n\n\
        event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

    fn read(chunks: &[&[u8]]) -> Result<Whole, String> {
        let mut answer = Answer::default();
        for (at, chunk) in chunks.iter().enumerate() {
            answer.feed(chunk, Duration::from_millis(at as u64 * 10));
        }
        answer.finish()
    }

    #[test]
    fn an_answer_reads_the_same_wherever_it_is_split() {
        for stream in [OPENAI, ANTHROPIC] {
            for at in 0..=stream.len() {
                let (one, two) = stream.as_bytes().split_at(at);
                let whole = read(&[one, two]).unwrap();
                let usage = whole.usage.unwrap();
                assert_eq!(
                    (&*whole.text, usage.prompt, usage.cached, whole.output),
                    ("h\u{e9}llo", 64, 48, 3),
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn the_first_token_and_each_gap_begin_at_events_with_content() {
        let events: Vec<&[u8]> = OPENAI.as_bytes().split_inclusive(|&b| b == b'\n').collect();
        let whole = read(&events).unwrap();
        // The reasoning ends on line 6, the two texts on lines 8 and 10.
        let tens = |n: u64| Duration::from_millis(n * 10);
        assert_eq!(whole.ttft, tens(5));
        let gap = Gap {
            each: tens(2),
            events: 1,
        };
        assert_eq!(whole.gaps, [gap, gap]);
    }

    #[test]
    fn events_that_come_together_share_their_gap() {
        let (first, rest) = OPENAI.as_bytes().split_at(
            OPENAI
                .find("data: {\"choices\":[{\"delta\":{\"content\":\"h")
                .unwrap(),
        );
        let whole = read(&[first, rest]).unwrap();
        assert_eq!(
            whole.gaps,
            [Gap {
                each: Duration::from_millis(5),
                events: 2
            }]
        );
    }

    #[test]
    fn what_went_wrong_is_named() {
        let cut = &OPENAI.as_bytes()[..OPENAI.find("llo").unwrap()];
        assert_eq!(
            read(&[cut]).unwrap_err(),
            "cut: the stream ended without its terminator"
        );
        let error =
            b"data: {\"error\":{\"message\":\"secret prompt\",\"type\":\"server_error\"}}\n\n";
        assert_eq!(read(&[error]).unwrap_err(), "error event: server_error");
        assert_eq!(
            read(&[b"data: [DONE]\n\n"]).unwrap_err(),
            "empty: an answer without content"
        );
    }
}
