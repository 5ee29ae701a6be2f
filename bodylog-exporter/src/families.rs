//! The `/metrics` page: committed counts and polled gauges, in the format the scraper asks for.
//!
//! Counters carry no start time: the formats have one, but the encoders of the metrics library leave
//! it out. Native histograms carry theirs.

mod catalogue;
mod encode;
mod own;
mod polled;
mod resolver;
#[cfg(test)]
mod tests;
mod traffic;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use self::encode::Writer;
use crate::shared::Shared;
use service::exposition::{self, Format, PageError};

/// The page that a scraper gets.
#[derive(Debug)]
pub struct Page {
    open_metrics: Registry,
    /// Of the other two formats.
    prometheus: Registry,
}

impl Page {
    /// A page over the shared counts. `poll_prefix` begins the names of what routers report.
    pub fn new(shared: &Arc<Shared>, poll_prefix: &str) -> Self {
        let registry = |is_open_metrics| {
            let mut registry = Registry::default();
            registry.register_collector(Box::new(Everything {
                shared: Arc::clone(shared),
                poll_prefix: poll_prefix.to_owned(),
                is_open_metrics,
            }));
            registry
        };
        Self {
            open_metrics: registry(true),
            prometheus: registry(false),
        }
    }

    /// The page in one format.
    ///
    /// # Errors
    /// When a family breaks the rules of the format.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, PageError> {
        let registry = match format {
            Format::OpenMetrics => &self.open_metrics,
            Format::Text | Format::Protobuf => &self.prometheus,
        };
        exposition::render(registry, format)
    }
}

#[derive(Debug)]
struct Everything {
    shared: Arc<Shared>,
    poll_prefix: String,
    is_open_metrics: bool,
}

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        catalogue::own::BUILD.info(&mut encoder, env!("CARGO_PKG_VERSION"))?;
        let mut writer = Writer::new(&mut encoder, self.is_open_metrics);
        let committed = self.shared.committed();
        if let Some(committed) = &committed {
            traffic::write(&mut writer, &committed.view)?;
            own::write(&mut writer, committed, self.shared.troubles())?;
        }
        let polled = self.shared.last_polled();
        let view = committed.as_deref().map(|committed| &committed.view);
        polled::write(&mut writer, &polled, view, &self.poll_prefix)?;
        if let Some(resolver) = self.shared.resolver() {
            let pods = view.map_or(0, |view| view.pods);
            resolver::write(&mut writer, &resolver, pods)?;
        }
        own::always(&mut writer, &self.shared.connections)?;
        own::series(&mut writer)
    }
}
