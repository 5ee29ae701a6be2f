//! `llmctl engine`: runs one simulated engine until a signal stops it.

use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::signals::interrupted;
use sim_engine::{Args, Listening};

/// The end of the help of `llmctl engine`.
pub const AFTER_HELP: &str =
    "The model is simulated, the HTTP, the queue and the prefix cache are real: a conversation that
comes back gets its first token sooner, and usage says how much was cached. Replies end by
themselves, and a request that offers tools and asks for one by name gets a call: agents can loop.

Examples:
  llmctl engine --port 8001
  llmctl engine --port 8002 --slots 2 --ttft 200ms --prefill-us 500 --cache-blocks 1024
  llmctl engine --port 8003 --dialect llamacpp --fault 503=0.1 --fault cut-stream=5@x1
  curl -d '{\"faults\": [\"hang\"]}' http://127.0.0.1:8001/sim/faults     another set while it runs
  curl -X DELETE http://127.0.0.1:8001/sim/faults                     no faults";

fn tell(told: &Listening, screen: &mut Screen) {
    if screen.format() == Format::Json {
        // One line, so that a parent program can read a single line.
        screen.line(&serde_json::to_string(told).unwrap_or_default());
    } else {
        screen.line(&format!(
            "engine listening on {} (model {}, {} slots, {} cache blocks)",
            told.listening,
            told.models.join(", "),
            told.slots,
            told.cache_blocks
        ));
    }
    screen.flush();
}

/// Runs the engine.
///
/// # Errors
/// When the address is in use.
pub async fn run(args: Args, screen: &mut Screen) -> Result<Ended, Failure> {
    let ended = sim_engine::run(args, |told| tell(told, screen), interrupted()).await;
    ended
        .map(|()| Ended::Fine)
        .map_err(|error| Failure::failed_to(&error))
}
