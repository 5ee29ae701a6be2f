//! The flags of `llmctl engine`, and their conversion to [`Options`].

use std::net::IpAddr;
use std::time::Duration;

use crate::compute::Pace;
use crate::dialect::Dialect;
use crate::duration;
use crate::faults::Fault;
use crate::length::Length;

/// The default model.
const MODEL: &str = "sim";

/// Tokens of a reply when the request of a test sets no limit.
const REPLY_TOKENS: usize = 16;

/// Median length of replies that end naturally, in tokens.
pub const MEDIAN_TOKENS: usize = 145;

/// 4096 blocks of 16 tokens: the KV cache of a modest GPU.
const CACHE_BLOCKS: usize = 4096;

/// A simulated inference engine with a real prefix cache.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Requests that run at once; more wait in a queue
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    pub slots: usize,
    /// Time to the first token when the whole prompt is cached
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = duration::parse)]
    pub ttft: Duration,
    /// Time between two tokens
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = duration::parse)]
    pub itl: Duration,
    /// Microseconds added to the first token for each prompt token that is not cached
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200)]
    pub prefill_us: u64,
    /// Blocks of 16 tokens in the prefix cache; 0 turns it off
    #[arg(long, value_name = "N", default_value_t = CACHE_BLOCKS)]
    pub cache_blocks: usize,
    /// Engine to imitate in metrics, error bodies and headers
    #[arg(long, value_enum, default_value_t)]
    pub dialect: Dialect,
    /// Model to serve; repeat for more
    #[arg(long = "model", value_name = "NAME", default_value = MODEL)]
    pub models: Vec<String>,
    /// Answer 404 to a model that is not served, instead of playing along
    #[arg(long)]
    pub strict_model: bool,
    /// Median length of replies; each ends by itself after a length drawn from seed and prompt
    #[arg(long, value_name = "TOKENS", default_value_t = MEDIAN_TOKENS, value_parser = at_least_one)]
    pub reply_tokens: usize,
    /// Let every reply go on until the request's max_tokens, as vLLM does with ignore_eos
    #[arg(long)]
    pub ignore_eos: bool,
    /// Key that requests under /v1/ must carry
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Fault to inject; repeat for more
    ///
    /// A kind, its value, then any conditions, such as 429=0.1 or hang@/v1/messages@x2.
    /// Kinds: 400 to 599[=P], refuse[=DURATION], reset, cut-before-headers, slow-header=DURATION,
    /// slow-ttft=DURATION, hang[=CHUNKS], stall=CHUNKS:DURATION, cut-stream=CHUNKS,
    /// end-stream=CHUNKS, big-chunk=BYTES, close-idle=DURATION.
    /// Conditions: @P (probability), @xN (the first N), @/path (instead of every POST under /v1/),
    /// @reused (not the first request of a connection).
    #[arg(long = "fault", value_name = "FAULT")]
    pub faults: Vec<Fault>,
    /// Seed of the faults' chance and of the lengths of replies
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// The behaviour of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Slots; 0 counts as 1.
    pub slots: usize,
    /// The speed of the engine.
    pub pace: Pace,
    /// Blocks in the prefix cache; 0 turns it off.
    pub cache_blocks: usize,
    /// The imitated engine.
    pub dialect: Dialect,
    /// The served models, the default one first.
    pub models: Vec<String>,
    /// Whether an unknown model is answered with 404.
    pub strict_model: bool,
    /// The length of replies.
    pub length: Length,
    /// Key that requests under `/v1/` must carry.
    pub api_key: Option<String>,
    /// Faults from the start.
    pub faults: Vec<Fault>,
    /// Seed for the probability of faults, the lengths of replies, and IDs.
    pub seed: u64,
}

impl Default for Options {
    /// Four slots, no delays, no faults, replies as long as the request allows.
    fn default() -> Self {
        Self {
            slots: 4,
            pace: Pace::default(),
            cache_blocks: CACHE_BLOCKS,
            dialect: Dialect::default(),
            models: vec![MODEL.to_owned()],
            strict_model: false,
            length: Length::Filled(REPLY_TOKENS),
            api_key: None,
            faults: Vec::new(),
            seed: 0,
        }
    }
}

impl From<Args> for Options {
    fn from(args: Args) -> Self {
        Self {
            slots: args.slots,
            pace: Pace {
                ttft: args.ttft,
                itl: args.itl,
                prefill: Duration::from_micros(args.prefill_us),
            },
            cache_blocks: args.cache_blocks,
            dialect: args.dialect,
            models: args.models,
            strict_model: args.strict_model,
            length: if args.ignore_eos {
                Length::Filled(args.reply_tokens)
            } else {
                Length::Natural(args.reply_tokens)
            },
            api_key: args.api_key,
            faults: args.faults,
            seed: args.seed,
        }
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let found = text.parse::<usize>().ok().filter(|n| *n >= 1);
    found.ok_or_else(|| format!("found `{text}`; a whole number from 1 up is needed"))
}
