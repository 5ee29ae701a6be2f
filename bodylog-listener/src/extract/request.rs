//! Extracts the parameters of a request.

use super::json;

/// The members of a request body that are used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The top-level `stream`, if it is a boolean.
    pub(crate) stream: Option<bool>,
    /// The top-level `model`.
    pub(crate) model: Option<String>,
}

/// Parses a request body. For a truncated body, uses the members before the cut.
pub(crate) fn asked(body: &str) -> Asked {
    let mut asked = Asked::default();
    json::each_member(body, |name, value| match name {
        "stream" => {
            asked.stream = match value {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            };
        }
        "model" => asked.model = json::text(value),
        _ => {}
    });
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_recognised() {
        for (body, stream) in [
            (r#"{"stream":true}"#, Some(true)),
            (r#"{"a":1 , "stream" : false}"#, Some(false)),
            (r#"{"stream_options":{"include_usage":true}}"#, None),
            (
                r#"{"messages":[{"content":"say {\"stream\":true}"}]}"#,
                None,
            ),
            (r#"{"stream":"true"}"#, None),
            (
                r#"{"metadata":{"stream":true},"stream":false}"#,
                Some(false),
            ),
            (
                r#"{"stream":true,"messages":[{"content":"cut of"#,
                Some(true),
            ),
            ("", None),
            ("[]", None),
        ] {
            assert_eq!(asked(body).stream, stream, "{body}");
        }
    }

    #[test]
    fn the_model_is_read_too() {
        assert_eq!(asked(r#"{"model":"m","x":"#).model.as_deref(), Some("m"));
    }
}
