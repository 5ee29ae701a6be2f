//! Reads the Prometheus text of an engine in one pass, without an allocation per line. The size of
//! the page is the bound.
//!
//! Reads text exposition 0.0.4 and OpenMetrics alike. A line with an unwanted name is skipped by
//! its name alone, because a page of hundreds of series has only a handful that count. A line that
//! cannot be parsed is skipped too: engines add families all the time.

use memchr::{memchr, memchr_iter};
use router_core::load::Sample;

/// A wanted family and the number that its series add to.
pub(super) type Family = (&'static str, fn(&mut Counters, &Series<'_>));

/// How to read the page of one dialect.
#[derive(Debug)]
pub(super) struct Reader {
    /// The wanted families. All others are skipped.
    pub(super) families: &'static [Family],
    /// Turns the totals of the whole page into a sample.
    pub(super) sample: fn(&Counters) -> Result<Sample, Unusable>,
}

impl Reader {
    /// Adds the value of one line.
    #[inline]
    pub(super) fn line(&self, line: &[u8], tally: &mut Counters) {
        let mut families = self.families.iter();
        if let Some((_, add)) = families.find(|(name, _)| is_of(line, name))
            && let Some(series) = parse(line)
        {
            add(tally, &series);
        }
    }

    #[cfg(test)]
    pub(super) fn whole(&self, page: &[u8]) -> Result<Sample, Unusable> {
        let (mut lines, mut tally) = (Lines::default(), Counters::default());
        lines.take(page, |line| self.line(line, &mut tally));
        lines.end(|line| self.line(line, &mut tally));
        (self.sample)(&tally)
    }
}

/// The totals of the lines read so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) running: Count,
    pub(super) waiting: Count,
    /// Numbers that other generations of the engine export instead, or in addition.
    pub(super) older: Count,
    pub(super) kv: Share,
    pub(super) older_kv: Share,
}

/// The sample of an engine with continuous batching.
///
/// # Errors
/// When the number of running requests is missing, or a number is not a count.
pub(super) fn batching(tally: &Counters) -> Result<Sample, Unusable> {
    Ok(Sample {
        running: tally.running.get()?.ok_or(Unusable)?,
        waiting: tally.waiting.get()?.unwrap_or(0),
        kv_usage: tally.kv.get().or(tally.older_kv.get()),
        batches: true,
    })
}

/// Cuts a page that comes in chunks into lines. A line is copied only when a chunk ends in it. The
/// copy is bounded by the page.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Yields every line that ends in this chunk and may be a sample: no comment, not empty, no
    /// blank before its name.
    #[inline]
    pub(super) fn take(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = 0;
        for end in memchr_iter(b'\n', chunk) {
            let line = &chunk[rest..end];
            rest = end + 1;
            if self.begun.is_empty() {
                offer(line, &mut each);
            } else {
                self.begun.extend_from_slice(line);
                offer(&self.begun, &mut each);
                self.begun.clear();
            }
        }
        self.begun.extend_from_slice(&chunk[rest..]);
    }

    /// The last line, if the page does not end with a newline.
    pub(super) fn end(&mut self, mut each: impl FnMut(&[u8])) {
        offer(&self.begun, &mut each);
        self.begun.clear();
    }
}

#[inline]
fn offer(line: &[u8], each: &mut impl FnMut(&[u8])) {
    match line {
        [] | [b'#', ..] => {}
        [first, ..] if first.is_ascii_whitespace() => {
            let line = line.trim_ascii_start();
            if line.first().is_some_and(|byte| *byte != b'#') {
                each(line);
            }
        }
        _ => each(line),
    }
}

/// Whether a line belongs to the family `name`.
#[inline]
fn is_of(line: &[u8], name: &str) -> bool {
    // Names differ in length, so the byte behind the name rules out most lines.
    matches!(line.get(name.len()), Some(b'{' | b' ' | b'\t')) && begins(line, name)
}

/// Whether a line begins with `name`. Some relabelling proxies turn a colon into `_`.
#[inline]
pub(super) fn begins(line: &[u8], prefix: &str) -> bool {
    let head = line.get(..prefix.len());
    head.is_some_and(|head| {
        let mut both = head.iter().zip(prefix.as_bytes());
        both.all(|(have, want)| have == want || (*want == b':' && *have == b'_'))
    })
}

/// One sample line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'p> {
    /// The text between the braces, not parsed.
    labels: &'p [u8],
    /// The value; may be NaN or infinite.
    pub(super) value: f64,
}

impl Series<'_> {
    /// Whether the label has this value; `false` when the label is absent. Values are compared as
    /// written.
    pub(super) fn has(&self, label: &str, value: &str) -> bool {
        pairs(self.labels).any(|(name, have)| name == label.as_bytes() && have == value.as_bytes())
    }

    /// Whether the label is absent or has this value.
    pub(super) fn has_or_lacks(&self, label: &str, value: &str) -> bool {
        pairs(self.labels)
            .find(|(name, _)| *name == label.as_bytes())
            .is_none_or(|(_, have)| have == value.as_bytes())
    }
}

