//! `bodylog_*`: metrics from rows.

use std::fmt;

use super::encode::{Labels, Writer};
use crate::aggregate::View;
use crate::aggregate::labels::{STATUS_CLASSES, STREAMS, prompt_bucket_label};
use crate::aggregate::series::{Plain, Series, TRUNCATION_CAUSES};
use crate::aggregate::{TENANT_TOKEN_KINDS, TenantSeries};
use crate::histogram::Edges;

fn base(series: &Series) -> Labels<'_> {
    let labels = &series.labels;
    let service = labels.service.as_ref().unwrap_or(&labels.route);
    vec![
        ("service", (&**service).into()),
        ("route", (&*labels.route).into()),
        ("backend", (&*labels.backend).into()),
        ("model", (&*labels.model).into()),
    ]
}

fn with<'a>(
    mut labels: Labels<'a>,
    name: &'static str,
    value: impl Into<std::borrow::Cow<'a, str>>,
) -> Labels<'a> {
    labels.push((name, value.into()));
    labels
}

pub(super) fn write(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    requests(writer, view)?;
    tokens_and_bytes(writer, view)?;
    outcomes(writer, view)?;
    histograms(writer, view)?;
    tenants(writer, view)?;
    rejects(writer, view)
}

fn requests(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let series = view.series.iter().flat_map(|series| {
        let cells = series
            .requests
            .iter()
            .zip(STATUS_CLASSES)
            .flat_map(|(by_stream, class)| {
                by_stream
                    .iter()
                    .zip(STREAMS)
                    .map(move |(count, stream)| (class, stream, *count))
            });
        cells
            .filter(|(_, _, count)| *count > 0)
            .map(|(class, stream, count)| {
                let labels = with(base(series), "status_class", class);
                (with(labels, "stream", stream), count)
            })
    });
    writer.counters("bodylog_requests", "Requests recorded.", series)
}

fn tokens_and_bytes(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let of = |get: fn(&Series) -> u64| {
        view.series
            .iter()
            .map(move |series| (base(series), get(series)))
    };
    writer.counters_beside_a_histogram(
        "bodylog_prompt_tokens",
        "Tokens of prompts.",
        of(|s| s.tokens[0]),
    )?;
    writer.counters_beside_a_histogram(
        "bodylog_completion_tokens",
        "Tokens of answers.",
        of(|s| s.tokens[1]),
    )?;
    writer.counters(
        "bodylog_cached_tokens",
        "Tokens of prompts that came from a prefix cache.",
        of(|s| s.tokens[2]),
    )?;
    writer.counters(
        "bodylog_reasoning_tokens",
        "Tokens of answers that were reasoning.",
        of(|s| s.tokens[3]),
    )?;
    writer.counters(
        "bodylog_total_tokens",
        "Tokens of prompts and answers.",
        of(|s| s.tokens[4]),
    )?;
    writer.counters(
        "bodylog_req_bytes",
        "Bytes of request bodies.",
        of(|s| s.req_bytes),
    )?;
    writer.counters(
        "bodylog_resp_bytes",
        "Bytes of response bodies.",
        of(|s| s.resp_bytes),
    )
}

fn outcomes(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let finished = view.series.iter().flat_map(|series| {
        series
            .finish
            .iter()
            .map(|(reason, count)| (with(base(series), "finish_reason", &**reason), *count))
    });
    writer.counters(
        "bodylog_finish_reason",
        "Answers by why they ended; none is a 200 that was not seen to end.",
        finished,
    )?;
    writer.counters(
        "bodylog_retries",
        "Attempts beyond the first.",
        view.series.iter().map(|s| (base(s), s.retries)),
    )?;
    let truncated = view.series.iter().flat_map(|series| {
        series
            .truncated
            .iter()
            .zip(TRUNCATION_CAUSES)
            .map(|(count, cause)| (with(base(series), "cause", cause), *count))
    });
    writer.counters(
        "bodylog_truncated",
        "Answers that are not whole: cut by the engine (no_finish) or the client (client_abort), or stored in part (capture).",
        truncated,
    )?;
    writer.counters(
        "bodylog_usage_missing",
        "Successful requests whose answer names no tokens.",
        view.series.iter().map(|s| (base(s), s.usage_missing)),
    )
}

