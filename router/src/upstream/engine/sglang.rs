//! SGLang: every tensor- and pipeline-parallel rank repeats the counts; rank 0 is enough.

use router_core::load::Sample;

use super::page::{Count, Share, Unusable, series};

/// Summed over data-parallel ranks.
pub(super) fn sample(page: &[u8]) -> Result<Sample, Unusable> {
    let (mut running, mut waiting) = (Count::default(), Count::default());
    let mut kv = Share::default();
    let first_rank = series(page).filter(|series| {
        series.has_or_lacks("tp_rank", "0") && series.has_or_lacks("pp_rank", "0")
    });
    for series in first_rank {
        if series.is("sglang:num_running_reqs") {
            running.add(series.value);
        } else if series.is("sglang:num_queue_reqs") {
            waiting.add(series.value);
        } else if series.is("sglang:token_usage") {
            kv.add(series.value);
        }
    }
    Ok(Sample {
        running: running.get()?.ok_or(Unusable)?,
        waiting: waiting.get()?.unwrap_or(0),
        kv_usage: kv.get(),
        batches: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_engine_count_once_and_replicas_of_it_each() {
        let page = br#"sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 5.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 1.0
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="1",tp_rank="0"} 1.0
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.4
"#;
        let sample = sample(page).unwrap();
        assert_eq!((sample.running, sample.waiting), (7, 1));
        assert_eq!(sample.kv_usage, Some(0.4));
    }

    #[test]
    fn a_page_without_running_requests_is_unusable() {
        assert_eq!(sample(b"sglang:token_usage 0.1"), Err(Unusable));
    }
}
