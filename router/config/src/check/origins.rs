//! The origins of web pages that may call the public port.

use http::Uri;

use super::reader::Reader;
use super::scalar::{items, usable};
use crate::options::Meta;
use crate::tree::Node;
use crate::valid::{Cors, Origin};

/// Reads a list of origins. An empty list means that CORS is off.
pub(crate) fn origins(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Option<Cors>> {
    let items = items(reader, node, meta)?;
    let mut origins = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let text = usable(item).map(|s| s.text.as_str()).unwrap_or_default();
        match origin(text) {
            Some(origin) => origins.push(origin),
            None => reader.item(index, |reader| {
                reader.unexpected(
                    item,
                    "an origin such as `https://chat.example` or `http://localhost:3000`, or `*`",
                );
            }),
        }
    }
    let is_off = items.is_empty();
    (origins.len() == items.len()).then(|| (!is_off).then(|| Cors::new(origins)))
}

/// `scheme://host` with an optional port, as browsers write it: lower case, no slash at the end.
fn origin(text: &str) -> Option<Origin> {
    if text == "*" {
        return Some(Origin::Any);
    }
    let uri: Uri = text.parse().ok()?;
    let (scheme, host) = (uri.scheme_str()?, uri.host()?);
    let port = uri.port_u16().map(|port| format!(":{port}"));
    let is_canonical = text == format!("{scheme}://{host}{}", port.unwrap_or_default());
    let is_odd = |byte: u8| byte.is_ascii_uppercase() || byte == b'*';
    let is_plain = !host.is_empty() && !text.bytes().any(is_odd);
    (is_canonical && is_plain).then(|| Origin::Is(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in [
            "*",
            "https://chat.example",
            "http://localhost:3000",
            "http://[::1]:8080",
            "chrome-extension://abcdef",
        ] {
            assert!(origin(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "chat.example",
            "https://chat.example/",
            "https://chat.example/path",
            "https://Chat.example",
            "https://user@chat.example",
            "https://*.example",
            "https://",
            "null",
        ] {
            assert!(origin(bad).is_none(), "{bad}");
        }
    }
}
