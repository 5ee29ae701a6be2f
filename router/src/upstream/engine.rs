//! Reads the load of each engine: one file per dialect, pure bytes → sample, in one pass.
//!
//! The names, labels and quirks are those that the engines export today. Where generations of an
//! engine differ, both are read. Nothing here does I/O: the poller fetches the page.

mod llamacpp;
mod page;
mod sglang;
mod tgi;
mod trtllm;
mod vllm;

use router_config::valid::EngineDialect;
use router_core::load::Sample;

pub use page::Unusable;
use page::{Counters, Lines, Reader};

/// The prefixes of an engine's metric family names.
fn prefixes(dialect: EngineDialect) -> &'static [&'static str] {
    match dialect {
        EngineDialect::LlamaCpp => &["llamacpp:", "llama_"],
        EngineDialect::Vllm => &["vllm:"],
        EngineDialect::Sglang => &["sglang:"],
        EngineDialect::Tgi => &["tgi_"],
        EngineDialect::TrtLlm => &["trtllm_"],
        EngineDialect::Triton => &["nv_trt_llm_"],
    }
}

fn reader(dialect: EngineDialect) -> &'static Reader {
    match dialect {
        EngineDialect::LlamaCpp => &llamacpp::READER,
        EngineDialect::Vllm => &vllm::READER,
        EngineDialect::Sglang => &sglang::READER,
        EngineDialect::Tgi => &tgi::READER,
        EngineDialect::TrtLlm => &trtllm::SERVE,
        EngineDialect::Triton => &trtllm::TRITON,
    }
}

/// The engine that exports the family of a line.
fn exporter_of(line: &[u8]) -> Option<EngineDialect> {
    let exports = |dialect: &EngineDialect| {
        let mut prefixes = prefixes(*dialect).iter();
        prefixes.any(|prefix| page::begins(line, prefix)) && page::parse(line).is_some()
    };
    EngineDialect::ALL.into_iter().find(exports)
}

/// Reads a load page once, chunk by chunk, and keeps nothing of it.
#[derive(Debug)]
pub struct Scan {
    lines: Lines,
    readings: Readings,
}

impl Scan {
    /// A page in this dialect only.
    pub fn of(dialect: EngineDialect) -> Self {
        Self::new(Some(dialect), true)
    }

    /// A page in the dialect of the last page. If that dialect finds nothing, the first family that
    /// a known engine exports decides.
    pub fn guessing(last: Option<EngineDialect>) -> Self {
        Self::new(last, false)
    }

    fn new(expected: Option<EngineDialect>, is_told: bool) -> Self {
        Self {
            lines: Lines::default(),
            readings: Readings {
                expected: expected.map(Reading::new),
                found: None,
                is_told,
            },
        }
    }

    /// Reads the next chunk. Chunks may end anywhere.
    pub fn take(&mut self, chunk: &[u8]) {
        let Self { lines, readings } = self;
        lines.take(chunk, |line| readings.line(line));
    }

    /// The page's dialect and its sample. `None` when no known engine writes such a page.
    ///
    /// # Errors
    /// When the page lacks the number of running requests, or a wanted number is not a count.
    pub fn end(self) -> Option<(EngineDialect, Result<Sample, Unusable>)> {
        let Self {
            mut lines,
            mut readings,
        } = self;
        lines.end(|line| readings.line(line));
        let Readings {
            expected, found, ..
        } = readings;
        let expected = expected.map(Reading::end);
        match (expected, found) {
            (Some((_, Err(Unusable))) | None, Some(found)) => Some(found.end()),
            (Some((_, Err(Unusable))), None) if !readings.is_told => None,
            (expected, _) => expected,
        }
    }
}

/// A page, read in each dialect that it may be in.
#[derive(Debug)]
struct Readings {
    expected: Option<Reading>,
    /// Set only when the dialect differs from the expected one.
    found: Option<Reading>,
    /// Whether the first family that identifies the dialect was seen, or the dialect is certain
    /// from the start.
    is_told: bool,
}

#[derive(Debug)]
struct Reading {
    dialect: EngineDialect,
    tally: Counters,
}

