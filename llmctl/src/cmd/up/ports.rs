//! Chooses the ports of `up`.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::exit::Failure;

const PUBLIC_DEFAULT: u16 = 8080;
/// Distance of the admin port above the public one, as 8090 above 8080.
const ADMIN_OFFSET: u16 = 10;

/// The source of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// The existing main file.
    OfFile,
    /// These addresses.
    Chosen {
        /// The public address.
        public: SocketAddr,
        /// The admin address.
        admin: SocketAddr,
    },
}

impl Ports {
    /// Chooses the ports. An existing main file keeps its ports unless the command line names one.
    ///
    /// # Errors
    /// When the public port is in use.
    pub(super) fn choose(asked: Option<u16>, has_main_file: bool) -> Result<Self, Failure> {
        if asked.is_none() && has_main_file {
            return Ok(Self::OfFile);
        }
        let asked = asked.unwrap_or(PUBLIC_DEFAULT);
        let public = free(asked).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Failure::Wrong(format!(
                "port {asked} is taken; choose another with --port, or 0 for a free one"
            )),
            _ => Failure::Wrong(format!("cannot listen on port {asked}: {error}")),
        })?;
        let beside = public
            .port()
            .checked_add(ADMIN_OFFSET)
            .and_then(|port| free(port).ok());
        let admin = match beside {
            Some(admin) => admin,
            None => free(0).map_err(|error| Failure::Wrong(format!("no free port: {error}")))?,
        };
        Ok(Self::Chosen { public, admin })
    }

    /// The addresses that override the router's file.
    pub(super) fn overrides(self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match self {
            Self::OfFile => (None, None),
            Self::Chosen { public, admin } => (Some(public), Some(admin)),
        }
    }
}

/// The loopback address with `port` if it is free now, or with a free port for 0.
fn free(port: u16) -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_main_file_keeps_its_ports_unless_one_is_asked_for() {
        assert_eq!(Ports::choose(None, true).unwrap(), Ports::OfFile);
        assert_ne!(Ports::choose(Some(0), true).unwrap(), Ports::OfFile);
    }

    #[test]
    fn a_taken_port_is_an_error_that_says_what_to_do() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let failure = Ports::choose(Some(taken.local_addr().unwrap().port()), false).unwrap_err();
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains("--port"), "{failure}");
    }

    #[test]
    fn a_taken_admin_port_falls_back_to_a_free_one() {
        // The test holds both ports of a pair while it looks for one whose neighbour is free.
        let (public, neighbour) =
            std::iter::repeat_with(|| TcpListener::bind("127.0.0.1:0").unwrap())
                .find_map(|public| {
                    let port = public.local_addr().unwrap().port();
                    let neighbour =
                        TcpListener::bind((Ipv4Addr::LOCALHOST, port.checked_add(ADMIN_OFFSET)?))
                            .ok()?;
                    Some((public, neighbour))
                })
                .unwrap();
        let asked = public.local_addr().unwrap().port();
        drop(public);
        let Ports::Chosen { public, admin } = Ports::choose(Some(asked), false).unwrap() else {
            panic!("a port was asked for");
        };
        assert_eq!(public.port(), asked);
        assert_ne!(admin.port(), neighbour.local_addr().unwrap().port());
    }
}
