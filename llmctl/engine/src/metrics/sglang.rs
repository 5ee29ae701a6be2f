//! SGLang's names, as rank 0 of a single process reports them.

use super::page::Page;
use super::{Reading, number, ratio};
use crate::cache::BLOCK;

pub(crate) fn page(reading: &Reading) -> Page {
    let mut page = Page::labelled(&[
        ("engine_type", "unified"),
        ("model_name", &reading.model),
        ("pp_rank", "0"),
        ("tp_rank", "0"),
    ]);
    gauges(&mut page, reading);
    counters(&mut page, reading);
    page
}

fn gauges(page: &mut Page, reading: &Reading) {
    let sums = &reading.counters;
    page.gauge(
        "sglang:num_running_reqs",
        "The number of running requests.",
        reading.running,
    );
    let queue = "The number of requests in the waiting queue.";
    page.gauge("sglang:num_queue_reqs", queue, reading.waiting);
    page.gauge("sglang:token_usage", "The token usage.", reading.kv_usage);
    let pool = number((reading.cache_blocks * BLOCK) as u64);
    let total = "Maximum total number of tokens in the KV cache pool.";
    page.gauge("sglang:max_total_num_tokens", total, pool);
    let hit_rate = ratio(number(sums.cache_hits), number(sums.cache_queries));
    page.gauge(
        "sglang:cache_hit_rate",
        "The prefix cache hit rate.",
        hit_rate,
    );
    let throughput = ratio(
        number(sums.generated_tokens),
        sums.decode_time.as_secs_f64(),
    );
    page.gauge(
        "sglang:gen_throughput",
        "The generation throughput (token/s).",
        throughput,
    );
}

fn counters(page: &mut Page, reading: &Reading) {
    let sums = &reading.counters;
    let mut counter = |name, help, count| page.counter(name, help, number(count));
    counter(
        "sglang:prompt_tokens_total",
        "Number of prefill tokens processed.",
        sums.prompt_tokens,
    );
    counter(
        "sglang:cached_tokens_total",
        "Number of cached prompt tokens.",
        sums.cached_tokens,
    );
    counter(
        "sglang:generation_tokens_total",
        "Number of generation tokens processed.",
        sums.generated_tokens,
    );
    counter(
        "sglang:num_requests_total",
        "Number of requests processed.",
        sums.started,
    );
    counter(
        "sglang:num_aborted_requests_total",
        "Number of requests aborted.",
        sums.aborted,
    );
    let ttft = "Histogram of time to first token in seconds.";
    page.histogram("sglang:time_to_first_token_seconds", ttft, &sums.ttft);
    let latency = "Histogram of End-to-end request latency in seconds";
    page.histogram("sglang:e2e_request_latency_seconds", latency, &sums.latency);
}
