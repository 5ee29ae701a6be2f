//! Text Generation Inference: one process, its batch and its queue.

use super::page::{Reader, batching};

/// TGI does not export its cache usage.
pub(super) const READER: Reader = Reader {
    families: &[
        ("tgi_batch_current_size", |tally, series| {
            tally.running.add(series.value);
        }),
        ("tgi_queue_size", |tally, series| {
            tally.waiting.add(series.value);
        }),
    ],
    sample: batching,
};

#[cfg(test)]
mod tests {
    use router_core::load::Sample;

    use super::super::page::Unusable;
    use super::*;

    fn sample(page: &[u8]) -> Result<Sample, Unusable> {
        READER.whole(page)
    }

    #[test]
    fn the_batch_and_the_queue_add_up() {
        let page = b"# TYPE tgi_batch_current_size gauge\ntgi_batch_current_size 6\ntgi_batch_current_max_tokens 4096\n# TYPE tgi_queue_size gauge\ntgi_queue_size 2\n";
        let sample = sample(page).unwrap();
        assert_eq!(
            (sample.running, sample.waiting, sample.kv_usage),
            (6, 2, None)
        );
    }
}
