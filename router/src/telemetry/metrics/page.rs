//! The `/metrics` page.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{prometheus_protobuf, prometheus_text, text};
use prometheus_client::registry::Registry;
use proto::exposition::Format;

use super::Metrics;
use super::encode::Counted;
use super::process::ProcessCollector;

/// Everything a scraper sees, rendered on demand.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
}

/// The page could not be rendered: a bug in a family, never a scraper's fault.
#[derive(Debug, thiserror::Error)]
#[error("encode the metrics page")]
pub struct PageError;

impl Page {
    /// The page of what is counted and of what is `live`: read from its owner at each scrape.
    pub fn new(metrics: &Arc<Metrics>, live: impl Collector) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Counted(Arc::clone(metrics))));
        registry.register_collector(Box::new(live));
        registry.register_collector(Box::new(ProcessCollector));
        Self { registry }
    }

    /// A page of one collector's families.
    pub fn only(families: impl Collector) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(families));
        Self { registry }
    }

    /// The page in one format.
    ///
    /// # Errors
    /// When a family breaks the rules of the format.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, PageError> {
        let mut page = String::new();
        match format {
            Format::Text => prometheus_text::encode(&mut page, &self.registry)?,
            Format::OpenMetrics => text::encode(&mut page, &self.registry)?,
            Format::Protobuf => {
                return prometheus_protobuf::encode_to_vec(&self.registry).map_err(|_| PageError);
            }
        }
        Ok(page.into_bytes())
    }
}

impl From<fmt::Error> for PageError {
    fn from(_: fmt::Error) -> Self {
        Self
    }
}
