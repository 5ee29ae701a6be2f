//! Token counts out of usage objects, whatever API they belong to.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt. Where the API counts tokens read from a cache apart (Anthropic), without
    /// those.
    pub prompt: u64,
    /// Generated.
    pub completion: u64,
    /// Of the prompt, read from a cache.
    pub cached: u64,
    /// Generated as reasoning; a part of `completion`.
    pub reasoning: u64,
    /// The peer's own sum, else prompt and completion.
    pub total: u64,
}

/// What the usage objects of one answer said so far. `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// `prompt_tokens`.
    prompt: Option<u64>,
    /// `input_tokens`.
    input: Option<u64>,
    /// `completion_tokens`.
    completion: Option<u64>,
    /// `output_tokens`.
    output: Option<u64>,
    total: Option<u64>,
    /// `cached_tokens` of the prompt's details: a part of the prompt.
    cached: Option<u64>,
    /// `cache_read_input_tokens`: beside `input_tokens`, not a part of it.
    cache_read: Option<u64>,
    /// `cache_creation_input_tokens`: beside `input_tokens` as well.
    cache_creation: Option<u64>,
    /// `reasoning_tokens` of the completion's details.
    reasoning: Option<u64>,
    /// `reasoning_tokens` of the usage itself.
    reasoning_top: Option<u64>,
    /// `prompt_n` of llama.cpp: tokens computed, those from its cache not among them.
    prompt_n: Option<u64>,
    /// `cache_n` of llama.cpp.
    cache_n: Option<u64>,
    /// `predicted_n` of llama.cpp.
    predicted_n: Option<u64>,
}

impl Counts {
    /// Takes in one `usage` or `timings` object. A later object supersedes an earlier one field by
    /// field: a running usage grows, and Anthropic tells input and output in two events. What is
    /// no JSON object changes nothing.
    pub(super) fn take(&mut self, object: &[u8]) {
        let mut taken = *self;
        let mut json = serde_json::Deserializer::from_slice(object);
        let members = Members {
            of: None,
            on: &mut |of: Option<&str>, key: &str, count: u64| taken.set(of, key, count),
        };
        if members.deserialize(&mut json).is_ok() {
            *self = taken;
        }
    }

    fn set(&mut self, of: Option<&str>, key: &str, count: u64) {
        let slot = match (of, key) {
            (None, "prompt_tokens") => &mut self.prompt,
            (None, "input_tokens") => &mut self.input,
            (None, "completion_tokens") => &mut self.completion,
            (None, "output_tokens") => &mut self.output,
            (None, "total_tokens") => &mut self.total,
            (None, "cache_read_input_tokens") => &mut self.cache_read,
            (None, "cache_creation_input_tokens") => &mut self.cache_creation,
            (None, "reasoning_tokens") => &mut self.reasoning_top,
            (None, "prompt_n") => &mut self.prompt_n,
            (None, "cache_n") => &mut self.cache_n,
            (None, "predicted_n") => &mut self.predicted_n,
            (Some("prompt_tokens_details" | "input_tokens_details"), "cached_tokens") => {
                &mut self.cached
            }
            (Some("completion_tokens_details" | "output_tokens_details"), "reasoning_tokens") => {
                &mut self.reasoning
            }
            _ => return,
        };
        // Some engines close a stream with zeros for what its beginning had told.
        if count > 0 || slot.is_none() {
            *slot = Some(count);
        }
    }

    /// Tokens generated; `None` when no usage told.
    pub(super) fn completion(&self) -> Option<u64> {
        self.completion.or(self.output).or(self.predicted_n)
    }

    fn prompt(&self) -> Option<u64> {
        let timed = || Some(self.prompt_n?.saturating_add(self.cache_n.unwrap_or(0)));
        self.prompt.or(self.input).or_else(timed)
    }

    fn cached(&self) -> u64 {
        let told = self.cached.or(self.cache_read).or(self.cache_n);
        told.unwrap_or(0)
    }

    /// The whole prompt, tokens from a cache and into it included whatever the API.
    pub(super) fn whole_prompt(&self) -> u64 {
        let prompt = self.prompt().unwrap_or(0);
        if self.prompt.is_some() || self.input.is_none() {
            return prompt;
        }
        let beside = [self.cache_read, self.cache_creation];
        beside
            .into_iter()
            .flatten()
            .fold(prompt, u64::saturating_add)
    }

    /// The counts; `None` when no usage told.
    pub(super) fn usage(&self) -> Option<Usage> {
        let (prompt, completion) = (self.prompt(), self.completion());
        if prompt.is_none() && completion.is_none() && self.total.is_none() {
            return None;
        }
        let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
        Some(Usage {
            prompt,
            completion,
            cached: self.cached(),
            reasoning: self.reasoning.or(self.reasoning_top).unwrap_or(0),
            total: self
                .total
                .unwrap_or_else(|| prompt.saturating_add(completion)),
        })
    }
}

/// Tells the numbers of an object and of the objects in it, one level deep.
struct Members<'a, F> {
    of: Option<&'a str>,
    on: &'a mut F,
}

