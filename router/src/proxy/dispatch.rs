//! Parses the raw path of a request. Never decodes, normalises or re-encodes it.

use crate::admin::status::Together;

/// What a path on the public port means, independent of the configured routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicPath<'p> {
    /// `/health`.
    Health,
    /// `/ready`.
    Ready,
    /// `/proxy/metrics`.
    ProxyMetrics,
    /// `/finish_session`, or `/<route>/finish_session`.
    FinishSession {
        /// `None`: every route that the key opens.
        route: Option<&'p str>,
    },
    /// `/v1/…` without a route prefix.
    Unprefixed {
        /// The path from `/v1/` on.
        path: &'p str,
    },
    /// `/<route>/…`: the rest keeps its leading slash. The route decides whether it serves the
    /// rest.
    Route {
        /// First segment of the path.
        route: &'p str,
        /// `/v1/…` or an engine-native path.
        path: &'p str,
    },
    /// `/<route>/_<name>`.
    Status {
        /// First segment of the path.
        route: &'p str,
        /// The name, with its leading underscore.
        name: &'p str,
    },
    /// `/_decisions` or `/_sessions`, for several routes together.
    Together(Together),
    /// No endpoint has this path.
    Nowhere,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadPath {
    /// A `.` or `..` segment anywhere, encoded or not.
    DotSegment,
    /// An encoded slash before `/v1`.
    EncodedSlash,
}

impl BadPath {
    /// The text for the client.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::DotSegment => "the path has a dot segment",
            Self::EncodedSlash => "the path has an encoded slash before /v1",
        }
    }
}

/// Parses a raw path.
///
/// # Errors
/// [`BadPath`]: the router and the engine might read such a path differently.
pub(super) fn dispatch(path: &str) -> Result<PublicPath<'_>, BadPath> {
    if has_dot_segment(path) {
        return Err(BadPath::DotSegment);
    }
    let path = &path[leading_slashes(path)..];
    match path {
        "/health" => return Ok(PublicPath::Health),
        "/ready" => return Ok(PublicPath::Ready),
        "/proxy/metrics" => return Ok(PublicPath::ProxyMetrics),
        "/finish_session" => return Ok(PublicPath::FinishSession { route: None }),
        _ => {}
    }
    if path.starts_with("/v1/") {
        return Ok(PublicPath::Unprefixed { path });
    }
    // Not `find`, which prepares a search that costs more than a short path.
    let v1 = path.as_bytes().windows(4).position(|four| four == b"/v1/");
    let before_v1 = v1.map_or(path, |at| &path[..at]);
    if find_encoded(before_v1, b'f').is_some() || has_backslash(before_v1) {
        return Err(BadPath::EncodedSlash);
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Ok(PublicPath::Nowhere);
    };
    let Some(slash) = rest.find('/') else {
        return Ok(Together::of(rest).map_or(PublicPath::Nowhere, PublicPath::Together));
    };
    let (route, path) = rest.split_at(slash);
    let path = &path[leading_slashes(path)..];
    if path == "/finish_session" {
        return Ok(PublicPath::FinishSession { route: Some(route) });
    }
    match path.strip_prefix("/_") {
        Some(_) => Ok(PublicPath::Status {
            route,
            name: &path[1..],
        }),
        None => Ok(PublicPath::Route { route, path }),
    }
}

/// Number of slashes before the one that begins a path. Like nginx, the router merges doubled
/// slashes at the beginning of a path and around the route prefix. The engine interprets any later
/// ones.
pub(super) fn leading_slashes(path: &str) -> usize {
    let slashes = path.bytes().take_while(|byte| *byte == b'/').count();
    slashes.saturating_sub(1)
}

/// Whether monitoring polls this path. Such requests would fill the access log.
pub(super) fn is_polled(path: &str) -> bool {
    matches!(path, "/health" | "/ready" | "/proxy/metrics")
}

/// Finds the API of a path, even of an invalid one. Returns the route prefix (`None` without one)
/// and where `/v1/…` begins.
pub(super) fn api_of(path: &str) -> Option<(Option<&str>, usize)> {
    let begin = leading_slashes(path);
    if path[begin..].starts_with("/v1/") {
        return Some((None, begin));
    }
    let (route, _) = path[begin..].strip_prefix('/')?.split_once('/')?;
    let at = begin + 1 + route.len();
    let at = at + leading_slashes(&path[at..]);
    path[at..].starts_with("/v1/").then_some((Some(route), at))
}

/// Whether a route with these `extra` prefixes forwards `path`: always for `/v1/…`. A prefix must
/// match whole segments (`/tokenize` takes `/tokenize` and `/tokenize/x`, not `/tokenizer`).
pub(super) fn is_forwarded(path: &str, extra: &[Box<str>]) -> bool {
    path.starts_with("/v1/")
        || extra.iter().any(|prefix| {
            path.strip_prefix(&**prefix).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/')
            })
        })
}

fn has_dot_segment(path: &str) -> bool {
    // Fast path: most paths have neither a dot nor an escape.
    if memchr::memchr2(b'.', b'%', path.as_bytes()).is_none() {
        return false;
    }
    let mut segment = Vec::new();
    let mut rest = path;
    loop {
        let slash = rest.find('/');
        let encoded = find_encoded(rest, b'f');
        let (end, width) = match (slash, encoded) {
            (Some(s), Some(e)) if e < s => (e, 3),
            (None, Some(e)) => (e, 3),
            (Some(s), _) => (s, 1),
            (None, None) => (rest.len(), 0),
        };
        segment.clear();
        decode_dots(&rest[..end], &mut segment);
        if segment == b"." || segment == b".." {
            return true;
        }
        if width == 0 {
            return false;
        }
        rest = &rest[end + width..];
    }
}

