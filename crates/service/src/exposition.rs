//! The `/metrics` page: chooses the exposition format for a scraper and renders the page.

use std::cmp::Ordering;
use std::fmt;

use http::HeaderMap;
use http::header::ACCEPT;
use prometheus_client::encoding::{prometheus_protobuf, prometheus_text, text};
use prometheus_client::registry::Registry;

/// The three exposition formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4: the default, and the format for `curl` and browsers.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Length-delimited `io.prometheus.client.MetricFamily`. Only this format has native
    /// histograms.
    Protobuf,
}

impl Format {
    /// The `Content-Type` of an answer in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The format that a request's headers ask for.
    pub fn of(headers: &HeaderMap) -> Self {
        // Several header lines form one list.
        let accept: Vec<_> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        Self::negotiate((!accept.is_empty()).then(|| accept.join(",")).as_deref())
    }

    /// The format that an `Accept` value prefers; in a tie, the first one. Text when the header is
    /// missing or names no supported format, because text is more useful to a scraper than a 406.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let mut best = (Self::Text, 0.0_f32);
        for range in accept.unwrap_or_default().split(',') {
            if let Some((format, q)) = range_of(range)
                && q.total_cmp(&best.1) == Ordering::Greater
            {
                best = (format, q);
            }
        }
        best.0
    }
}

/// The page could not be rendered. The cause is a bug in a metric family, never the scraper.
#[derive(Debug, thiserror::Error)]
#[error("encode the metrics page")]
pub struct PageError;

impl From<fmt::Error> for PageError {
    fn from(_: fmt::Error) -> Self {
        Self
    }
}

/// Renders every family of a registry.
///
/// # Errors
/// When a family breaks the rules of the format.
pub fn render(registry: &Registry, format: Format) -> Result<Vec<u8>, PageError> {
    let mut page = String::new();
    match format {
        Format::Text => prometheus_text::encode(&mut page, registry)?,
        Format::OpenMetrics => text::encode(&mut page, registry)?,
        Format::Protobuf => {
            return prometheus_protobuf::encode_to_vec(registry).map_err(|_| PageError);
        }
    }
    Ok(page.into_bytes())
}

/// One media range: the format that it accepts, and its quality value. `None` for a format that we
/// cannot serve.
fn range_of(range: &str) -> Option<(Format, f32)> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let mut q = 1.0;
    let (mut version, mut proto, mut encoding) = (None, None, None);
    for part in parts {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => {
                q = value
                    .parse::<f32>()
                    .ok()
                    .filter(|q| (0.0..=1.0).contains(q))?;
            }
            "version" => version = Some(value),
            "proto" => proto = Some(value),
            "encoding" => encoding = Some(value),
            _ => {}
        }
    }
    let format = match media.as_str() {
        "*/*" | "text/*" => Format::Text,
        "text/plain" if version.is_none_or(|v| v == "0.0.4") => Format::Text,
        "application/openmetrics-text" if version.is_none_or(|v| v == "1.0.0") => {
            Format::OpenMetrics
        }
        "application/vnd.google.protobuf"
            if proto == Some("io.prometheus.client.MetricFamily")
                && encoding == Some("delimited") =>
        {
            Format::Protobuf
        }
        _ => return None,
    };
    Some((format, q))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `Accept` header of Prometheus 3 with native histograms on, and off.
    const PROTOBUF_FIRST: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
        text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    const OPENMETRICS_FIRST: &str = "application/openmetrics-text;version=1.0.0;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";

    #[test]
    fn the_largest_quality_wins() {
        assert_eq!(Format::negotiate(Some(PROTOBUF_FIRST)), Format::Protobuf);
        assert_eq!(
            Format::negotiate(Some(OPENMETRICS_FIRST)),
            Format::OpenMetrics
        );
        assert_eq!(
            Format::negotiate(Some("application/openmetrics-text;q=0.1, text/plain;q=0.9")),
            Format::Text
        );
        assert_eq!(
            Format::negotiate(Some("text/plain;q=0.1, application/openmetrics-text")),
            Format::OpenMetrics
        );
    }

    #[test]
    fn whoever_names_no_format_of_ours_gets_text() {
        for accept in [
            None,
            Some(""),
            Some("*/*"),
            Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            Some("application/json"),
            Some("application/vnd.google.protobuf"),
            Some("application/openmetrics-text;version=9.9.9"),
            Some("application/openmetrics-text;q=nonsense"),
            Some(";;;,,,"),
        ] {
            assert_eq!(Format::negotiate(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn a_quality_of_zero_excludes() {
        assert_eq!(
            Format::negotiate(Some("application/openmetrics-text;q=0")),
            Format::Text
        );
        assert_eq!(
            Format::negotiate(Some("application/openmetrics-text;q=0.0,*/*;q=0.1")),
            Format::Text
        );
    }
}
