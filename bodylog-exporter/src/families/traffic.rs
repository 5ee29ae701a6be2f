//! `bodylog_*`: metrics from rows.

use std::borrow::Cow;
use std::fmt;

use service::families::{Family, Values};

use super::catalogue::traffic;
use super::encode::Writer;
use crate::aggregate::View;
use crate::aggregate::labels::{STATUS_CLASSES, STREAMS, prompt_bucket_label};
use crate::aggregate::series::{Plain, Series, TRUNCATION_CAUSES};
use crate::aggregate::{TENANT_TOKEN_KINDS, TenantSeries};
use crate::histogram::Edges;

fn base(series: &Series) -> Values<'_, 4> {
    let labels = &series.labels;
    let service = labels.service.as_ref().unwrap_or(&labels.route);
    [
        (&**service).into(),
        (&*labels.route).into(),
        (&*labels.backend).into(),
        (&*labels.model).into(),
    ]
}

/// The base labels and one more.
fn with<'a>(series: &'a Series, value: impl Into<Cow<'a, str>>) -> Values<'a, 5> {
    let [service, route, backend, model] = base(series);
    [service, route, backend, model, value.into()]
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
                let [service, route, backend, model] = base(series);
                let labels = [service, route, backend, model, class.into(), stream.into()];
                (labels, count)
            })
    });
    writer.counters(&traffic::REQUESTS, series)
}

fn tokens_and_bytes(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let of = |get: fn(&Series) -> u64| {
        view.series
            .iter()
            .map(move |series| (base(series), get(series)))
    };
    writer.counters_beside_a_histogram(&traffic::PROMPT_TOKENS_COUNT, of(|s| s.tokens[0]))?;
    writer.counters_beside_a_histogram(&traffic::COMPLETION_TOKENS_COUNT, of(|s| s.tokens[1]))?;
    writer.counters(&traffic::CACHED_TOKENS, of(|s| s.tokens[2]))?;
    writer.counters(&traffic::REASONING_TOKENS, of(|s| s.tokens[3]))?;
    writer.counters(&traffic::TOTAL_TOKENS, of(|s| s.tokens[4]))?;
    writer.counters(&traffic::REQ_BYTES, of(|s| s.req_bytes))?;
    writer.counters(&traffic::RESP_BYTES, of(|s| s.resp_bytes))
}

fn outcomes(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let finished = view.series.iter().flat_map(|series| {
        series
            .finish
            .iter()
            .map(|(reason, count)| (with(series, &**reason), *count))
    });
    writer.counters(&traffic::FINISH_REASON, finished)?;
    writer.counters(
        &traffic::RETRIES,
        view.series.iter().map(|s| (base(s), s.retries)),
    )?;
    let truncated = view.series.iter().flat_map(|series| {
        series
            .truncated
            .iter()
            .zip(TRUNCATION_CAUSES)
            .map(|(count, cause)| (with(series, cause), *count))
    });
    writer.counters(&traffic::TRUNCATED, truncated)?;
    writer.counters(
        &traffic::USAGE_MISSING,
        view.series.iter().map(|s| (base(s), s.usage_missing)),
    )
}

fn histograms(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let rt = view.series.iter().flat_map(|series| {
        series
            .rt
            .iter()
            .zip(STREAMS)
            .filter_map(|(h, stream)| Some((with(series, stream), h.as_deref()?)))
    });
    writer.histograms(&traffic::RT_SECONDS, Edges::Seconds, rt)?;
    let ttft = view.series.iter().flat_map(|series| {
        series.ttft.iter().map(|(bucket, h)| {
            let labels = with(series, prompt_bucket_label(bucket));
            (labels, h)
        })
    });
    writer.histograms(&traffic::TTFT_SECONDS, Edges::Seconds, ttft)?;
    let rate = view.series.iter().flat_map(|series| {
        series.output_rate.iter().map(|(bucket, h)| {
            let labels = with(series, prompt_bucket_label(bucket));
            (labels, h)
        })
    });
    writer.histograms(&traffic::OUTPUT_TOK_PER_SECOND, Edges::Rate, rate)?;
    for which in Plain::ALL {
        let series = view.series.iter().filter_map(|series| {
            let histogram = series.plain[which as usize].as_deref()?;
            Some((base(series), histogram))
        });
        writer.histograms(named(which), which.edges(), series)?;
    }
    Ok(())
}

fn named(which: Plain) -> &'static Family<4> {
    match which {
        Plain::OverallRate => &traffic::OVERALL_OUTPUT_TOK_PER_SECOND,
        Plain::DecodeRate => &traffic::DECODE_OUTPUT_TOK_PER_SECOND,
        Plain::Tpot => &traffic::TPOT_SECONDS,
        Plain::PromptTokens => &traffic::PROMPT_TOKENS,
        Plain::CompletionTokens => &traffic::COMPLETION_TOKENS,
        Plain::Overhead => &traffic::ROUTER_OVERHEAD_SECONDS,
    }
}

fn tenant(series: &TenantSeries) -> Values<'_, 3> {
    let labels = &series.labels;
    let service = labels.service.as_ref().unwrap_or(&labels.route);
    [
        (&**service).into(),
        (&*labels.route).into(),
        (&*labels.tenant).into(),
    ]
}

fn tenants(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    writer.counters(
        &traffic::TENANT_REQUESTS,
        view.tenants.iter().map(|s| (tenant(s), s.requests)),
    )?;
    let tokens = view.tenants.iter().flat_map(|series| {
        series
            .tokens
            .iter()
            .zip(TENANT_TOKEN_KINDS)
            .map(|(count, kind)| {
                let [service, route, tenant] = tenant(series);
                ([service, route, tenant, kind.into()], *count)
            })
    });
    writer.counters(&traffic::TENANT_TOKENS, tokens)
}

fn rejects(writer: &mut Writer<'_, '_>, view: &View) -> fmt::Result {
    let series = view.rejects.iter().map(|rejected| {
        let key = &rejected.key;
        let labels = [
            (&*key.route).into(),
            key.status.to_string().into(),
            (&*key.reason).into(),
        ];
        (labels, rejected.count)
    });
    writer.counters(&traffic::REJECTS, series)
}
