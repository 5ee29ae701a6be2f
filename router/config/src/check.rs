//! Turns a tree into valid types. Every problem of a file is reported with its place. The resulting
//! value is used only if no problem is fatal.

mod aliases;
mod auth;
mod eject;
mod fallback;
mod guard;
mod health_check;
mod load;
mod main_file;
mod names;
mod net;
mod origins;
mod owners;
mod peers;
mod peers_from;
mod reader;
mod route_file;
mod rules;
mod scalar;
mod section;
mod tables;

pub(crate) use aliases::aliases;
pub(crate) use auth::{SHARED, api_keys};
pub(crate) use eject::eject;
pub(crate) use fallback::fallback;
pub(crate) use health_check::health_check;
pub(crate) use main_file::{Base, MainFile, main_file, state};
pub(crate) use names::{
    NAME_MAX, RESERVED, optional_file, optional_route_name, prefixes, route_name, session_sources,
    url_path,
};
pub(crate) use net::{
    Endpoint, address, cidrs, host_port_text, listen, optional_host_port, page_url, url,
};
pub(crate) use origins::origins;
pub(crate) use peers::{slots, weight};
pub use peers_from::{peers_at, peers_in_file};
pub(crate) use reader::{Reader, short};
pub(crate) use route_file::{RouteFile, route_file, stem};
pub(crate) use rules::{RuleOp, reject_rules};
pub use scalar::Choice;
pub(crate) use scalar::{
    boolean, choice, duration, duration_or_off, file, integer, nearest, number, number_or_off,
    secret, size, status, text, whole, whole_or_auto, whole_or_off,
};
pub(crate) use section::{Layers, sounds_secret};
pub(crate) use tables::{bodies, body_paths, buckets, metrics, thresholds};

#[cfg(test)]
mod tests;
