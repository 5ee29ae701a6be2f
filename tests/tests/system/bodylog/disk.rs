//! Full disks: real ones, of a few megabytes.

use std::sync::LazyLock;

use system_tests::tmpfs::Tmpfs;

use super::*;

/// A small disk. Without one, prints why the test proves nothing here.
fn small_disk(mib: u64) -> Option<Tmpfs> {
    match Tmpfs::mount(mib) {
        Ok(disk) => Some(disk),
        Err(why) => {
            eprintln!("skipped: no small disk can be mounted: {why}");
            None
        }
    }
}

/// Incompressible text.
static NOISE: LazyLock<String> = LazyLock::new(|| {
    let mut state = 1_u32;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'@' + (state >> 26) as u8)
    });
    letters
        .map(|letter| if letter == '\\' { ' ' } else { letter })
        .take(512 << 10)
        .collect()
});

/// An incompressible body of about `size` bytes.
fn noise(size: usize) -> String {
    chat(&NOISE[..size], 2).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_disk_is_full_says_so_and_has_everything_once_there_is_room() {
    let Some(disk) = small_disk(16) else { return };
    let engine = engine(Options::default()).await;
    let mut listener = Listener::start(listener_over(&disk.path())).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let mut asked = ask_many(&router, "roomy", 5).await;
    settled(&router, asked.len()).await;

    // The last write fits only in part.
    disk.fill_but(100 << 10);
    for n in 0..40 {
        let id = format!("full-{n}");
        ask(router.public, &id, &noise(20_000)).await;
        asked.insert(id);
    }
    until_answer("the listener to refuse", async || {
        (listener.metric("write_errors_total{").await > 0).then_some(())
    })
    .await;
    until_answer("the listener to say that it is not ready", async || {
        let reply = listener.get("/readyz").await;
        (reply.status == 503).then_some(())
    })
    .await;
    assert_eq!(listener.get("/healthz").await.status, 200);
    let stored = acked(&router).await;
    assert!(stored < asked.len() as u64, "all {stored} fitted");
    // After a crash on a full disk, all acknowledged records are still there.
    listener.kill().await;
    let [records, rows] = listener.lines();
    assert!(
        records >= stored && rows >= stored,
        "{stored} acknowledged, {records} and {rows} stored"
    );
    listener.restart().await;
    asked.extend(ask_many(&router, "still", 5).await);

    disk.empty();
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
    assert_eq!(metric(&router, "dropped_total{").await, 0);
    until_answer("the listener to be ready", async || {
        (listener.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    spool_is_empty(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_costs_bodies_before_records() {
    let Some(disk) = small_disk(16) else { return };
    let engine = engine(Options::default()).await;
    let roomy = listener_over(&disk.path()).option("--min-free", "4m");
    let listener = Listener::start(roomy).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let shed = async |router: &Router, id: &str| {
        ask(router.public, id, &chat("hello", 2).to_string()).await;
        until_answer("the record", async || {
            let reply = listener.get(&format!("/records?request_id={id}")).await;
            (reply.status == 200).then(|| reply.json())
        })
        .await
    };
    let whole = shed(&router, "whole").await;
    assert!(
        whole["shed"].is_null() && whole["req_body"] != "",
        "{whole}"
    );

    disk.fill_but(1 << 20);
    listener_is(&listener, "no_bodies").await;
    let without = shed(&router, "without").await;
    assert_eq!(
        (
            &without["shed"],
            &without["req_body"],
            &without["usage"]["completion"]
        ),
        (&json!("disk"), &json!(""), &json!(2)),
        "{without}"
    );

    disk.empty();
    disk.fill_but(200 << 10);
    listener_is(&listener, "full").await;
    assert_eq!(listener.get("/readyz").await.status, 503);
    ask(router.public, "later", &chat("hello", 2).to_string()).await;
    until_answer("the sender to be told", async || {
        (listener.metric("shed_total{reason=\"disk_full\"").await > 0).then_some(())
    })
    .await;

    disk.empty();
    settled(&router, 3).await;
    let later = listener.get("/records?request_id=later").await.json();
    assert!(later["shed"].is_null(), "{later}");
    assert_eq!(metric(&router, "dropped_total{").await, 0);
}

/// Waits until the listener has noticed the state of its disk.
async fn listener_is(listener: &Listener, level: &str) {
    until_answer(&format!("the listener to be at {level}"), async || {
        let stats = listener.get("/stats").await.json();
        (stats["disk"] == level).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_whose_spool_disk_is_full_goes_on_counts_what_it_loses_and_recovers() {
    let Some(disk) = small_disk(8) else { return };
    std::fs::create_dir(disk.path()).unwrap();
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = absent(&store).await;
    let main = format!(
        "bodylog: {{listener: \"{}\", memory: 4m, spool: {{dir: {}, max_bytes: 1g}}}}",
        listener.frames,
        disk.path().display()
    );
    let router = over(&engine, "").main(&main).start().await;
    let mut asked = BTreeSet::new();
    let before = ask_many(&router, "before", 5).await;
    asked.extend(before.clone());
    spilled(&router, 5).await;
    for n in 0.. {
        assert!(n < 500, "the disk is never full");
        let id = format!("full-{n}");
        ask(router.public, &id, &noise(200_000)).await;
        asked.insert(id);
        if metric(&router, "dropped_total{").await >= 5 {
            break;
        }
    }
    // Read from one page, because records are still on their way.
    let page = router.admin_get("/metrics").await.text();
    let lost = |of: &str| {
        sum(
            &page,
            &format!("llm_router_bodylog_capture_dropped_total{{{of}"),
        )
    };
    let explained = lost("reason=\"disk\"}") + lost("reason=\"budget\"}");
    assert_eq!(lost(""), explained);

    // With free room and still no listener, the spool takes records again.
    listener.restart().await;
    settled(&router, asked.len()).await;
    let lost = metric(&router, "dropped_total{").await;
    let stored: BTreeSet<_> = ids(&listener.records()).into_iter().collect();
    assert_once(&listener, &stored);
    assert!(stored.is_subset(&asked) && before.is_subset(&stored));
    assert_eq!(stored.len() as u64 + lost, asked.len() as u64);
    listener.kill().await;
    let after = ask_many(&router, "after", 5).await;
    until_answer("records to wait on disk again", async || {
        (metric(&router, "spool_bytes").await > 0).then_some(())
    })
    .await;
    listener.restart().await;
    settled(&router, asked.len() + after.len()).await;
    let stored: BTreeSet<_> = ids(&listener.records()).into_iter().collect();
    assert!(after.is_subset(&stored));
    assert_eq!(metric(&router, "dropped_total{").await, lost);
}
