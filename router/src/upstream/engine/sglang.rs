//! SGLang: every tensor- and pipeline-parallel rank repeats the counts, so rank 0 is enough.

use super::page::{Reader, Series, batching};

/// Summed over data-parallel ranks.
pub(super) const READER: Reader = Reader {
    families: &[
        ("sglang:num_running_reqs", |tally, series| {
            if is_first_rank(series) {
                tally.running.add(series.value);
            }
        }),
        ("sglang:num_queue_reqs", |tally, series| {
            if is_first_rank(series) {
                tally.waiting.add(series.value);
            }
        }),
        ("sglang:token_usage", |tally, series| {
            if is_first_rank(series) {
                tally.kv.add(series.value);
            }
        }),
    ],
    sample: batching,
};

fn is_first_rank(series: &Series<'_>) -> bool {
    series.has_or_lacks("tp_rank", "0") && series.has_or_lacks("pp_rank", "0")
}

#[cfg(test)]
mod tests {
    use router_core::load::Sample;

    use super::super::page::Unusable;
    use super::*;

    fn sample(page: &[u8]) -> Result<Sample, Unusable> {
        READER.whole(page)
    }

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
