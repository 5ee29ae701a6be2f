//! The address of a peer, as connections and their pools need it.

use http::Uri;
use http::uri::{Authority, Scheme};

/// Scheme, host and port of a peer.
#[derive(Clone, Debug)]
pub struct Address {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
}

impl Address {
    /// Whether connections are encrypted.
    pub(super) fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The address as a URI, for a connector.
    pub(super) fn uri(&self) -> Uri {
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query("/");
        uri.build().expect("scheme, authority and path are a URI")
    }
}
