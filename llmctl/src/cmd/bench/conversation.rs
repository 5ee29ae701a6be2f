//! Conversations that grow turn by turn after a shared system prompt. Pure.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::dist::Distribution;
use super::stream::Api;
use super::text::words;

/// The shape of every conversation of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// Requests per conversation.
    pub(super) turns: Distribution,
    /// Tokens of the system prompt that all conversations share.
    pub(super) shared_tokens: usize,
    /// Tokens of the first user message.
    pub(super) prompt_tokens: Distribution,
    /// Tokens of each further user message.
    pub(super) turn_tokens: Distribution,
    /// `max_tokens` of each request.
    pub(super) output_tokens: Distribution,
    /// Whether the engine is told to go on to `max_tokens`.
    pub(super) ignore_eos: bool,
}

/// One conversation so far.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) session: String,
    system: String,
    messages: Vec<Value>,
    random: SmallRng,
    turn: usize,
    turns: usize,
}

impl Conversation {
    /// The `index`-th conversation of the run marked `mark`. The same seed gives the same texts; the
    /// mark stands before all of them, so that no cache of an earlier run helps.
    pub(super) fn new(shape: &Shape, mark: &str, seed: u64, index: u64) -> Self {
        let mut shared = SmallRng::seed_from_u64(seed);
        let mut random =
            SmallRng::seed_from_u64(seed ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let turns = shape.turns.count(&mut random, 1);
        Self {
            session: format!("bench-{mark}-{index}"),
            system: format!("[{mark}] {}", words(shape.shared_tokens, &mut shared)),
            messages: Vec::new(),
            random,
            turn: 0,
            turns,
        }
    }

    /// Adds the user's next message and returns the request's body.
    pub(super) fn ask(&mut self, shape: &Shape, api: Api, model: &str) -> Value {
        let length = match self.turn {
            0 => shape.prompt_tokens,
            _ => shape.turn_tokens,
        };
        let tokens = length.count(&mut self.random, 1);
        // The id first: conversations differ from their first block on.
        let content = format!(
            "{} {}: {}",
            self.session,
            self.turn,
            words(tokens, &mut self.random)
        );
        self.messages
            .push(json!({"role": "user", "content": content}));
        let max_tokens = shape.output_tokens.count(&mut self.random, 1);
        let mut body = json!({"model": model, "max_tokens": max_tokens, "stream": true});
        match api {
            Api::Openai => {
                let mut messages = vec![json!({"role": "system", "content": self.system})];
                messages.extend(self.messages.iter().cloned());
                body["messages"] = Value::Array(messages);
                body["stream_options"] = json!({"include_usage": true});
            }
            Api::Anthropic => {
                body["system"] = json!(self.system);
                body["messages"] = Value::Array(self.messages.clone());
            }
        }
        if shape.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        body
    }

    /// Adds the engine's answer.
    pub(super) fn answer(&mut self, text: &str) {
        self.messages
            .push(json!({"role": "assistant", "content": text}));
        self.turn += 1;
    }

    /// The turn that comes next, from 0; `None` at the end.
    pub(super) fn next_turn(&self) -> Option<usize> {
        (self.turn < self.turns).then_some(self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            turns: Distribution::Fixed(3.0),
            shared_tokens: 50,
            prompt_tokens: Distribution::Uniform(20.0, 40.0),
            turn_tokens: Distribution::Fixed(10.0),
            output_tokens: Distribution::Fixed(16.0),
            ignore_eos: false,
        }
    }

    #[test]
    fn a_later_turn_extends_the_earlier_one_in_both_dialects() {
        for api in [Api::Openai, Api::Anthropic] {
            let mut conversation = Conversation::new(&shape(), "m", 1, 0);
            let mut before: Option<Value> = None;
            while conversation.next_turn().is_some() {
                let body = conversation.ask(&shape(), api, "x");
                if let Some(before) = &before {
                    let earlier = before["messages"].as_array().unwrap();
                    let later = body["messages"].as_array().unwrap();
                    assert_eq!(later[..earlier.len()], earlier[..]);
                    assert_eq!(later.len(), earlier.len() + 2);
                    assert_eq!(before["system"], body["system"]);
                }
                before = Some(body);
                conversation.answer("fine");
            }
            assert_eq!(conversation.turn, 3);
        }
    }

    #[test]
    fn conversations_share_the_system_prompt_and_differ_after_it() {
        let body = |seed, index| {
            Conversation::new(&shape(), "m", seed, index).ask(&shape(), Api::Openai, "x")
        };
        let (one, two) = (body(1, 0), body(1, 1));
        assert_eq!(one["messages"][0], two["messages"][0]);
        let start =
            |body: &Value| body["messages"][1]["content"].as_str().unwrap()[..10].to_owned();
        assert_ne!(start(&one), start(&two));
        assert_eq!(one, body(1, 0), "the same seed gives the same text");
        assert_ne!(one["messages"][0], body(2, 0)["messages"][0]);
    }
}
