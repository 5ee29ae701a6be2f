//! Tree → valid types. Every problem of a file is reported, with its place; what remains is a value
//! that is only used when none of them is fatal.

mod auth;
mod guard;
mod load;
mod main_file;
mod names;
mod net;
mod peers;
mod reader;
mod route_file;
mod rules;
mod scalar;
mod section;
mod tables;

pub(in crate::config) use auth::api_keys;
pub(in crate::config) use main_file::{Base, MainFile, main_file, state};
pub(in crate::config) use names::{
    NAME_MAX, RESERVED, optional_file, optional_route_name, prefixes, route_name, session_sources,
    url_path,
};
pub(in crate::config) use net::{
    Endpoint, address, cidrs, host_port_text, listen, optional_host_port, page_url, url,
};
pub(in crate::config) use peers::{slots, weight};
pub(in crate::config) use reader::{Reader, short};
pub(in crate::config) use route_file::{RouteFile, route_file, stem};
pub(in crate::config) use rules::{CheckedRules, RuleOp, reject_rules};
pub(in crate::config) use scalar::{
    Choice, boolean, choice, duration, duration_or_off, file, handler, handlers, integer, nearest,
    number, number_or_off, secret, size, status, text, whole, whole_or_off,
};
pub(in crate::config) use section::sounds_secret;
pub(in crate::config) use tables::{bodies, body_paths, buckets, metrics, thresholds};

#[cfg(test)]
mod tests;
