//! The `/metrics` page.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::registry::Registry;
use service::exposition::{Format, PageError};

use super::Metrics;
use super::encode::Counted;
use super::process::ProcessCollector;

/// The complete page, rendered on demand.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// The page of the counters and of `live`, which is read from its owners at each scrape.
    pub fn new(metrics: &Arc<Metrics>, live: impl Collector) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Counted(Arc::clone(metrics))));
        registry.register_collector(Box::new(live));
        registry.register_collector(Box::new(ProcessCollector));
        Self { registry }
    }

    /// A page with the families of one collector.
    pub fn only(families: impl Collector) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(families));
        Self { registry }
    }

    /// The page in one format.
    ///
    /// # Errors
    /// When a family violates the rules of the format.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, PageError> {
        service::exposition::render(&self.registry, format)
    }
}
