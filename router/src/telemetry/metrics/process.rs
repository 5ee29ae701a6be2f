//! `process_*`: the operating system's numbers about this process, under the names that all client
//! libraries use.

use std::fmt;

use procfs::process::{LimitValue, Process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;

use super::catalogue::process as families;

/// Reads `/proc/self` at each scrape. Unreadable values are left out of the page.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let Ok(process) = Process::myself() else {
            return Ok(());
        };
        if let Ok(stat) = process.stat() {
            let ticks = number(procfs::ticks_per_second());
            let cpu = (number(stat.utime) + number(stat.stime)) / ticks;
            families::CPU_SECONDS.write(encoder, [([], ConstCounter::new(cpu))])?;
            let resident = number(stat.rss) * number(procfs::page_size());
            families::RESIDENT_MEMORY_BYTES.gauge(encoder, resident)?;
            families::VIRTUAL_MEMORY_BYTES.gauge(encoder, number(stat.vsize))?;
            if let Ok(boot) = procfs::boot_time_secs() {
                let start = number(boot) + number(stat.starttime) / ticks;
                families::START_TIME_SECONDS.gauge(encoder, start)?;
            }
        }
        if let Ok(open) = process.fd_count() {
            families::OPEN_FDS.gauge(encoder, number(open as u64))?;
        }
        if let Ok(limits) = process.limits()
            && let LimitValue::Value(max) = limits.max_open_files.soft_limit
        {
            families::MAX_FDS.gauge(encoder, number(max))?;
        }
        Ok(())
    }
}

fn number(value: u64) -> f64 {
    value as f64
}