impl Readings {
    #[inline]
    fn line(&mut self, line: &[u8]) {
        if !self.is_told
            && let Some(dialect) = exporter_of(line)
        {
            self.is_told = true;
            let is_expected = |expected: &Reading| expected.dialect == dialect;
            if !self.expected.as_ref().is_some_and(is_expected) {
                self.found = Some(Reading::new(dialect));
            }
        }
        for reading in [&mut self.expected, &mut self.found].into_iter().flatten() {
            let reader = reader(reading.dialect);
            reader.line(line, &mut reading.tally);
        }
    }
}

impl Reading {
    fn new(dialect: EngineDialect) -> Self {
        Self {
            dialect,
            tally: Counters::default(),
        }
    }

    fn end(self) -> (EngineDialect, Result<Sample, Unusable>) {
        let sample = (reader(self.dialect).sample)(&self.tally);
        (self.dialect, sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample of a page that comes in chunks of `size` bytes.
    fn read(
        mut scan: Scan,
        page: &str,
        size: usize,
    ) -> Option<(EngineDialect, Result<Sample, Unusable>)> {
        for chunk in page.as_bytes().chunks(size) {
            scan.take(chunk);
        }
        scan.end()
    }

    fn dialect(page: &str) -> Option<EngineDialect> {
        read(Scan::guessing(None), page, 7).map(|(dialect, _)| dialect)
    }

    #[test]
    fn an_engine_is_known_by_its_first_family() {
        for (page, told) in [
            (
                "go_goroutines 7\nllamacpp:requests_processing 0\n",
                EngineDialect::LlamaCpp,
            ),
            ("llama_slots_busy 1\n", EngineDialect::LlamaCpp),
            ("vllm_num_requests_running 1\n", EngineDialect::Vllm),
            ("sglang:num_running_reqs 1\n", EngineDialect::Sglang),
            ("tgi_queue_size 0\n", EngineDialect::Tgi),
            ("trtllm_num_requests_running 0\n", EngineDialect::TrtLlm),
            (
                "nv_trt_llm_request_metrics{request_type=\"active\"} 0\n",
                EngineDialect::Triton,
            ),
        ] {
            assert_eq!(dialect(page), Some(told), "{page}");
        }
        assert_eq!(dialect("process_cpu_seconds_total 1\n"), None);
    }
    #[test]
    fn a_page_says_the_same_wherever_its_chunks_end() {
        let page = "# HELP vllm:a b\nvllm:a_bucket{le=\"1\"} 7\nvllm:num_requests_running{model_name=\"m\"} 3.0\r\nvllm:num_requests_waiting{model_name=\"m\"} 1.0\nvllm:kv_cache_usage_perc 0.5";
        let whole = Sample {
            running: 3,
            waiting: 1,
            kv_usage: Some(0.5),
            batches: true,
        };
        for size in 1..=page.len() {
            let told = read(Scan::guessing(None), page, size);
            assert_eq!(told, Some((EngineDialect::Vllm, Ok(whole))), "{size}");
        }
    }

    #[test]
    fn the_last_dialect_holds_for_as_long_as_it_can_be_read() {
        let (sglang, vllm) = (
            "sglang:num_running_reqs 2\n",
            "vllm:num_requests_running 5\n",
        );
        let running = |last, page: &str| {
            let (dialect, sample) = read(Scan::guessing(last), page, 5)?;
            Some((dialect, sample.map(|sample| sample.running)))
        };
        let both = format!("{sglang}{vllm}");
        assert_eq!(
            running(Some(EngineDialect::Vllm), &both),
            Some((EngineDialect::Vllm, Ok(5)))
        );
        assert_eq!(running(None, &both), Some((EngineDialect::Sglang, Ok(2))));
        assert_eq!(
            running(Some(EngineDialect::Vllm), sglang),
            Some((EngineDialect::Sglang, Ok(2)))
        );
        let broken = format!("vllm:num_requests_running NaN\n{sglang}");
        assert_eq!(
            running(Some(EngineDialect::Vllm), &broken),
            Some((EngineDialect::Vllm, Err(Unusable)))
        );
        assert_eq!(
            running(Some(EngineDialect::Vllm), "go_goroutines 7\n"),
            None
        );
    }

    #[test]
    fn a_configured_dialect_is_never_given_up() {
        let page = "sglang:num_running_reqs 2\n";
        let told = read(Scan::of(EngineDialect::Vllm), page, 5);
        assert_eq!(told, Some((EngineDialect::Vllm, Err(Unusable))));
    }
}
