//! `/v1/audio/transcriptions`, `/v1/audio/translations` and `/v1/images/edits`: forms with a file,
//! which costs a prefill by its length.

use axum::Extension;
use axum::extract::{Multipart, State};
use axum::response::Response;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::form::Form;
use crate::app::{App, Context, Wishes};
use crate::failure::Failure;
use crate::generate::{Job, Usage};
use crate::reply::{Api, End, Events};
use crate::text::{Finish, Plan};
use crate::tokens::{self, Token};

/// Bytes of a file that are one token of its prompt.
const TOKEN_BYTES: usize = 4 << 10;

/// A PNG of one transparent pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[derive(Debug)]
struct Transcription {
    model: String,
}

#[derive(Debug)]
struct Image {
    created: u64,
}

pub(crate) async fn transcribe(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    form: Multipart,
) -> Result<Response, Failure> {
    let form = Form::read(form).await?;
    let (_, audio) = form.file("file")?;
    let model = app.model(form.text("model").map(str::to_owned))?;
    let prompt = prompt(audio);
    let plan = app.plan(&Wishes {
        prompt: &prompt,
        ..Wishes::default()
    });
    let job = Job {
        prompt,
        plan,
        choices: 1,
    };
    let streaming = form.text("stream") == Some("true");
    app.reply(context, job, Transcription { model }, streaming)
        .await
}

pub(crate) async fn edit_image(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    form: Multipart,
) -> Result<Response, Failure> {
    let form = Form::read(form).await?;
    let (_, image) = form.file("image").or_else(|_| form.file("image[]"))?;
    app.model(form.text("model").map(str::to_owned))?;
    let mut prompt = prompt(image);
    tokens::extend(&mut prompt, form.text("prompt").unwrap_or_default());
    let plan = Plan {
        pieces: Vec::new(),
        finish: Finish::Stop,
    };
    let job = Job {
        prompt,
        plan,
        choices: 1,
    };
    let created = crate::app::unix(std::time::SystemTime::now());
    app.reply(context, job, Image { created }, false).await
}

fn prompt(file: &[u8]) -> Vec<Token> {
    let mut prompt = Vec::new();
    for chunk in file.chunks(TOKEN_BYTES) {
        tokens::extend(&mut prompt, &format!("{:x}", xxh3_64(chunk)));
    }
    prompt
}

impl Api for Transcription {
    fn whole(&self, end: &End) -> Value {
        json!({"text": end.text, "model": self.model, "usage": usage(end.usage)})
    }

    fn start(&mut self, _: Usage, _: &mut Events) {}

    fn piece(&mut self, text: &str, out: &mut Events) {
        out.data(&json!({"type": "transcript.text.delta", "delta": text}));
    }

    fn end(&mut self, end: &End, out: &mut Events) {
        let done =
            json!({"type": "transcript.text.done", "text": end.text, "usage": usage(end.usage)});
        out.data(&done);
    }
}

impl Api for Image {
    fn whole(&self, end: &End) -> Value {
        json!({"created": self.created, "data": [{"b64_json": PIXEL}], "usage": usage(end.usage)})
    }

    // Images are never streamed.
    fn start(&mut self, _: Usage, _: &mut Events) {}
    fn piece(&mut self, _: &str, _: &mut Events) {}
    fn end(&mut self, _: &End, _: &mut Events) {}
}

fn usage(usage: Usage) -> Value {
    json!({
        "type": "tokens", "input_tokens": usage.prompt, "output_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    })
}
