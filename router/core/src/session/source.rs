//! One entry of `session_sources`: its grammar, its label, and the default list.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::visible;

/// The named lists of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The sources that known clients send.
    Default,
    /// The sources that llm-openresty reads.
    Openresty,
    /// The sources that vllm-router reads, except ids of single requests, which pin nothing.
    VllmRouter,
    /// The sources that LiteLLM sends and reads.
    Litellm,
}

impl Preset {
    /// Every preset by its name.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("default", Self::Default),
        ("openresty", Self::Openresty),
        ("vllm-router", Self::VllmRouter),
        ("litellm", Self::Litellm),
    ];

    /// Headers and body paths, in order. `metadata.user_id.session_id` stands before
    /// `metadata.user_id`, so that JSON text there is searched before it counts as a plain string.
    fn lists(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Default => (
                &[
                    "x-litellm-session-id",
                    "x-claude-code-session-id",
                    "x-session-id",
                    "session-id",
                    "session_id",
                    "x-session-affinity",
                    "x-opencode-session",
                    "x-conversation-id",
                ],
                &[
                    "metadata.session_id",
                    "litellm_metadata.session_id",
                    "metadata.user_id.session_id",
                    "metadata.user_id",
                    "prompt_cache_key",
                    "conversation.id",
                    "conversation",
                    "session_params.session_id",
                    "session_id",
                    "user_id",
                    "safety_identifier",
                    "user",
                ],
            ),
            Self::Openresty => (
                &[
                    "x-litellm-session-id",
                    "x-claude-code-session-id",
                    "x-session-id",
                ],
                &[
                    "litellm_metadata.session_id",
                    "litellm_metadata.user_id.session_id",
                    "litellm_metadata.user_id",
                    "metadata.session_id",
                    "metadata.user_id.session_id",
                    "metadata.user_id",
                ],
            ),
            Self::VllmRouter => (
                &["x-session-id", "x-user-id", "x-tenant-id"],
                &["session_params.session_id", "user", "session_id", "user_id"],
            ),
            Self::Litellm => (
                &["x-litellm-session-id"],
                &["litellm_metadata.session_id", "metadata.session_id", "user"],
            ),
        }
    }

    /// The sources of the preset, in order.
    pub fn sources(self) -> Vec<SessionSource> {
        let (headers, paths) = self.lists();
        let headers = headers.iter().copied().map(SessionSource::header);
        headers
            .chain(paths.iter().copied().map(SessionSource::body))
            .collect()
    }
}

/// Headers that may be named without `header:`. A plain `session_id` means the body's field.
const KNOWN_HEADERS: [&str; 7] = [
    "x-litellm-session-id",
    "x-claude-code-session-id",
    "x-session-id",
    "session-id",
    "x-session-affinity",
    "x-opencode-session",
    "x-conversation-id",
];

/// One place to look for a session id. `label` is the text of `X-Routed-Source`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionSource {
    /// Where to look.
    pub place: Place,
    /// `header.<name>` or `body.<path>`, visible ASCII.
    pub label: Arc<str>,
}

/// A place that may have a session id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A request header, lower case.
    Header(Arc<str>),
    /// A dotted path into the JSON body. Strings and integers count. If the path goes through a
    /// string with JSON text, that text is parsed (`metadata.user_id.session_id`).
    Body(Arc<[Box<str>]>),
}

/// The sources of a route without `session_sources`, in order.
pub fn default_sources() -> Vec<SessionSource> {
    Preset::Default.sources()
}

impl SessionSource {
    fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self {
            label: format!("header.{name}").into(),
            place: Place::Header(name.into()),
        }
    }

    fn body(path: &str) -> Self {
        let label = format!("body.{path}");
        Self {
            label: visible(label.as_bytes(), usize::MAX).into(),
            place: Place::Body(path.split('.').map(Box::from).collect()),
        }
    }
}

/// Accepts `header:<name>`, `body:<dotted.path>`, a known session header, or a plain dotted path.
impl FromStr for SessionSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        if let Some(name) = text.strip_prefix("header:") {
            return if is_header_name(name) {
                Ok(Self::header(name))
            } else {
                Err(SourceError::HeaderName(name.to_owned()))
            };
        }
        if let Some(path) = text.strip_prefix("body:") {
            return body_path(path);
        }
        if KNOWN_HEADERS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(text))
        {
            return Ok(Self::header(text));
        }
        if is_ambiguous(text) {
            return Err(SourceError::Ambiguous(text.to_owned()));
        }
        body_path(text)
    }
}