/// Parses `name{labels} value [timestamp]` with an optional CR, from a line that [`Lines`] yields.
/// `None` for anything else.
pub(super) fn parse(line: &[u8]) -> Option<Series<'_>> {
    let name_end = line
        .iter()
        .position(|byte| matches!(byte, b'{' | b' ' | b'\t'))?;
    let rest = &line[name_end..];
    let (labels, rest) = if rest.first() == Some(&b'{') {
        let end = labels_end(rest)?;
        (&rest[1..end], &rest[end + 1..])
    } else {
        (&rest[..0], rest)
    };
    let text = rest.trim_ascii_start();
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    let value = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some(Series { labels, value })
}

/// The index of the brace that closes the labels. Braces inside quotes are skipped.
fn labels_end(text: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Label names with their values as written, escapes included.
fn pairs(labels: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = labels;
    std::iter::from_fn(move || {
        let equals = memchr(b'=', rest)?;
        let name = rest[..equals].trim_ascii();
        let name = name.strip_prefix(b",").unwrap_or(name).trim_ascii();
        let quoted = rest[equals + 1..].trim_ascii_start().strip_prefix(b"\"")?;
        let mut end = 0;
        loop {
            match quoted.get(end)? {
                b'\\' => end += 2,
                b'"' => break,
                _ => end += 1,
            }
        }
        let value = &quoted[..end];
        rest = &quoted[end + 1..];
        Some((name, value))
    })
}

/// The sum of the series of one number. A single value that is not a count makes the sum invalid.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    sum: f64,
    seen: bool,
    spoiled: bool,
}

impl Count {
    pub(super) fn add(&mut self, value: f64) {
        self.seen = true;
        self.spoiled |= !value.is_finite() || value < 0.0;
        self.sum += value;
    }

    /// `Ok(None)` when the page does not have the number, and an error when its value is not a
    /// count.
    pub(super) fn get(self) -> Result<Option<u32>, Unusable> {
        if self.spoiled {
            return Err(Unusable);
        }
        // A cast beyond the range saturates; the sum is neither NaN nor negative.
        Ok(self.seen.then_some(self.sum.round() as u32))
    }
}

/// The largest of several fractions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share(Option<f64>);

impl Share {
    /// A value that is not a fraction is ignored.
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.0 = Some(self.0.map_or(value, |most| most.max(value)));
        }
    }

    pub(super) fn get(self) -> Option<f64> {
        self.0
    }
}

/// The page lacks the wanted numbers, or they are not counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable;

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample lines of a page that comes in chunks of `size` bytes.
    fn lines_of(page: &[u8], size: usize) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for chunk in page.chunks(size) {
            lines.take(chunk, |line| found.push(line.to_vec()));
        }
        lines.end(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn lines_of_every_form_are_read_and_the_rest_is_skipped() {
        let page = b"# HELP a b\n\na 3\r\nb{x=\"1\"}  3.0 1700000000000\n\tc 1e+06 # {trace=\"x\"} 1\nd\ne{ 1\nf{x=\"}\",y=\"a\\\"b\"} +Inf\n  # EOF";
        for size in 1..=page.len() {
            let lines = lines_of(page, size);
            let names = ["a", "b", "c", "d", "e", "f"];
            let found: Vec<_> = lines
                .iter()
                .filter_map(|line| {
                    let name = names.into_iter().find(|name| is_of(line, name))?;
                    Some((name, parse(line)?.value))
                })
                .collect();
            let values = [("a", 3.0), ("b", 3.0), ("c", 1e6), ("f", f64::INFINITY)];
            assert_eq!(found, values, "{size}");
        }
    }

    #[test]
    fn labels_are_found_whatever_their_neighbours_hold() {
        let page = br#"m{a="x,y=\"z\"}",tp_rank="0", last="q"} 1"#;
        let series = parse(page).unwrap();
        assert!(series.has("tp_rank", "0") && series.has("last", "q"));
        assert!(!series.has("y", "z") && !series.has("missing", ""));
        assert!(series.has_or_lacks("missing", "0") && !series.has_or_lacks("tp_rank", "1"));
    }

    #[test]
    fn a_colon_may_have_become_an_underscore() {
        let line = b"vllm_num_requests_running 1";
        assert!(is_of(line, "vllm:num_requests_running") && begins(line, "vllm:"));
        assert!(!is_of(line, "vllm:num_requests_waiting") && !begins(line, "sglang:"));
    }

    #[test]
    fn a_family_whose_name_begins_like_another_is_not_taken_for_it() {
        assert!(
            !is_of(b"a_total 1", "a") && !is_of(b"a", "a") && !is_of(b"a_total 1", "a_total_sum")
        );
        assert!(is_of(b"a\t1", "a") && is_of(b"a{} 1", "a"));
    }

    #[test]
    fn what_is_not_a_count_spoils_the_sum() {
        let count = |values: &[f64]| {
            let mut count = Count::default();
            values.iter().for_each(|value| count.add(*value));
            count.get()
        };
        assert_eq!(count(&[]), Ok(None));
        assert_eq!(count(&[1.0, 2.6]), Ok(Some(4)));
        assert_eq!(count(&[1e300]), Ok(Some(u32::MAX)));
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(count(&[1.0, bad]), Err(Unusable));
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let alphabet = b"a:{}=\",\\ \n#1.eN+-\r\t\xff";
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let page: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    alphabet[(state >> 33) as usize % alphabet.len()]
                })
                .collect();
            for line in lines_of(&page, 7) {
                let _ = is_of(&line, "a:");
                let _ = parse(&line).is_some_and(|series| series.has("a", "1"));
            }
        }
    }
}
