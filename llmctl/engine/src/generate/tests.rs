use super::*;
use crate::compute::Pace;
use crate::length::Drawn;
use crate::log::{Log, Origin};
use futures_util::FutureExt as _;

const PACE: Pace = Pace {
    ttft: Duration::from_millis(50),
    itl: Duration::from_millis(10),
    prefill: Duration::from_millis(1),
};

fn submit(core: &Arc<Core>, prompt: &[Token], reply: usize) -> Pending {
    let (head, ()) = http::Request::new(()).into_parts();
    let origin = Origin {
        peer: ([127, 0, 0, 1], 1).into(),
        connection: 0,
        on_connection: 0,
    };
    let plan = Plan::sentences(Drawn::Filled(reply), None);
    let job = Job {
        prompt: prompt.to_vec(),
        plan,
        choices: 1,
    };
    Pending::enqueue(
        core,
        job,
        Log::default().open(&head, origin),
        Duration::ZERO,
    )
    .unwrap()
}

async fn run(core: &Arc<Core>, prompt: &[Token], reply: usize) -> Vec<Duration> {
    let from = Instant::now();
    let mut generation = submit(core, prompt, reply).begin().await;
    let mut at = Vec::new();
    while generation.next().await.is_some() {
        at.push(Instant::now() - from);
    }
    at
}

fn millis(all: &[u64]) -> Vec<Duration> {
    all.iter().copied().map(Duration::from_millis).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_cached_shortens_the_time_to_the_first_token() {
    let core = Core::new(PACE, 1, 100);
    let prompt: Vec<Token> = (0..40).collect();
    assert_eq!(run(&core, &prompt, 3).await, millis(&[90, 100, 110]));
    assert_eq!(
        run(&core, &prompt, 3).await,
        millis(&[58, 68, 78]),
        "32 of 40 cached"
    );
    let stats = core.stats();
    assert_eq!(
        (
            stats.prompt_tokens,
            stats.cached_tokens,
            stats.generated_tokens
        ),
        (80, 32, 6)
    );
}

#[tokio::test(start_paused = true)]
async fn the_reply_is_cached_for_the_turn_that_brings_it_back() {
    let core = Core::new(PACE, 1, 100);
    let mut turn: Vec<Token> = (0..20).collect();
    run(&core, &turn, 30).await;
    turn.extend(
        Plan::sentences(Drawn::Filled(30), None)
            .pieces
            .iter()
            .map(|piece| tokens::id(piece)),
    );
    turn.extend(5000..5010);
    assert_eq!(submit(&core, &turn, 1).begin().await.usage().cached, 48);
}

#[tokio::test(start_paused = true)]
async fn without_a_cache_every_turn_costs_the_same() {
    let core = Core::new(PACE, 1, 0);
    let prompt: Vec<Token> = (0..40).collect();
    assert_eq!(run(&core, &prompt, 1).await, run(&core, &prompt, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_second_request_waits_for_the_only_slot() {
    let core = Core::new(PACE, 1, 0);
    let (first, second) = (run(&core, &[1], 2), run(&core, &[2], 1));
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first, second), (millis(&[51, 61]), millis(&[61 + 51])));
}

#[tokio::test(start_paused = true)]
async fn leaving_during_prefill_frees_the_slot_and_caches_nothing() {
    let core = Core::new(PACE, 1, 100);
    let prompt: Vec<Token> = (0..40).collect();
    let mut begin = Box::pin(submit(&core, &prompt, 1).begin());
    assert!((&mut begin).now_or_never().is_none());
    assert_eq!(core.stats().running, 1);
    drop(begin);
    let stats = core.stats();
    assert_eq!(
        (
            stats.running,
            stats.cancelled,
            stats.prompt_tokens,
            stats.cache_blocks
        ),
        (0, 1, 0, 0)
    );
    assert_eq!(core.kv_usage().to_bits(), 0, "no block stays occupied");
}

#[tokio::test(start_paused = true)]
async fn leaving_midway_is_an_abort_and_keeps_what_was_made() {
    let core = Core::new(PACE, 1, 100);
    let mut generation = submit(&core, &(0..8).collect::<Vec<_>>(), 100)
        .begin()
        .await;
    for _ in 0..8 {
        generation.next().await;
    }
    drop(generation);
    let stats = core.stats();
    assert_eq!(
        (
            stats.cancelled,
            stats.completed,
            stats.generated_tokens,
            stats.cache_blocks
        ),
        (1, 0, 8, 1)
    );
}
