//! vLLM: one series per model and data-parallel rank.

use super::page::{Reader, batching};

/// Counts are summed over the ranks; cache usage is that of the fullest rank. The first generation
/// of the engine called it `gpu_cache_usage_perc`.
pub(super) const READER: Reader = Reader {
    families: &[
        ("vllm:num_requests_running", |tally, series| {
            tally.running.add(series.value);
        }),
        ("vllm:num_requests_waiting", |tally, series| {
            tally.waiting.add(series.value);
        }),
        ("vllm:kv_cache_usage_perc", |tally, series| {
            tally.kv.add(series.value);
        }),
        ("vllm:gpu_cache_usage_perc", |tally, series| {
            tally.older_kv.add(series.value);
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
    fn ranks_add_up_and_the_fullest_cache_counts() {
        let page =
            br#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"#;
        let sample = sample(page).unwrap();
        assert_eq!((sample.running, sample.waiting), (7, 1));
        assert_eq!(sample.kv_usage, Some(0.5));
        assert!(sample.batches);
    }

    #[test]
    fn the_old_cache_name_is_read_where_the_new_one_is_missing() {
        let page = b"vllm:num_requests_running 0\nvllm:gpu_cache_usage_perc 0.75\n";
        assert_eq!(sample(page).unwrap().kv_usage, Some(0.75));
        assert_eq!(sample(b"vllm:num_requests_waiting 1"), Err(Unusable));
    }
}
