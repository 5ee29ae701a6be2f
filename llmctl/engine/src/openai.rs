//! The OpenAI HTTP API, as vLLM, SGLang and llama.cpp serve it.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod conversations;
pub(crate) mod embeddings;
pub(crate) mod files;
mod form;
pub(crate) mod models;
pub(crate) mod responses;
pub(crate) mod uploads;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::generate::{Timings, Usage};
use crate::text::Finish;

/// `stream_options`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// `usage` of chat and completions.
fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

/// `finish_reason` of chat and completions.
fn reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopSequence(_) => "stop",
        Finish::Length => "length",
        Finish::ToolCall => "tool_calls",
    }
}

/// vLLM's `stop_reason`: the stop sequence that matched.
fn stop_reason(finish: &Finish) -> Value {
    match finish {
        Finish::StopSequence(stop) => json!(stop),
        _ => Value::Null,
    }
}

/// Adds the timings that only llama.cpp reports.
fn add_timings(document: &mut Value, dialect: Dialect, usage: Usage, timings: Timings) {
    if dialect.is_llamacpp() {
        document["timings"] = llamacpp_timings(usage, timings);
    }
}

fn llamacpp_timings(usage: Usage, timings: Timings) -> Value {
    let computed = usage.prompt - usage.cached;
    let prompt_ms = timings.prompt.as_secs_f64() * 1e3;
    let decode_ms = timings.decode.as_secs_f64() * 1e3;
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts stay far below 2^52"
    )]
    let (computed_f, made_f) = (computed as f64, usage.completion as f64);
    // Division by zero gives no valid JSON number. llama.cpp's own rates of an empty phase are
    // arbitrary too.
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    json!({
        "cache_n": usage.cached,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": ratio(prompt_ms, computed_f),
        "prompt_per_second": ratio(computed_f * 1e3, prompt_ms),
        "predicted_n": usage.completion,
        "predicted_ms": decode_ms,
        "predicted_per_token_ms": ratio(decode_ms, made_f),
        "predicted_per_second": ratio(made_f * 1e3, decode_ms),
    })
}
