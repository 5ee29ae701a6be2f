//! TensorRT-LLM: served by `trtllm-serve`, or inside of Triton.

use router_core::load::Sample;

use super::page::{Count, Share, Unusable, series};

/// `trtllm-serve`.
pub(super) fn serve(page: &[u8]) -> Result<Sample, Unusable> {
    let (mut running, mut waiting) = (Count::default(), Count::default());
    let mut kv = Share::default();
    for series in series(page) {
        if series.is("trtllm_num_requests_running") {
            running.add(series.value);
        } else if series.is("trtllm_num_requests_waiting") {
            waiting.add(series.value);
        } else if series.is("trtllm_kv_cache_utilization") {
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

/// Triton: one family with a label for each state. Builds without `waiting` count it among the
/// active, of which `scheduled` run.
pub(super) fn triton(page: &[u8]) -> Result<Sample, Unusable> {
    let (mut active, mut scheduled, mut waiting) =
        (Count::default(), Count::default(), Count::default());
    let mut kv = Share::default();
    for series in series(page) {
        if series.is("nv_trt_llm_request_metrics") {
            if series.has("request_type", "active") {
                active.add(series.value);
            } else if series.has("request_type", "scheduled") {
                scheduled.add(series.value);
            } else if series.has("request_type", "waiting") {
                waiting.add(series.value);
            }
        } else if series.is("nv_trt_llm_kv_cache_block_metrics")
            && series.has("kv_cache_block_type", "fraction")
        {
            kv.add(series.value);
        }
    }
    let active = active.get()?.ok_or(Unusable)?;
    let (running, waiting) = match (waiting.get()?, scheduled.get()?) {
        (Some(waiting), _) => (active, waiting),
        (None, Some(scheduled)) => (active.min(scheduled), active.saturating_sub(scheduled)),
        (None, None) => (active, 0),
    };
    Ok(Sample {
        running,
        waiting,
        kv_usage: kv.get(),
        batches: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
