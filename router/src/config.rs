//! Configuration: raw files, checked into valid types, with every problem of every file reported.
//!
//! text → `yaml` → tree → [`env`](mod@env) → `check` → [`valid`]. [`load`](mod@load) does it for all files at once;
//! [`import`](mod@import) makes route files of what other routers read; [`report`] shows what came out; [`options`] is the catalogue that the check, the [`schema`] and the
//! reference in the docs are made from.

mod check;
pub mod env;
pub mod import;
pub mod keys;
pub mod lint;
pub mod load;
mod masking;
pub mod options;
pub mod report;
pub mod schema;
#[cfg(test)]
mod testing;
mod tree;
pub mod units;
pub mod valid;
pub mod watch;
mod yaml;

pub use env::Env;
pub use load::{Loaded, RoutesAt, Sources, load};
