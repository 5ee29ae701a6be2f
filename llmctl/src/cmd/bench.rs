//! `llmctl bench`: load with streams against any API of OpenAI's or Anthropic's shape, and what its
//! clients felt.
//!
//! A closed load keeps a number of conversations going; an open load begins them at a rate, whether
//! earlier ones ended or not, and counts the time that a request stood ready before it was sent.
//! Both send turn by turn, each prompt holding the turns before it, as chats and agents do.

mod arrivals;
mod conversation;
mod dist;
mod records;
mod report;
mod run;
mod send;
mod stream;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::Url;

use self::arrivals::Arrivals;
use self::conversation::Shape;
use self::dist::Distribution;
use self::report::{Comparison, Report};
use self::stream::Api;
use super::since::Since;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// What `llmctl bench` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "A length or a pause is a number or a distribution: 512, uniform:100,900,
normal:512,128, lognormal:400,0.8 (median, sigma) or exponential:2. A token is
about one short word; the report has what the engine counted. After a failure a
conversation ends, and a closed load waits for Retry-After, at most a second.
Ctrl-C ends the run early and prints what was measured.

Examples:
  llmctl bench http://127.0.0.1:8080/chat
  llmctl bench http://127.0.0.1:8080/chat --concurrency 64 --turns 8 --duration 5m
  llmctl bench http://10.0.0.5:8000 --rate 4 --prompt-tokens lognormal:2000,1 --report new.json
  llmctl bench http://10.0.0.5:8080 --from-records /var/lib/bodylog --since 1h --speed 2
  llmctl bench --compare old.json new.json"
)]
pub struct BenchArgs {
    /// The API's base, with the route's name for a router: /v1/... is added to it
    #[arg(required_unless_present = "compare", conflicts_with = "compare")]
    pub url: Option<Url>,
    /// Shape of the API
    #[arg(long, value_enum, default_value_t)]
    pub api: Api,
    /// The model to ask for [default: the first one that the API lists]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// File with an API key, if the API wants one
    #[arg(
        long,
        value_name = "FILE",
        env = "LLMCTL_API_KEY_FILE",
        hide_env_values = true
    )]
    pub api_key_file: Option<PathBuf>,
    /// Header that carries the conversation's id; none: no such header
    #[arg(long, value_name = "NAME|none", default_value = "x-session-id")]
    pub session_header: String,
    /// Conversations at once (closed load)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: u32,
    /// Conversations that begin per second, ended or not (open load)
    #[arg(long, value_name = "RATE", conflicts_with = "concurrency", value_parser = rate)]
    pub rate: Option<f64>,
    /// How an open load begins: poisson, even, or burst:N at once
    #[arg(long, value_name = "HOW", default_value = "poisson", requires = "rate")]
    pub arrivals: Arrivals,
    /// How long requests are sent
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub duration: Duration,
    /// The most requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Requests that begin this early are sent and not counted
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub warmup: Duration,
    /// The longest that one answer may take
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
    /// Requests per conversation
    #[arg(long, value_name = "LENGTH", default_value = "4")]
    pub turns: Distribution,
    /// Seconds between an answer and the next turn
    #[arg(long, value_name = "PAUSE", default_value = "0")]
    pub think: Distribution,
    /// Tokens of the system prompt, which all conversations share
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub shared_tokens: u32,
    /// Tokens of the first message
    #[arg(long, value_name = "LENGTH", default_value = "lognormal:300,0.8")]
    pub prompt_tokens: Distribution,
    /// Tokens of each further message
    #[arg(long, value_name = "LENGTH", default_value = "lognormal:100,0.8")]
    pub turn_tokens: Distribution,
    /// max_tokens of each request
    #[arg(long, value_name = "LENGTH", default_value = "lognormal:64,0.5")]
    pub output_tokens: Distribution,
    /// Tell the engine to go on to max_tokens (vLLM, SGLang)
    #[arg(long)]
    pub ignore_eos: bool,
    /// Seed of lengths and texts: the same seed sends the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Send what a bodylog listener recorded, at the times and with the lengths recorded; stored
    /// bodies are sent as they are
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rate", "concurrency", "turns", "think"])]
    pub from_records: Option<PathBuf>,
    /// Records that arrived at this time or later: 90s, 10m, 2h, 3d ago, or 2026-01-02T10:00:00Z
    #[arg(long, value_name = "WHEN", requires = "from_records")]
    pub since: Option<Since>,
    /// Records that arrived before this time
    #[arg(long, value_name = "WHEN", requires = "from_records")]
    pub until: Option<Since>,
    /// Records of this route only
    #[arg(long, value_name = "NAME", requires = "from_records")]
    pub route: Option<String>,
    /// How much faster than recorded
    #[arg(long, value_name = "FACTOR", default_value = "1", requires = "from_records", value_parser = rate)]
    pub speed: f64,
    /// Also write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Compare two reports instead of sending anything
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2)]
    pub compare: Option<Vec<PathBuf>>,
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate| (0.001..=100_000.0).contains(rate))
        .ok_or_else(|| format!("expected a number from 0.001 to 100000, found `{text}`"))
}

fn duration(text: &str) -> Result<Duration, String> {
    sim_engine::parse_duration(text)
}

impl BenchArgs {
    fn shape(&self) -> Shape {
        Shape {
            turns: self.turns,
            shared_tokens: self.shared_tokens as usize,
            prompt_tokens: self.prompt_tokens,
            turn_tokens: self.turn_tokens,
            output_tokens: self.output_tokens,
            ignore_eos: self.ignore_eos,
        }
    }
}

/// Runs the load, or compares two reports, and prints the result.
///
/// # Errors
/// When the API cannot be reached at all, the records or reports cannot be read, or the report
/// cannot be written.
pub async fn run(args: &BenchArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    if let Some([before, after]) = args.compare.as_deref() {
        let (before, after) = (Report::read(before)?, Report::read(after)?);
        Comparison::of(&before, &after).show(screen)?;
        return Ok(Ended::Fine);
    }
    let report = run::load(args, screen).await?;
    if let Some(path) = &args.report {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::Wrong(format!("cannot write the report as JSON: {error}")))?;
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::file("write report", path, &error))?;
    }
    report.show(screen)?;
    if screen.format() == Format::Human && report.requests.ok == 0 {
        screen.warn("no request was answered");
    }
    Ok(match report.requests.ok {
        0 => Ended::Wrong,
        _ => Ended::Fine,
    })
}
