//! Extracts token counts from usage objects of any API.

use crate::cursor::{Cursor, Span};
use crate::json::unescaped;

/// Token counts of one answer, with the same meaning for every API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The whole prompt, including tokens read from a cache or written to it.
    pub prompt: u64,
    /// Generated tokens.
    pub completion: u64,
    /// The part of the prompt that was read from a cache; never more than `prompt`.
    pub cached: u64,
    /// The part of `completion` that is reasoning.
    pub reasoning: u64,
    /// The engine's own total if it covers both, else the sum of `prompt` and `completion`.
    pub total: u64,
}

impl Usage {
    /// The counts of one usage object. `None` when it has no counts.
    pub fn of(object: &[u8]) -> Option<Self> {
        let mut counts = Counts::default();
        counts.take(object);
        counts.usage()
    }
}

/// The counts in the usage objects of one answer so far. `None` means not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// `prompt_tokens`.
    prompt: Option<u64>,
    /// `input_tokens`.
    input: Option<u64>,
    /// `completion_tokens`.
    completion: Option<u64>,
    /// `output_tokens`.
    output: Option<u64>,
    /// `total_tokens`.
    total: Option<u64>,
    /// `cached_tokens` of the prompt's details: a part of the prompt.
    cached: Option<u64>,
    /// `cache_read_input_tokens`: counted beside `input_tokens`, not a part of it.
    cache_read: Option<u64>,
    /// `cache_creation_input_tokens`: counted beside `input_tokens` as well.
    cache_creation: Option<u64>,
    /// `reasoning_tokens` of the completion's details.
    reasoning: Option<u64>,
    /// `reasoning_tokens` of the usage itself.
    reasoning_top: Option<u64>,
    /// `prompt_n` of llama.cpp's timings: tokens computed, without those from its cache.
    prompt_n: Option<u64>,
    /// `cache_n` of llama.cpp's timings.
    cache_n: Option<u64>,
    /// `predicted_n` of llama.cpp's timings.
    predicted_n: Option<u64>,
    /// `tokens_evaluated` of llama.cpp's own API: the whole prompt.
    evaluated: Option<u64>,
}

impl Counts {
    /// Takes in one `usage` or `timings` object. A later object supersedes an earlier one field by
    /// field, because a running usage grows and Anthropic reports input and output in two events.
    /// Anything but a JSON object changes nothing.
    pub(crate) fn take(&mut self, object: &[u8]) {
        let mut taken = *self;
        if taken.read(object).is_some() {
            *self = taken;
        }
    }

    fn read(&mut self, object: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(object);
        if cursor.peek()? != b'{' {
            return None;
        }
        cursor.members(|cursor, key| {
            let name = unescaped(&object[key]);
            if cursor.peek()? != b'{' {
                let value = cursor.skip()?;
                self.set(b"", &name, &object[value]);
                return Some(());
            }
            cursor.members(|cursor, key| {
                let value: Span = cursor.skip()?;
                self.set(&name, &unescaped(&object[key]), &object[value]);
                Some(())
            })?;
            Some(())
        })?;
        cursor.end()
    }

    /// Takes one member. `of` is the name of its containing object, empty for the usage itself.
    fn set(&mut self, of: &[u8], key: &[u8], value: &[u8]) {
        let slot = match (of, key) {
            (b"", b"prompt_tokens") => &mut self.prompt,
            (b"", b"input_tokens") => &mut self.input,
            (b"", b"completion_tokens") => &mut self.completion,
            (b"", b"output_tokens") => &mut self.output,
            (b"", b"total_tokens") => &mut self.total,
            (b"", b"cache_read_input_tokens") => &mut self.cache_read,
            (b"", b"cache_creation_input_tokens") => &mut self.cache_creation,
            (b"", b"reasoning_tokens") => &mut self.reasoning_top,
            (b"", b"prompt_n") => &mut self.prompt_n,
            (b"", b"cache_n") => &mut self.cache_n,
            (b"", b"predicted_n") => &mut self.predicted_n,
            (b"prompt_tokens_details" | b"input_tokens_details", b"cached_tokens") => {
                &mut self.cached
            }
            (b"completion_tokens_details" | b"output_tokens_details", b"reasoning_tokens") => {
                &mut self.reasoning
            }
            _ => return,
        };
        // Some engines end a stream with zeros for counts that they sent at its beginning.
        if let Some(count) = count(value)
            && (count > 0 || slot.is_none())
        {
            *slot = Some(count);
        }
    }

