//! TensorRT-LLM: served by `trtllm-serve`, or inside Triton.

use router_core::load::Sample;

use super::page::{Counters, Reader, Unusable, batching};

/// `trtllm-serve`.
pub(super) const SERVE: Reader = Reader {
    families: &[
        ("trtllm_num_requests_running", |tally, series| {
            tally.running.add(series.value);
        }),
        ("trtllm_num_requests_waiting", |tally, series| {
            tally.waiting.add(series.value);
        }),
        ("trtllm_kv_cache_utilization", |tally, series| {
            tally.kv.add(series.value);
        }),
    ],
    sample: batching,
};

/// Triton: one family with a label for each state. Builds without `waiting` count waiting requests
/// as active, and `scheduled` is the number that run.
pub(super) const TRITON: Reader = Reader {
    families: &[
        ("nv_trt_llm_request_metrics", |tally, series| {
            if series.has("request_type", "active") {
                tally.running.add(series.value);
            } else if series.has("request_type", "scheduled") {
                tally.older.add(series.value);
            } else if series.has("request_type", "waiting") {
                tally.waiting.add(series.value);
            }
        }),
        ("nv_trt_llm_kv_cache_block_metrics", |tally, series| {
            if series.has("kv_cache_block_type", "fraction") {
                tally.kv.add(series.value);
            }
        }),
    ],
    sample: triton,
};

fn triton(tally: &Counters) -> Result<Sample, Unusable> {
    let active = tally.running.get()?.ok_or(Unusable)?;
    let (running, waiting) = match (tally.waiting.get()?, tally.older.get()?) {
        (Some(waiting), _) => (active, waiting),
        (None, Some(scheduled)) => (active.min(scheduled), active.saturating_sub(scheduled)),
        (None, None) => (active, 0),
    };
    Ok(Sample {
        running,
        waiting,
        kv_usage: tally.kv.get(),
        batches: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(page: &[u8]) -> Result<Sample, Unusable> {
        SERVE.whole(page)
    }

    fn triton(page: &[u8]) -> Result<Sample, Unusable> {
        TRITON.whole(page)
    }

    #[test]
    fn trtllm_serve_names_its_numbers_plainly() {
        let page = b"trtllm_num_requests_running{model_name=\"m\"} 4\ntrtllm_num_requests_waiting{model_name=\"m\"} 1\ntrtllm_kv_cache_utilization{model_name=\"m\"} 0.5\ntrtllm_kv_cache_hit_rate 0.9\n";
        let sample = serve(page).unwrap();
        assert_eq!((sample.running, sample.waiting), (4, 1));
        assert_eq!(sample.kv_usage, Some(0.5));
    }

    #[test]
    fn triton_tells_states_apart_by_label() {
        let head = "nv_trt_llm_request_metrics{model=\"m\",request_type=\"active\",version=\"1\"} 5\nnv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 64\nnv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 3\n";
        let old = triton(head.as_bytes()).unwrap();
        assert_eq!((old.running, old.waiting), (3, 2));
        let new = format!(
            "{head}nv_trt_llm_request_metrics{{model=\"m\",request_type=\"waiting\",version=\"1\"}} 2\nnv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type=\"used\"}} 7\nnv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type=\"fraction\"}} 0.25\n"
        );
        let new = triton(new.as_bytes()).unwrap();
        assert_eq!((new.running, new.waiting, new.kv_usage), (5, 2, Some(0.25)));
    }
}
