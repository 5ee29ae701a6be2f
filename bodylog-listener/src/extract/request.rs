//! What a request asks for.

use super::json;

/// What is of interest in a request body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its top-level `stream`, if that is true or false.
    pub(crate) stream: Option<bool>,
    /// Its top-level `model`.
    pub(crate) model: Option<String>,
}

/// Reads a request body, as far as it goes: of one that was cut, what comes before the cut.
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