fn histograms(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let rt =
        view.series.iter().flat_map(|series| {
            series.rt.iter().zip(STREAMS).filter_map(|(h, stream)| {
                Some((with(base(series), "stream", stream), h.as_deref()?))
            })
        });
    writer.histograms(
        "bodylog_rt_seconds",
        "Arrival of a request to the end of its answer.",
        Edges::Seconds,
        rt,
    )?;
    let ttft = view.series.iter().flat_map(|series| {
        series.ttft.iter().map(|(bucket, h)| {
            let labels = with(base(series), "prompt_bucket", prompt_bucket_label(bucket));
            (labels, h)
        })
    });
    writer.histograms(
        "bodylog_ttft_seconds",
        "Arrival of a request to the first chunk of its stream, by length of the prompt.",
        Edges::Seconds,
        ttft,
    )?;
    let rate = view.series.iter().flat_map(|series| {
        series.output_rate.iter().map(|(bucket, h)| {
            let labels = with(base(series), "prompt_bucket", prompt_bucket_label(bucket));
            (labels, h)
        })
    });
    writer.histograms(
        "bodylog_output_tok_per_second",
        "Completion tokens over the whole request, of at least 16 tokens in 0.5 s, by length of the prompt.",
        Edges::Rate,
        rate,
    )?;
    for which in Plain::ALL {
        let (name, help) = named(which);
        let series = view.series.iter().filter_map(|series| {
            let histogram = series.plain[which as usize].as_deref()?;
            Some((base(series), histogram))
        });
        writer.histograms(name, help, which.edges(), series)?;
    }
    Ok(())
}

fn named(which: Plain) -> (&'static str, &'static str) {
    match which {
        Plain::OverallRate => (
            "bodylog_overall_output_tok_per_second",
            "Completion tokens over the whole request, of successes.",
        ),
        Plain::DecodeRate => (
            "bodylog_decode_output_tok_per_second",
            "Completion tokens over the time from first to last chunk, of successes that took more than 0.3 s for it.",
        ),
        Plain::Tpot => (
            "bodylog_tpot_seconds",
            "Time per output token after the first, of streams.",
        ),
        Plain::PromptTokens => ("bodylog_prompt_tokens", "Tokens of a prompt."),
        Plain::CompletionTokens => ("bodylog_completion_tokens", "Tokens of an answer."),
        Plain::Overhead => (
            "bodylog_router_overhead_seconds",
            "Waiting for a slot and connecting to the peer.",
        ),
    }
}

fn tenant(series: &TenantSeries) -> Labels<'_> {
    let labels = &series.labels;
    let service = labels.service.as_ref().unwrap_or(&labels.route);
    vec![
        ("service", (&**service).into()),
        ("route", (&*labels.route).into()),
        ("tenant", (&*labels.tenant).into()),
    ]
}

fn tenants(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    writer.counters(
        "bodylog_tenant_requests",
        "Requests recorded, by owner of the key.",
        view.tenants.iter().map(|s| (tenant(s), s.requests)),
    )?;
    let tokens = view.tenants.iter().flat_map(|series| {
        series
            .tokens
            .iter()
            .zip(TENANT_TOKEN_KINDS)
            .map(|(count, kind)| (with(tenant(series), "kind", kind), *count))
    });
    writer.counters(
        "bodylog_tenant_tokens",
        "Tokens, by owner of the key and kind.",
        tokens,
    )
}

fn rejects(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let series = view.rejects.iter().map(|rejected| {
        let key = &rejected.key;
        let labels: Labels<'_> = vec![
            ("route", (&*key.route).into()),
            ("status", key.status.to_string().into()),
            ("reason", (&*key.reason).into()),
        ];
        (labels, rejected.count)
    });
    writer.counters(
        "bodylog_rejects",
        "Requests the router refused itself.",
        series,
    )
}