    /// Takes in llama.cpp's `tokens_evaluated`, which comes beside its timings.
    pub(crate) fn evaluated(&mut self, value: &[u8]) {
        self.evaluated = count(value).or(self.evaluated);
    }

    /// Generated tokens. `None` when no usage reported them.
    pub(crate) fn completion(&self) -> Option<u64> {
        self.completion.or(self.output).or(self.predicted_n)
    }

    fn cached(&self) -> u64 {
        let told = self.cached.or(self.cache_read).or(self.cache_n);
        told.unwrap_or(0)
    }

    /// The whole prompt. Anthropic's `input_tokens` and llama.cpp's `prompt_n` do not include the
    /// cached part.
    fn prompt(&self) -> Option<u64> {
        let sum = |first: u64, rest: [Option<u64>; 2]| {
            rest.into_iter().flatten().fold(first, u64::saturating_add)
        };
        let beside = [self.cache_read, self.cache_creation];
        let input = || self.input.map(|input| sum(input, beside));
        let timed = || {
            self.prompt_n
                .map(|prompt| sum(prompt, [self.cache_n, None]))
        };
        // A rerank may report only a total.
        let rest = || {
            let total = self.total?;
            Some(total.saturating_sub(self.completion().unwrap_or(0)))
        };
        let whole = self.prompt.or_else(input).or(self.evaluated);
        whole.or_else(timed).or_else(rest)
    }

    /// The counts. `None` when no usage reported any.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let (prompt, completion) = (self.prompt(), self.completion());
        if prompt.is_none() && completion.is_none() {
            return None;
        }
        let completion = completion.unwrap_or(0);
        let cached = self.cached();
        let prompt = prompt.unwrap_or(0).max(cached);
        let sum = prompt.saturating_add(completion);
        Some(Usage {
            prompt,
            completion,
            cached,
            reasoning: self.reasoning.or(self.reasoning_top).unwrap_or(0),
            total: self.total.unwrap_or(0).max(sum),
        })
    }
}

/// A count. Some engines send it as a float without a fraction, which is accepted.
fn count(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(value).ok()?;
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    // Only digits, because `parse` would accept `inf` and `nan` too.
    let is_number = matches!(value.first(), Some(b'0'..=b'9'));
    let count: f64 = text.parse().ok().filter(|_| is_number)?;
    (count.fract() == 0.0).then_some(count as u64)
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
                [35, 7, 10, 0, 42],
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
        for (object, prompt, cached) in [
            (
                r#"{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":64}}"#,
                100,
                64,
            ),
            (
                r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":64}}"#,
                100,
                64,
            ),
            (
                r#"{"input_tokens":25,"cache_read_input_tokens":10,"cache_creation_input_tokens":3}"#,
                38,
                10,
            ),
            (
                r#"{"input_tokens":25,"cache_read_input_tokens":100}"#,
                125,
                100,
            ),
            (r#"{"prompt_n":6,"cache_n":30}"#, 36, 30),
        ] {
            let usage = Usage::of(object.as_bytes()).unwrap();
            assert_eq!((usage.prompt, usage.cached), (prompt, cached), "{object}");
        }
    }

    #[test]
    fn a_total_alone_is_the_prompt_of_a_rerank() {
        assert_eq!(usage(&[r#"{"total_tokens":8}"#]), Some([8, 0, 0, 0, 8]));
        assert_eq!(
            usage(&[r#"{"completion_tokens":3,"total_tokens":8}"#]),
            Some([5, 3, 0, 0, 8])
        );
    }

    #[test]
    fn no_engine_caches_more_than_the_prompt_nor_sums_to_less_than_its_parts() {
        let object = r#"{"prompt_tokens":25,"total_tokens":30,"completion_tokens":5,
            "prompt_tokens_details":{"cached_tokens":100}}"#;
        assert_eq!(usage(&[object]), Some([100, 5, 100, 0, 105]));
    }
}