impl<'de, F: FnMut(Option<&str>, &str, u64)> DeserializeSeed<'de> for Members<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Option<&str>, &str, u64)> Visitor<'de> for Members<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a usage object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(Member {
                of: self.of,
                key: &key,
                on: self.on,
            })?;
        }
        Ok(())
    }
}

/// One member of any kind.
struct Member<'a, F> {
    of: Option<&'a str>,
    key: &'a str,
    on: &'a mut F,
}

impl<'de, F: FnMut(Option<&str>, &str, u64)> DeserializeSeed<'de> for Member<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Option<&str>, &str, u64)> Visitor<'de> for Member<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_u64<E>(self, count: u64) -> Result<(), E> {
        (self.on)(self.of, self.key, count);
        Ok(())
    }

    fn visit_f64<E>(self, count: f64) -> Result<(), E> {
        if count >= 0.0 && count.fract() == 0.0 {
            (self.on)(self.of, self.key, count as u64);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.of.is_none() {
            let members = Members {
                of: Some(self.key),
                on: self.on,
            };
            return members.visit_map(map);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(objects: &[&str]) -> Option<[u64; 5]> {
        let mut counts = Counts::default();
        for object in objects {
            counts.take(object.as_bytes());
        }
        let usage = counts.usage()?;
        Some([
            usage.prompt,
            usage.completion,
            usage.cached,
            usage.reasoning,
            usage.total,
        ])
    }

    #[test]
    fn every_shape_is_read() {
        for (objects, expected) in [
            (
                &[
                    r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,
                    "prompt_tokens_details":{"cached_tokens":64},
                    "completion_tokens_details":{"reasoning_tokens":5}}"#,
                ][..],
                [100, 20, 64, 5, 120],
            ),
            (
                &[r#"{"completion_tokens":9,"reasoning_tokens":4,"prompt_tokens":1}"#],
                [1, 9, 0, 4, 10],
            ),
            (
                &[r#"{"input_tokens":25,"output_tokens":7}"#],
                [25, 7, 0, 0, 32],
            ),
            (
                &[
                    r#"{"input_tokens":25,"cache_read_input_tokens":10,"output_tokens":1}"#,
                    r#"{"output_tokens":7}"#,
                ],
                [25, 7, 10, 0, 32],
            ),
            (
                &[r#"{"prompt_tokens":8,"total_tokens":8}"#],
                [8, 0, 0, 0, 8],
            ),
            (
                &[
                    r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},
                    "output_tokens":3,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":12}"#,
                ],
                [9, 3, 4, 2, 12],
            ),
            (
                &[r#"{"cache_n":30,"prompt_n":6,"prompt_ms":1.5,"predicted_n":20}"#],
                [36, 20, 30, 0, 56],
            ),
        ] {
            assert_eq!(usage(objects), Some(expected), "{objects:?}");
        }
    }

    #[test]
    fn a_later_object_supersedes_field_by_field_but_zeros_erase_nothing() {
        assert_eq!(
            usage(&[
                r#"{"prompt_tokens":5,"completion_tokens":1}"#,
                r#"{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}"#,
            ]),
            Some([5, 2, 0, 0, 7])
        );
        assert_eq!(
            usage(&[
                r#"{"input_tokens":25,"output_tokens":1}"#,
                r#"{"input_tokens":0,"output_tokens":7}"#,
            ]),
            Some([25, 7, 0, 0, 32])
        );
    }

    #[test]
    fn junk_counts_nothing() {
        for object in [
            "{}",
            "[]",
            "7",
            r#"{"prompt_tokens":"5","completion_tokens":null,"total_tokens":-1}"#,
            r#"{"prompt_tokens":1.5,"completion_tokens":[3],"x":{"y":{"z":[1]}}}"#,
            r#"{"prompt_tokens_details":{"prompt_tokens":3}}"#,
            r#"{"prompt_tokens":5"#,
        ] {
            assert_eq!(usage(&[object]), None, "{object}");
        }
        assert_eq!(usage(&[r#"{"prompt_tokens":5.0}"#]), Some([5, 0, 0, 0, 5]));
        assert_eq!(
            usage(&[r#"{"prompt_tokens":1e300,"completion_tokens":18446744073709551615}"#]),
            Some([u64::MAX, u64::MAX, 0, 0, u64::MAX])
        );
    }

    #[test]
    fn the_whole_prompt_holds_the_cached_tokens_of_every_api() {
        let whole = |object: &str| {
            let mut counts = Counts::default();
            counts.take(object.as_bytes());
            counts.whole_prompt()
        };
        let openai = r#"{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":64}}"#;
        assert_eq!(whole(openai), 100);
        let responses = r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":64}}"#;
        assert_eq!(whole(responses), 100);
        let anthropic =
            r#"{"input_tokens":25,"cache_read_input_tokens":10,"cache_creation_input_tokens":3}"#;
        assert_eq!(whole(anthropic), 38);
        assert_eq!(whole(r#"{"prompt_n":6,"cache_n":30}"#), 36);
    }
}
