//! `POST /v1/embeddings`: a unit vector derived from the input's hash. The request occupies a slot
//! and costs a prefill like any prompt, and generates nothing.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::completions::inputs;
use crate::app::{self, App, Context};
use crate::failure::Failure;
use crate::generate::{Job, Usage};
use crate::reply::{Api, End, Events};
use crate::text::{Finish, Plan};
use crate::tokens::Token;

/// Dimensions of a vector when the request sets none.
const DIMENSIONS: u64 = 64;

/// Maximum dimensions of a vector.
const DIMENSIONS_MAX: u64 = 8192;

/// Maximum number of inputs of one request, as at OpenAI.
const INPUTS_MAX: usize = 2048;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    input: Value,
    encoding_format: Option<Encoding>,
    dimensions: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    /// Little-endian 32-bit floats in base64; the official SDKs request this form.
    Base64,
}

#[derive(Debug)]
struct Embeddings {
    id: String,
    model: String,
    vectors: Vec<Value>,
}

pub(crate) async fn embeddings(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    body: Bytes,
) -> Result<Response, Failure> {
    let request: Request = app::parse(&body)?;
    let inputs = inputs("input", &request.input)?;
    if inputs.len() > INPUTS_MAX {
        return Err(Failure::invalid(
            "input",
            format!("input must have at most {INPUTS_MAX} items."),
        ));
    }
    let dimensions = request.dimensions.unwrap_or(DIMENSIONS);
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        let message = format!("dimensions must be from 1 to {DIMENSIONS_MAX}, got {dimensions}.");
        return Err(Failure::invalid("dimensions", message));
    }
    let encoding = request.encoding_format.unwrap_or_default();
    let api = Embeddings {
        id: app.id("embd-"),
        model: app.model(request.model)?,
        vectors: inputs
            .iter()
            .map(|input| encode(&vector(input, dimensions), encoding))
            .collect(),
    };
    let plan = Plan {
        pieces: Vec::new(),
        finish: Finish::Stop,
    };
    app.reply(
        context,
        Job {
            prompt: inputs.concat(),
            plan,
            choices: 1,
        },
        api,
        false,
    )
    .await
}

impl Api for Embeddings {
    fn whole(&self, end: &End) -> Value {
        let item =
            |(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector});
        json!({
            "id": self.id, "object": "list", "model": self.model,
            "data": self.vectors.iter().enumerate().map(item).collect::<Value>(),
            "usage": {"prompt_tokens": end.usage.prompt, "total_tokens": end.usage.prompt},
        })
    }

    // Embeddings are never streamed.
    fn start(&mut self, _: Usage, _: &mut Events) {}
    fn piece(&mut self, _: &str, _: &mut Events) {}
    fn end(&mut self, _: &End, _: &mut Events) {}
}

/// A vector of length 1, the same for the same tokens.
fn vector(tokens: &[Token], dimensions: u64) -> Vec<f32> {
    let bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect();
    let raw: Vec<f32> = (0..dimensions)
        .map(|seed| {
            let [a, b, ..] = xxh3_64_with_seed(&bytes, seed).to_le_bytes();
            f32::from(i16::from_le_bytes([a, b]))
        })
        .collect();
    // A zero vector has no direction. With one dimension, the hash produces one in 2^16 cases.
    let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(1.0);
    raw.into_iter().map(|x| x / norm).collect()
}

fn encode(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            json!(base64(&bytes))
        }
    }
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() {
                char::from(ALPHABET[index as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_the_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn a_vector_has_length_one_and_depends_on_the_input() {
        let vector_of = |tokens: &[Token]| vector(tokens, 64);
        let norm: f32 = vector_of(&[1, 2]).iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-4, "{norm}");
        assert_eq!(vector_of(&[1, 2]), vector_of(&[1, 2]));
        assert_ne!(vector_of(&[1, 2]), vector_of(&[2, 1]));
    }
}
