//! Listener and exporter are killed while requests run, and a listener stays away.

use super::*;

/// Rounds of each of the four runs. That makes a hundred kills, in four runs so that they fit
/// beside other tests.
const ROUNDS: u32 = 25;

/// A number from the environment, to make a run longer or to repeat it.
fn asked_for(name: &str) -> Option<u32> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number")),
    )
}

/// Pseudo-random numbers that repeat with the seed.
struct Draws {
    seed: u32,
    drawn: u32,
}

impl Draws {
    fn new() -> Self {
        let seed = asked_for("LLM_ROUTER_TEST_SEED").unwrap_or_else(std::process::id);
        eprintln!("the same kills again: LLM_ROUTER_TEST_SEED={seed}");
        Self { seed, drawn: 0 }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.drawn += 1;
        let text = format!("{}-{}", self.seed, self.drawn);
        crc32fast::hash(text.as_bytes()) % bound
    }
}

/// Kills the listener at random times, and in one of four rounds the exporter too, while requests
/// run. Afterwards every record is there once and counted once.
async fn killed_under_load(rounds: u32) {
    let mut draws = Draws::new();
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = listener(&store).await;
    let mut exporter = exporter(&store).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let load = Load::begin(&router, 2);
    for round in 0..rounds {
        let before = acked(&router).await;
        until_answer("records to be stored again", async || {
            (acked(&router).await > before).then_some(())
        })
        .await;
        let moment = Duration::from_micros(draws.below(150_000).into());
        tokio::time::sleep(moment).await;
        let promised = acked(&router).await;
        listener.kill().await;
        let [records, rows] = listener.lines();
        assert!(
            records >= promised && rows >= promised,
            "round {round}: {promised} were acknowledged, {records} records and {rows} rows are stored"
        );
        if draws.below(4) == 0 {
            exporter.kill().await;
            exporter.restart().await;
        }
        listener.restart().await;
    }
    let asked = load.end().await;
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
    assert_eq!(metric(&router, "dropped_total{").await, 0);
    assert!(metric(&router, "reconnects_total").await >= rounds.into());
    let page = exported(&exporter, asked.len() as u64).await;
    let counted = router.admin_get("/metrics").await.text();
    assert_eq!(
        sum(&page, "bodylog_requests_total{"),
        sum(&counted, "llm_router_requests_total{"),
    );
    for (kind, family) in [
        ("prompt", "bodylog_prompt_tokens_total{"),
        ("completion", "bodylog_completion_tokens_total{"),
        ("cached", "bodylog_cached_tokens_total{"),
    ] {
        let tokens = format!(
            "llm_router_tokens_total{{route=\"r\",model=\"sim\",owner=\"-\",kind=\"{kind}\"}}"
        );
        assert_eq!(sum(&page, family), sum(&counted, &tokens), "{kind}");
    }
}

async fn a_quarter_of_the_kills() {
    killed_under_load(asked_for("LLM_ROUTER_TEST_KILLS").unwrap_or(ROUNDS)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_killed_under_load_stores_every_record_once() {
    a_quarter_of_the_kills().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_killed_at_other_moments_stores_every_record_once() {
    a_quarter_of_the_kills().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_killed_at_a_third_set_of_moments_stores_every_record_once() {
    a_quarter_of_the_kills().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_killed_at_a_fourth_set_of_moments_stores_every_record_once() {
    a_quarter_of_the_kills().await;
}

/// Seconds without a listener in a normal run.
const ABSENCE_SECONDS: u32 = 10;

/// The bench `relay` measures whether answers are slower meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_stays_away_under_load_costs_no_request_and_no_record() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = absent(&store).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let load = Load::begin(&router, 2);
    let seconds = asked_for("LLM_ROUTER_TEST_ABSENCE").unwrap_or(ABSENCE_SECONDS);
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let page = router.admin_get("/metrics").await.text();
        let of = |series: &str| sum(&page, &format!("llm_router_bodylog_capture_{series}"));
        assert_eq!(of("dropped_total{") + of("shed_total"), 0, "{page}");
        assert!(of("memory_bytes") < 64 << 20, "{page}");
    }
    listener.restart().await;
    // The spool is delivered while requests run.
    until_answer("the first to be stored", async || {
        (acked(&router).await > 0).then_some(())
    })
    .await;
    let asked = load.end().await;
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
    assert_eq!(metric(&router, "dropped_total{").await, 0);
    spool_is_empty(&router).await;
}