fn body_path(path: &str) -> Result<SessionSource, SourceError> {
    let is_step = |step: &str| !step.is_empty() && step.trim() == step;
    if path.split('.').all(is_step) {
        Ok(SessionSource::body(path))
    } else {
        Err(SourceError::BodyPath(path.to_owned()))
    }
}

/// A `token` of RFC 9110, section 5.6.2.
fn is_header_name(name: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_tchar)
}

/// Names that look like a header, like a label of `X-Routed-Source`, or like a mistyped prefix. As
/// a body path they would never match, without any error.
fn is_ambiguous(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.contains(':')
        || ["x-", "header.", "body."]
            .iter()
            .any(|prefix| lower.starts_with(prefix))
}

/// Why an entry of `session_sources` is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The text after `header:` is not a header name.
    HeaderName(String),
    /// A dotted path with an empty step, or a step that begins or ends with white space.
    BodyPath(String),
    /// A plain name that could be a header as well as a body field.
    Ambiguous(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderName(name) => {
                write!(
                    f,
                    "{name:?} is not a header name; write `header:<name>`, such as `header:x-session-id`"
                )
            }
            Self::BodyPath(path) => {
                write!(
                    f,
                    "{path:?} is not a body path; write names joined by dots, such as `metadata.session_id`"
                )
            }
            Self::Ambiguous(name) => {
                write!(
                    f,
                    "{name:?} may mean a header or a body field; write `header:<name>` or `body:<dotted.path>`"
                )
            }
        }
    }
}

impl std::error::Error for SourceError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Place, String), SourceError> {
        text.parse::<SessionSource>()
            .map(|source| (source.place, source.label.to_string()))
    }

    fn path(steps: &[&str]) -> Place {
        Place::Body(steps.iter().map(|step| Box::from(*step)).collect())
    }

    #[test]
    fn headers_are_lower_cased() {
        let expected = (
            Place::Header("x-chat-id".into()),
            "header.x-chat-id".to_owned(),
        );
        assert_eq!(parse("header:X-Chat-Id"), Ok(expected));
        let known = (
            Place::Header("x-session-id".into()),
            "header.x-session-id".to_owned(),
        );
        assert_eq!(parse("X-Session-ID"), Ok(known));
    }

    #[test]
    fn body_paths_are_taken_with_or_without_prefix() {
        for text in [
            "body:session_params.session_id",
            "session_params.session_id",
        ] {
            let expected = (
                path(&["session_params", "session_id"]),
                "body.session_params.session_id".to_owned(),
            );
            assert_eq!(parse(text), Ok(expected));
        }
        for text in ["session_id", "user_id", "user"] {
            assert_eq!(parse(text), Ok((path(&[text]), format!("body.{text}"))));
        }
        assert_eq!(parse("body:x-id").unwrap().0, path(&["x-id"]));
    }

    #[test]
    fn a_label_is_always_fit_for_a_header() {
        assert_eq!(parse("body:会").unwrap().1, "body.%E4%BC%9A");
    }

    #[test]
    fn what_could_never_match_is_an_error() {
        for text in ["header:", "header:x y", "header:a:b"] {
            assert!(
                matches!(parse(text), Err(SourceError::HeaderName(_))),
                "{text}"
            );
        }
        for text in ["", " ", "body:", "a..b", ".a", "a.", "a. b"] {
            assert!(
                matches!(parse(text), Err(SourceError::BodyPath(_))),
                "{text}"
            );
        }
        for text in ["x-request-id", "header.x-id", "body.user", "headers:x-id"] {
            assert!(
                matches!(parse(text), Err(SourceError::Ambiguous(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn the_default_list_is_the_documented_order() {
        let labels: Vec<_> = default_sources()
            .iter()
            .map(|source| source.label.to_string())
            .collect();
        assert_eq!(
            labels,
            [
                "header.x-litellm-session-id",
                "header.x-claude-code-session-id",
                "header.x-session-id",
                "header.session-id",
                "header.session_id",
                "header.x-session-affinity",
                "header.x-opencode-session",
                "header.x-conversation-id",
                "body.metadata.session_id",
                "body.litellm_metadata.session_id",
                "body.metadata.user_id.session_id",
                "body.metadata.user_id",
                "body.prompt_cache_key",
                "body.conversation.id",
                "body.conversation",
                "body.session_params.session_id",
                "body.session_id",
                "body.user_id",
                "body.safety_identifier",
                "body.user",
            ]
        );
    }
}
