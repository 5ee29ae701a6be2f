//! The router's configuration. Files are read and checked into valid types, and every problem of
//! every file is reported with its place.
//!
//! text → `yaml` → tree → [`env`](mod@env) → `check` → [`valid`]. [`load`](mod@load) does this for
//! all files at once. [`options`] is the catalogue; the check, the [`schema`] and the reference in
//! the docs come from it. [`report`] prints problems, and [`import`](mod@import) converts files of
//! other routers to route files. Nothing here watches a file, opens a socket or reads a clock.

pub mod aliases;
mod check;
pub mod env;
pub mod import;
pub mod keys;
pub mod lint;
pub mod load;
mod masking;
pub mod options;
pub mod owners;
pub mod report;
pub mod schema;
#[cfg(test)]
mod testing;
mod tree;
pub mod units;
pub mod valid;
mod yaml;

pub use check::{peers_at, peers_in_file};
pub use env::Env;
pub use load::{Loaded, RoutesAt, Sources, load};
