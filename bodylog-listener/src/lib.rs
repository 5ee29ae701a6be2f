//! Receives body-log frames and writes hourly JSONL files.
//!
//! Senders connect to the frame port (`server`). Each frame becomes a full record and a slim row
//! (`prepare`), is written by one thread per file (`writer`), and is acknowledged when both are on
//! disk. The listener knows across restarts what each sender has stored (`ledger`), so a frame sent
//! twice is stored once. Formats: `docs/bodylog.md`.

mod budget;
mod buffers;
pub mod cli;
pub mod config;
mod extract;
mod housekeeping;
mod http;
mod ingest;
mod ledger;
mod lines;
mod metrics;
mod pack;
pub mod prepare;
mod quarantine;
mod recent;
mod retention;
mod root;
mod run;
mod segment;
mod server;
mod space;
mod spill;
mod storage;
mod stream;
mod writer;

pub use config::Config;
pub use extract::Shape;
pub use ledger::LedgerError;
pub use root::RootError;
pub use run::{Listeners, StartError, run};
pub use service::clock::WallClock;
pub use service::renewed::Renewed;
pub use service::tls::{TlsError, server_config};

#[cfg(test)]
mod tests;
