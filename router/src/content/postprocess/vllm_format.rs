//! `vllm_format`: turns vLLM's answers into the shape that clients of the OpenAI API expect.
//!
//! Members that vLLM adds as placeholders are removed when they are null and stay when they have a
//! value. Members that describe the engine are always removed. An object without `choices` is not a
//! chat or completion answer of vLLM and stays unchanged.

use answers::cursor::{Cursor, Span};

use super::Handler;
use super::shape::{Clash, Edits, Role, Shape};

#[derive(Debug)]
pub(super) struct VllmFormat;

static TOP: Shape = Shape {
    needs: Some("choices"),
    role: |key| match key {
        b"prompt_logprobs" | b"prompt_token_ids" | b"prompt_text" | b"metrics" | b"logprobs"
        | b"token_ids" => Role::RemoveNull,
        b"service_tier"
        | b"system_fingerprint"
        | b"kv_transfer_params"
        | b"ec_transfer_params"
        | b"actual_usage" => Role::Remove,
        b"choices" => Role::Each(&CHOICE),
        b"usage" => Role::Inside(&USAGE),
        _ => Role::Keep,
    },
};

static CHOICE: Shape = Shape {
    needs: None,
    role: |key| match key {
        b"logprobs" | b"token_ids" | b"routed_experts" | b"prompt_token_ids" | b"prompt_text" => {
            Role::RemoveNull
        }
        b"stop_reason" => Role::Remove,
        b"text" => Role::Text,
        b"reasoning" => REASONING,
        b"delta" => Role::Inside(&DELTA),
        b"message" => Role::Inside(&MESSAGE),
        _ => Role::Keep,
    },
};

static DELTA: Shape = Shape {
    needs: None,
    role: |key| match key {
        b"content" | b"reasoning_content" => Role::Text,
        b"reasoning" => REASONING,
        _ => Role::Keep,
    },
};

static MESSAGE: Shape = Shape {
    needs: None,
    role: |key| match key {
        b"refusal" | b"annotations" | b"audio" | b"function_call" => Role::RemoveNull,
        b"reasoning" => REASONING,
        _ => Role::Keep,
    },
};

static USAGE: Shape = Shape {
    needs: None,
    role: |key| match key {
        b"prompt_tokens_details" => Role::Inside(&DETAILS),
        _ => Role::Keep,
    },
};

static DETAILS: Shape = Shape {
    needs: None,
    role: |key| match key {
        b"multimodal_tokens" => Role::RemoveNull,
        b"created_cache_tokens" => Role::Rename("cache_write_tokens", Clash::OldGoes),
        _ => Role::Keep,
    },
};

const REASONING: Role = Role::Rename("reasoning_content", Clash::OldWins);

impl Handler for VllmFormat {
    fn key(&self) -> &'static str {
        "choices"
    }

    fn edit(&self, json: &[u8], cursor: &mut Cursor<'_>, edits: &mut Edits) -> Option<Span> {
        edits.object(json, cursor, &TOP)
    }
}
