//! Where and how to reach one peer.

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};

use router_config::valid;

/// A peer's address in the forms a request needs, made once per snapshot.
#[derive(Clone, Debug)]
pub struct Target {
    scheme: Scheme,
    authority: Authority,
    base_path: Box<str>,
    /// What `Host` says.
    pub host: HeaderValue,
    /// What `x-proxy-backend` says.
    pub name: HeaderValue,
    /// `Bearer <api_key>` when the peer has a key of its own; marked sensitive.
    pub authorization: Option<HeaderValue>,
}

impl Target {
    /// The target of a valid peer.
    ///
    /// # Panics
    /// Never for a peer that passed the check: its key is a valid authority and its key text a
    /// valid header value.
    pub fn of(peer: &valid::Peer) -> Self {
        let authority: Authority = peer
            .key
            .as_str()
            .parse()
            .expect("a checked peer key is an authority");
        let host =
            HeaderValue::from_str(authority.as_str()).expect("an authority is a header value");
        let authorization = peer.api_key.as_ref().map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .expect("a checked api_key is a header value");
            value.set_sensitive(true);
            value
        });
        Self {
            scheme: if peer.tls {
                Scheme::HTTPS
            } else {
                Scheme::HTTP
            },
            authority,
            base_path: Box::from(&*peer.base_path),
            host,
            name: HeaderValue::from_str(&peer.name).expect("a checked peer name is a header value"),
            authorization,
        }
    }

    /// The absolute URI of a raw path and query. The path is not decoded, normalised or re-encoded.
    ///
    /// # Errors
    /// When the text is not a path and query.
    pub fn uri(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        let path_and_query = if self.base_path.is_empty() {
            path_and_query.parse::<PathAndQuery>()?
        } else {
            format!("{}{path_and_query}", self.base_path).parse()?
        };
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path_and_query)
            .build()
    }
}
