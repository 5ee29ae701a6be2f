//! The wall clock of all three programs steps while requests run.

use system_tests::clock::SteppedClock;

use super::*;

/// Midnight of 2026-01-03, in seconds since the Unix epoch.
const MIDNIGHT: i64 = 1_767_398_400;
const HOUR: i64 = 3600;

/// Waits until more records are stored, all in this hour.
async fn stored_in(listener: &Listener, hour: &str) {
    let before = listener.lines()[0];
    until(&format!("records in {hour}"), || {
        listener.lines()[0] > before + 5 && listener.hours().last().is_some_and(|last| last == hour)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_over_hours_and_midnight_and_back_costs_no_record() {
    let clock = match SteppedClock::new() {
        Ok(clock) => clock,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    clock.set(MIDNIGHT - HOUR - 2);
    let engine = engine(Options::default()).await;
    let store = directory();
    let start = listener_over(store.path()).environment(clock.environment());
    let mut listener = Listener::start(start).await;
    let start = exporter_over(store.path()).environment(clock.environment());
    let exporter = Exporter::start(start).await;
    let mut setup = over(&engine, "").main(&spooled(listener.frames));
    for (name, value) in clock.environment() {
        setup = setup.env(&name, &value);
    }
    let router = setup.start().await;
    let load = Load::begin(&router, 2);

    // An hour ends by itself; a day ends by a step.
    stored_in(&listener, "2026-01-02/23.jsonl").await;
    clock.set(MIDNIGHT - 1);
    stored_in(&listener, "2026-01-03/00.jsonl").await;

    // Back over midnight: neither this run nor the next writes to an hour that is over.
    let earlier = listener.hours();
    clock.set(MIDNIGHT - 2 * HOUR);
    stored_in(&listener, "2026-01-03/00.jsonl").await;
    listener.kill().await;
    listener.restart().await;
    stored_in(&listener, "2026-01-03/00.jsonl").await;
    assert_eq!(listener.hours(), earlier);

    // Forward: the next run packs what is over, and the exporter reads on from its position.
    clock.set(MIDNIGHT + 2 * HOUR + 1200);
    stored_in(&listener, "2026-01-03/02.jsonl").await;
    listener.kill().await;
    listener.restart().await;
    until("the hours that are over to be packed", || {
        let hours = listener.hours();
        let (last, over) = hours.split_last().unwrap();
        last == "2026-01-03/02.jsonl" && over.iter().all(|hour| hour.ends_with(".gz"))
    })
    .await;

    let asked = load.end().await;
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
    assert_eq!(metric(&router, "dropped_total{").await, 0);
    let page = exported(&exporter, asked.len() as u64).await;
    assert_eq!(
        sum(
            &page,
            "bodylog_exporter_file_resets_total{cause=\"deleted\"}"
        ),
        0,
        "{page}"
    );
}
