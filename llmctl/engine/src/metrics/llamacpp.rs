//! llama.cpp's names of current and old builds; without labels.

use super::page::Page;
use super::{Reading, number, ratio};

/// Current builds.
pub(crate) fn current(reading: &Reading) -> Page {
    let mut page = sums(reading);
    let counters = &reading.counters;
    let decoded = number(counters.generated_tokens);
    page.counter(
        "llamacpp:n_decode_total",
        "Total number of llama_decode() calls",
        decoded,
    );
    page.gauge(
        "llamacpp:n_tokens_max",
        "Largest observed n_tokens.",
        number(counters.longest),
    );
    page.gauge(
        "llamacpp:requests_processing",
        "Number of requests processing.",
        reading.running,
    );
    page.gauge(
        "llamacpp:requests_deferred",
        "Number of requests deferred.",
        reading.waiting,
    );
    page
}

/// Old builds, as routers that still support them describe their metrics.
pub(crate) fn old(reading: &Reading) -> Page {
    let mut page = sums(reading);
    let busy = "Number of slots that process a request.";
    page.gauge("llama_slots_busy", busy, reading.running);
    let usage = "KV-cache usage. 1 means 100 percent usage.";
    page.gauge("llamacpp:kv_cache_usage_ratio", usage, reading.kv_usage);
    page
}

fn sums(reading: &Reading) -> Page {
    let counters = &reading.counters;
    let computed = number(counters.prompt_tokens - counters.cached_tokens);
    let generated = number(counters.generated_tokens);
    let prompt_s = counters.prompt_time.as_secs_f64();
    let decode_s = counters.decode_time.as_secs_f64();
    let mut page = Page::default();
    let prompt = "Number of prompt tokens processed.";
    page.counter("llamacpp:prompt_tokens_total", prompt, computed);
    page.counter(
        "llamacpp:prompt_seconds_total",
        "Prompt process time",
        prompt_s,
    );
    let predicted = "Number of generation tokens processed.";
    page.counter("llamacpp:tokens_predicted_total", predicted, generated);
    page.counter(
        "llamacpp:tokens_predicted_seconds_total",
        "Predict process time",
        decode_s,
    );
    let prompt_rate = "Average prompt throughput in tokens/s.";
    page.gauge(
        "llamacpp:prompt_tokens_seconds",
        prompt_rate,
        ratio(computed, prompt_s),
    );
    let rate = "Average generation throughput in tokens/s.";
    page.gauge(
        "llamacpp:predicted_tokens_seconds",
        rate,
        ratio(generated, decode_s),
    );
    page
}