/// Some servers read a backslash as a slash.
fn has_backslash(text: &str) -> bool {
    text.contains('\\')
        || text
            .as_bytes()
            .windows(3)
            .any(|w| w.eq_ignore_ascii_case(b"%5c"))
}

/// The position of `%2<digit>`, with the digit in either case.
fn find_encoded(text: &str, digit: u8) -> Option<usize> {
    text.as_bytes()
        .windows(3)
        .position(|w| w[0] == b'%' && w[1] == b'2' && w[2].eq_ignore_ascii_case(&digit))
}

fn decode_dots(segment: &str, into: &mut Vec<u8>) {
    let mut rest = segment;
    while let Some(at) = find_encoded(rest, b'e') {
        into.extend_from_slice(&rest.as_bytes()[..at]);
        into.push(b'.');
        rest = &rest[at + 3..];
    }
    into.extend_from_slice(rest.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_where_its_first_segment_says() {
        let models = Ok(PublicPath::Unprefixed { path: "/v1/models" });
        assert_eq!(dispatch("/v1/models"), models);
        let chat = PublicPath::Route {
            route: "chat",
            path: "/v1/chat/completions",
        };
        assert_eq!(dispatch("/chat/v1/chat/completions"), Ok(chat));
        assert_eq!(
            dispatch("/chat/tokenize"),
            Ok(PublicPath::Route {
                route: "chat",
                path: "/tokenize"
            })
        );
        let status = PublicPath::Status {
            route: "chat",
            name: "_route_state",
        };
        assert_eq!(dispatch("/chat/_route_state"), Ok(status));
        assert_eq!(dispatch("/health"), Ok(PublicPath::Health));
        assert_eq!(dispatch("/proxy/metrics"), Ok(PublicPath::ProxyMetrics));
        let sessions = PublicPath::Together(Together::Sessions);
        assert_eq!(dispatch("/_sessions"), Ok(sessions));
        for nowhere in ["/", "/chat", "*", "/v1", "/_reload", "//"] {
            assert_eq!(dispatch(nowhere), Ok(PublicPath::Nowhere), "{nowhere}");
        }
    }

    #[test]
    fn doubled_slashes_are_merged_at_the_beginning_and_around_the_route() {
        let models = Ok(PublicPath::Unprefixed { path: "/v1/models" });
        assert_eq!(dispatch("//v1/models"), models);
        let path = "/v1//chat/completions";
        let chat = Ok(PublicPath::Route {
            route: "chat",
            path,
        });
        assert_eq!(dispatch("///chat//v1//chat/completions"), chat);
        assert_eq!(api_of("//v1/messages"), Some((None, 1)));
        assert_eq!(api_of("//chat//v1/x"), Some((Some("chat"), 7)));
    }

    #[test]
    fn dot_segments_are_refused_however_they_are_written() {
        let paths = [
            "/chat/v1/../metrics",
            "/chat/../v1/x",
            "/./v1/x",
            "/chat/v1/..",
            "/chat/v1/%2e%2e/metrics",
            "/chat/v1/.%2E/x",
            "/chat/v1/x%2f..%2fmetrics",
            "/chat/v1/..%2Fmetrics",
            "/%2e/v1/x",
        ];
        for path in paths {
            assert_eq!(dispatch(path), Err(BadPath::DotSegment), "{path}");
        }
        for path in [
            "/chat/v1/a..b",
            "/chat/v1/.hidden",
            "/chat/v1/...",
            "/chat/v1/models/org%2Fmodel.v1",
        ] {
            assert!(
                matches!(dispatch(path), Ok(PublicPath::Route { .. })),
                "{path}"
            );
        }
    }

    #[test]
    fn an_encoded_slash_before_v1_is_refused() {
        assert_eq!(dispatch("/chat%2Fv1/v1/x"), Err(BadPath::EncodedSlash));
        assert_eq!(dispatch("/chat%2fx"), Err(BadPath::EncodedSlash));
        assert_eq!(dispatch("/chat%5Cv1/v1/x"), Err(BadPath::EncodedSlash));
    }

    #[test]
    fn an_api_path_is_known_even_when_it_is_refused() {
        assert_eq!(api_of("/v1/messages"), Some((None, 0)));
        assert_eq!(api_of("/chat/v1/../x"), Some((Some("chat"), 5)));
        for path in ["/chat/tokenize", "/v1", "/chat", "/", "*", "/a/b/v1/x"] {
            assert_eq!(api_of(path), None, "{path}");
        }
    }

    #[test]
    fn an_extra_prefix_is_whole_segments() {
        let extra: [Box<str>; 2] = ["/tokenize".into(), "/native/".into()];
        for path in ["/v1/x", "/tokenize", "/tokenize/x", "/native/x"] {
            assert!(is_forwarded(path, &extra), "{path}");
        }
        for path in ["/tokenizer", "/metrics", "/v1", "/"] {
            assert!(!is_forwarded(path, &extra), "{path}");
        }
    }
}
