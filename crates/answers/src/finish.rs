//! The reasons why generation ends, in one vocabulary.

/// Maps an engine's reason to the chat API's word. A reason without such a word stays as it is.
pub fn chat_word(raw: &str) -> &str {
    match raw {
        // `eos` and `word` are llama.cpp's `stop_type`.
        "end_turn" | "stop_sequence" | "completed" | "eos" | "word" => "stop",
        "max_tokens" | "max_output_tokens" | "model_context_window_exceeded" | "limit" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        "failed" => "error",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_ends_in_the_words_of_the_chat_api() {
        for (raw, word) in [
            ("stop", "stop"),
            ("end_turn", "stop"),
            ("completed", "stop"),
            ("eos", "stop"),
            ("max_tokens", "length"),
            ("limit", "length"),
            ("tool_use", "tool_calls"),
            ("refusal", "content_filter"),
            ("failed", "error"),
            ("abort", "abort"),
        ] {
            assert_eq!(chat_word(raw), word);
        }
    }
}
