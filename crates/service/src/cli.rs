//! The shared parts of the programs' command lines.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::builder::Resettable;

/// Treats an empty environment variable as unset, because compose files and unit files leave such.
pub fn blank_is_unset(command: clap::Command) -> clap::Command {
    let is_blank = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| match arg.get_env() {
            Some(name) if is_blank(name) => arg.env(Resettable::Reset),
            _ => arg,
        })
        .mut_subcommands(blank_is_unset)
}

/// Parses a listen address: `9999` or `:9999` (both on every address), or `127.0.0.1:9999`.
///
/// # Errors
/// A text that says what is expected.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    text.parse()
        .map_err(|_| "expected a port, as 9999, or address and port, as 127.0.0.1:9999".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_means_every_address() {
        for (text, expected) in [
            ("9110", "0.0.0.0:9110"),
            (":9110", "0.0.0.0:9110"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        assert!(address("localhost").is_err());
    }
}
