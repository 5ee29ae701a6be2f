//! The workload: conversations that grow turn by turn after one shared system prompt. Pure text.
//!
//! Every run and every arm starts its prompts with its own mark, so that no prefix cache carries
//! over from one arm to the other. The sessions of one arm share the system prompt, as the
//! conversations of one application do.

use http::HeaderValue;
use serde_json::{Value, json};

/// Words of the shared system prompt; about as many tokens.
const SYSTEM_WORDS: usize = 400;
/// Words a user adds each turn.
const TURN_WORDS: usize = 150;
/// Tokens requested from the engine each turn. Few, because the replay measures the prompt.
const REPLY_TOKENS: u32 = 16;

const WORDS: [&str; 24] = [
    "the",
    "router",
    "keeps",
    "a",
    "conversation",
    "on",
    "the",
    "engine",
    "that",
    "already",
    "holds",
    "its",
    "prefix",
    "so",
    "each",
    "turn",
    "computes",
    "only",
    "what",
    "is",
    "new",
    "and",
    "starts",
    "sooner",
];

/// One conversation so far.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    /// The value of `x-session-id`.
    pub session: HeaderValue,
    messages: Vec<Value>,
    seed: usize,
}

impl Conversation {
    /// The `index`-th conversation of the arm marked `mark`.
    pub(super) fn new(mark: &str, index: usize) -> Self {
        let system = format!("[{mark}] {}", words(0, SYSTEM_WORDS));
        Self {
            session: HeaderValue::from_str(&format!("replay-{mark}-{index}"))
                .expect("a mark is hexadecimal"),
            messages: vec![json!({"role": "system", "content": system})],
            seed: index + 1,
        }
    }

    /// Adds the user's next message and returns the request body to send.
    pub(super) fn ask(&mut self, model: &str) -> Value {
        let turn = self.messages.len();
        let content = format!(
            "session {} turn {turn}: {}",
            self.seed,
            words(self.seed * 7 + turn, TURN_WORDS)
        );
        self.messages
            .push(json!({"role": "user", "content": content}));
        json!({
            "model": model,
            "messages": self.messages,
            "max_tokens": REPLY_TOKENS,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    }

    /// Number of turns so far.
    pub(super) fn turns(&self) -> usize {
        self.messages.len() / 2
    }

    /// Adds the engine's answer.
    pub(super) fn answer(&mut self, content: &str) {
        self.messages
            .push(json!({"role": "assistant", "content": content}));
    }
}

fn words(from: usize, count: usize) -> String {
    // A stride that is coprime to the list's length and depends on `from`: texts of different
    // sessions differ from the first words on.
    let stride = [5, 7, 11, 13][from % 4];
    let text: Vec<&str> = (0..count)
        .map(|i| WORDS[(from + i * stride + i / WORDS.len()) % WORDS.len()])
        .collect();
    text.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(body: &Value, index: usize) -> &str {
        body["messages"][index]["content"].as_str().unwrap()
    }

    #[test]
    fn sessions_of_an_arm_share_the_system_prompt_and_nothing_after_it() {
        let (one, two) = (
            Conversation::new("m", 0).ask("x"),
            Conversation::new("m", 1).ask("x"),
        );
        assert_eq!(content(&one, 0), content(&two, 0));
        assert_ne!(content(&one, 1)[..20], content(&two, 1)[..20]);
    }

    #[test]
    fn arms_differ_from_the_first_block_on() {
        let (on, off) = (
            Conversation::new("aa", 0).ask("x"),
            Conversation::new("bb", 0).ask("x"),
        );
        assert_ne!(content(&on, 0)[..3], content(&off, 0)[..3]);
    }

    #[test]
    fn a_later_turn_extends_the_earlier_one() {
        let mut conversation = Conversation::new("m", 0);
        let first = conversation.ask("x");
        conversation.answer("fine");
        let second = conversation.ask("x");
        let (first, second) = (
            first["messages"].as_array().unwrap(),
            second["messages"].as_array().unwrap(),
        );
        assert_eq!(second[..first.len()], first[..]);
        assert_eq!(second.len(), first.len() + 2);
        conversation.answer("fine");
        assert_eq!(conversation.turns(), 2);
    }
}
