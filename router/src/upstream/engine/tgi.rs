//! Text Generation Inference: one process, its batch and its queue.

use router_core::load::Sample;

use super::page::{Count, Unusable, series};

/// It does not say how full its cache is.
pub(super) fn sample(page: &[u8]) -> Result<Sample, Unusable> {
    let (mut running, mut waiting) = (Count::default(), Count::default());
    for series in series(page) {
        if series.is("tgi_batch_current_size") {
            running.add(series.value);
        } else if series.is("tgi_queue_size") {
            waiting.add(series.value);
        }
    }
    Ok(Sample {
        running: running.get()?.ok_or(Unusable)?,
        waiting: waiting.get()?.unwrap_or(0),
        kv_usage: None,
        batches: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
