//! vLLM's names (0.32), limited to those that a router or a dashboard reads.

use super::page::Page;
use super::{Reading, number};
use crate::cache::BLOCK;

pub(crate) fn page(reading: &Reading) -> Page {
    let mut page = Page::labelled(&[("engine", "0"), ("model_name", &reading.model)]);
    load(&mut page, reading);
    tokens(&mut page, reading);
    requests(&mut page, reading);
    page
}

fn load(page: &mut Page, reading: &Reading) {
    let running = "Number of requests in model execution batches.";
    page.gauge("vllm:num_requests_running", running, reading.running);
    let waiting = "Number of requests waiting to be processed.";
    page.gauge("vllm:num_requests_waiting", waiting, reading.waiting);
    let by_reason = "vllm:num_requests_waiting_by_reason";
    page.family(by_reason, "gauge", "Number of waiting requests by reason.");
    page.sample(by_reason, &[("reason", "capacity")], reading.waiting);
    page.sample(by_reason, &[("reason", "deferred")], 0.0);
    let usage = "KV-cache usage. 1 means 100 percent usage.";
    page.gauge("vllm:kv_cache_usage_perc", usage, reading.kv_usage);
    let config = "vllm:cache_config_info";
    page.family(config, "gauge", "Information of the LLMEngine CacheConfig");
    let (size, blocks) = (BLOCK.to_string(), reading.cache_blocks.to_string());
    page.sample(
        config,
        &[("block_size", &size), ("num_gpu_blocks", &blocks)],
        1.0,
    );
}

fn tokens(page: &mut Page, reading: &Reading) {
    let counters = &reading.counters;
    let mut counter = |name, help, count| page.counter(name, help, number(count));
    counter(
        "vllm:prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        counters.cache_queries,
    );
    counter(
        "vllm:prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        counters.cache_hits,
    );
    counter(
        "vllm:prompt_tokens_total",
        "Number of prefill tokens processed.",
        counters.prompt_tokens,
    );
    counter(
        "vllm:prompt_tokens_cached_total",
        "Number of cached prompt tokens.",
        counters.cached_tokens,
    );
    counter(
        "vllm:generation_tokens_total",
        "Number of generation tokens processed.",
        counters.generated_tokens,
    );
}

fn requests(page: &mut Page, reading: &Reading) {
    let counters = &reading.counters;
    let success = "vllm:request_success_total";
    page.family(
        success,
        "counter",
        "Count of successfully processed requests.",
    );
    page.sample(
        success,
        &[("finished_reason", "stop")],
        number(counters.stopped),
    );
    page.sample(
        success,
        &[("finished_reason", "length")],
        number(counters.at_length),
    );
    page.sample(
        success,
        &[("finished_reason", "abort")],
        number(counters.aborted),
    );
    let ttft = "Histogram of time to first token in seconds.";
    page.histogram("vllm:time_to_first_token_seconds", ttft, &counters.ttft);
    let latency = "Histogram of e2e request latency in seconds.";
    page.histogram(
        "vllm:e2e_request_latency_seconds",
        latency,
        &counters.latency,
    );
}
