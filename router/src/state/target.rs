//! The address of one peer and how to reach it.

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};

use crate::upstream::address::Address;
use router_config::valid;

/// A peer's address in the forms that a request needs, built once per snapshot.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the peer listens.
    pub address: Address,
    base_path: Box<str>,
    /// The value of `Host`.
    pub host: HeaderValue,
    /// The value of `x-proxy-backend`.
    pub name: HeaderValue,
    /// `Bearer <api_key>` if the peer has its own key; marked sensitive.
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
            address: Address {
                scheme: match peer.tls {
                    true => Scheme::HTTPS,
                    false => Scheme::HTTP,
                },
                authority,
            },
            base_path: Box::from(&*peer.base_path),
            host,
            name: HeaderValue::from_str(&peer.name).expect("a checked peer name is a header value"),
            authorization,
        }
    }

    /// Rewrites a redirect to this peer so that the client can follow it: below `prefix`, without
    /// the peer's address and base path. `None` for a redirect to another host, or one relative to
    /// the request's path.
    pub fn relative(&self, location: &HeaderValue, prefix: &str) -> Option<HeaderValue> {
        let text = location.to_str().ok()?;
        let path = match text.split_once("//") {
            Some((scheme, rest)) if is_web(scheme) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let authority = &rest[..end];
                if !self.is_at(authority) {
                    return None;
                }
                &rest[end..]
            }
            _ if text.starts_with('/') => text,
            _ => return None,
        };
        let ends = |rest: &&str| rest.is_empty() || rest.starts_with(['/', '?', '#']);
        let below = path.strip_prefix(&*self.base_path).filter(ends);
        // Two slashes at the beginning would start a host name.
        let below = below.unwrap_or(path).trim_start_matches('/');
        HeaderValue::from_str(&format!("{prefix}/{below}")).ok()
    }

    /// Whether an authority names this peer. The default port of the scheme may be missing.
    fn is_at(&self, authority: &str) -> bool {
        let own = self.address.authority.as_str();
        let default = if self.address.scheme == Scheme::HTTPS {
            ":443"
        } else {
            ":80"
        };
        let bare = |text: &str| {
            text.strip_suffix(default)
                .unwrap_or(text)
                .to_ascii_lowercase()
        };
        bare(authority) == bare(own)
    }

    /// The path and query at this peer: below its base path.
    ///
    /// # Errors
    /// The text is not a path and query.
    pub fn below(&self, path_and_query: &PathAndQuery) -> Result<PathAndQuery, http::Error> {
        if self.base_path.is_empty() {
            return Ok(path_and_query.clone());
        }
        Ok(format!("{}{path_and_query}", self.base_path).parse()?)
    }

    /// The absolute URI of a raw path and query. The path is not decoded, normalised or re-encoded.
    ///
    /// # Errors
    /// The text is not a path and query.
    pub fn uri(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.address.scheme.clone())
            .authority(self.address.authority.clone())
            .path_and_query(self.below(&path_and_query.parse()?)?)
            .build()
    }
}

fn is_web(scheme: &str) -> bool {
    ["", "http:", "https:"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use crate::testing::Tables;

    #[test]
    fn a_redirect_to_the_peer_becomes_one_below_the_route() {
        let route = "peers: [{url: 'http://10.0.0.11/base'}]";
        let table = Tables::new().table("", &[("r", route)]);
        let route = table.get("r").unwrap().route().unwrap();
        let target = &route.peers[0][0].target;
        let relative = |location: &str| {
            let location = location.parse().unwrap();
            let local = target.relative(&location, "/r")?;
            Some(local.to_str().unwrap().to_owned())
        };
        for (location, expected) in [
            ("http://10.0.0.11/base/v1/x?a=1", Some("/r/v1/x?a=1")),
            ("HTTP://10.0.0.11:80/base/v1/x", Some("/r/v1/x")),
            ("http://10.0.0.11:80/v1/x", Some("/r/v1/x")),
            ("https://10.0.0.11/v1/x", Some("/r/v1/x")),
            ("//10.0.0.11/base", Some("/r/")),
            ("/base/v1/x", Some("/r/v1/x")),
            ("/based/v1/x", Some("/r/based/v1/x")),
            (
                "/v1/x?next=http://10.0.0.11/",
                Some("/r/v1/x?next=http://10.0.0.11/"),
            ),
            (
                "http://10.0.0.11//evil.example/x",
                Some("/r/evil.example/x"),
            ),
            ("http://elsewhere.example/v1/x", None),
            ("http://user@10.0.0.11/v1/x", None),
            ("v1/x", None),
            ("?page=2", None),
        ] {
            assert_eq!(relative(location).as_deref(), expected, "{location}");
        }
    }
}
