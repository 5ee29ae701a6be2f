//! llama.cpp: `/metrics` of a server started with `--metrics`.

use router_core::load::Sample;

use super::page::{Counters, Reader, Unusable};

/// `busy` is processing + deferred. Older builds and forks have one gauge for both. If a page has
/// both generations, the current one counts.
pub(super) const READER: Reader = Reader {
    families: &[
        ("llamacpp:requests_processing", |tally, series| {
            tally.running.add(series.value);
        }),
        ("llamacpp:requests_deferred", |tally, series| {
            tally.waiting.add(series.value);
        }),
        ("llama_slots_busy", |tally, series| {
            tally.older.add(series.value);
        }),
        ("llamacpp:slots_busy", |tally, series| {
            tally.older.add(series.value);
        }),
        ("llamacpp:kv_cache_usage_ratio", |tally, series| {
            tally.kv.add(series.value);
        }),
    ],
    sample,
};

fn sample(tally: &Counters) -> Result<Sample, Unusable> {
    let waiting = tally.waiting.get()?;
    let running = match tally.running.get()? {
        Some(running) => running,
        None => tally.older.get()?.ok_or(Unusable)?,
    };
    Ok(Sample {
        running,
        waiting: waiting.unwrap_or(0),
        kv_usage: tally.kv.get(),
        batches: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(page: &[u8]) -> Result<Sample, Unusable> {
        READER.whole(page)
    }

    fn busy(page: &str) -> Result<u32, Unusable> {
        sample(page.as_bytes()).map(Sample::busy)
    }

    #[test]
    fn processing_and_deferred_add_up() {
        let page = "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n";
        assert_eq!(busy(page), Ok(5));
    }

    #[test]
    fn the_old_gauge_counts_where_the_new_ones_are_missing() {
        assert_eq!(busy("llama_slots_busy 2"), Ok(2));
        let both = "llama_slots_busy 2\nllamacpp:requests_processing 4";
        assert_eq!(busy(both), Ok(4));
    }

    #[test]
    fn series_are_summed_and_what_is_no_number_is_not_zero() {
        let page = "llamacpp:requests_processing{model=\"a\\\"}b\"} 1e+00 1700000000000\r\nllamacpp:requests_processing{model=\"c\"} 2\r\n";
        assert_eq!(busy(page), Ok(3));
        assert_eq!(busy("llamacpp:requests_processing NaN"), Err(Unusable));
        assert_eq!(busy("llamacpp:n_busy_slots_per_decode 3.9"), Err(Unusable));
    }
}
