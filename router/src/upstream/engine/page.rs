//! The Prometheus text of an engine, read in one pass: no allocation per line, bounded by the page.
//!
//! Text exposition 0.0.4 and OpenMetrics alike. What cannot be understood is skipped line by line:
//! engines add families all the time, and only a few numbers are wanted.

use memchr::memchr;

/// One sample line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'p> {
    /// The name, as written.
    name: &'p [u8],
    /// What stands between the braces, unread.
    labels: &'p [u8],
    /// NaN and infinities included.
    pub(super) value: f64,
}

/// Every sample line of a page, in order.
pub(super) fn series(page: &[u8]) -> impl Iterator<Item = Series<'_>> {
    page.split(|byte| *byte == b'\n').filter_map(parse)
}

impl Series<'_> {
    /// Whether this is the family `name`. Some relabelling proxies turn its colon into `_`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.len() == name.len()
            && self
                .name
                .iter()
                .zip(name.as_bytes())
                .all(|(have, want)| have == want || (*want == b':' && *have == b'_'))
    }

    /// Whether the name starts so, a colon standing for `_` too.
    pub(super) fn starts_with(&self, prefix: &str) -> bool {
        let head = self.name.get(..prefix.len());
        head.is_some_and(|name| Self { name, ..*self }.is(prefix))
    }

    /// Whether the label has this value; false where it is absent. Values are compared as written.
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

/// `name{labels} value [timestamp]`, with an optional CR. `None` for anything else.
fn parse(line: &[u8]) -> Option<Series<'_>> {
    let line = line.trim_ascii();
    if line.first().is_none_or(|byte| *byte == b'#') {
        return None;
    }
    let name_end = line
        .iter()
        .position(|byte| matches!(byte, b'{' | b' ' | b'\t'))?;
    let (name, rest) = line.split_at(name_end);
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
    Some(Series {
        name,
        labels,
        value,
    })
}

/// The index of the brace that closes the labels; braces inside of quotes do not.
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

/// The sum of the series of one number. One that is not a count spoils the whole.
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

    /// `Ok(None)` where the page does not have it; an error where what it has is not a count.
    pub(super) fn get(self) -> Result<Option<u32>, Unusable> {
        if self.spoiled {
            return Err(Unusable);
        }
        // A cast beyond the range saturates; the sum is neither NaN nor negative.
        Ok(self.seen.then_some(self.sum.round() as u32))
    }
}

/// The largest of several shares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share(Option<f64>);

impl Share {
    /// What is not a share says nothing.
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.0 = Some(self.0.map_or(value, |most| most.max(value)));
        }
    }

    pub(super) fn get(self) -> Option<f64> {
        self.0
    }
}

/// The page does not have the wanted numbers, or they are not counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable;

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_values(page: &str) -> Vec<(String, f64)> {
        series(page.as_bytes())
            .map(|s| (String::from_utf8_lossy(s.name).into_owned(), s.value))
            .collect()
    }

    #[test]
    fn lines_of_every_form_are_read_and_the_rest_is_skipped() {
        let page = "# HELP a b\n\na 3\r\nb{x=\"1\"}  3.0 1700000000000\n\tc 1e+06 # {trace=\"x\"} 1\nd\ne{ 1\nf{x=\"}\",y=\"a\\\"b\"} +Inf\n# EOF";
        let found = names_and_values(page);
        assert_eq!(
            found,
            [
                ("a".to_owned(), 3.0),
                ("b".to_owned(), 3.0),
                ("c".to_owned(), 1e6),
                ("f".to_owned(), f64::INFINITY)
            ]
        );
    }

    #[test]
    fn labels_are_found_whatever_their_neighbours_hold() {
        let page = br#"m{a="x,y=\"z\"}",tp_rank="0", last="q"} 1"#;
        let series = series(page).next().unwrap();
        assert!(series.has("tp_rank", "0") && series.has("last", "q"));
        assert!(!series.has("y", "z") && !series.has("missing", ""));
        assert!(series.has_or_lacks("missing", "0") && !series.has_or_lacks("tp_rank", "1"));
    }

    #[test]
    fn a_colon_may_have_become_an_underscore() {
        let page = b"vllm_num_requests_running 1";
        let series = series(page).next().unwrap();
        assert!(series.is("vllm:num_requests_running") && series.starts_with("vllm:"));
        assert!(!series.is("vllm:num_requests_waiting") && !series.starts_with("sglang:"));
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
            for series in series(&page) {
                let _ = series.has("a", "1");
            }
        }
    }
}
