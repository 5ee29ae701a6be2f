//! Placement by the live load of engines, by the homes of sessions, by model and by prefix.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use sim_engine::{Dialect, Engine, Options, Pace};
use system_tests::peer::Refusing;
use system_tests::wait::{until, until_answer};
use system_tests::wire::call;
use tokio::task::JoinSet;

use crate::common::{CHAT, CHAT_PATH};
use crate::gpu::{Gpu, SAYS, Says, addresses, backends, chat, over, placed, until_backend};

#[tokio::test(flavor = "multi_thread")]
async fn six_chats_at_once_spread_evenly_over_three_engines_of_one_slot() {
    // No engine lists the model of the chats, so `balance` alone decides.
    let says = Says {
        model: "other",
        ..SAYS
    };
    let gpus = [
        Gpu::new(says).await,
        Gpu::new(says).await,
        Gpu::new(says).await,
    ];
    let [a, b, c] = &gpus;
    let router = over(&addresses([a, b, c]), "balance: idle_aware")
        .start()
        .await;
    let one = || chat(&router);
    let six = async { tokio::join!(one(), one(), one(), one(), one(), one()) };
    let (served, ()) = tokio::join!(six, async {
        let chats = || gpus.iter().map(Gpu::chats).sum::<usize>();
        until("all six at the engines", || chats() == 6).await;
        for gpu in &gpus {
            gpu.gate.open(2);
        }
    });
    let counts: Vec<_> = gpus.iter().map(Gpu::chats).collect();
    assert_eq!(counts, [2, 2, 2]);
    assert_eq!(served.0.1, "idle_aware");
    let after = backends(&router).await;
    for (name, backend) in after {
        assert_eq!(backend["in_flight"], 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_one_after_the_other_visit_every_idle_engine() {
    let gpus = [
        Gpu::open(SAYS).await,
        Gpu::open(SAYS).await,
        Gpu::open(SAYS).await,
    ];
    let [a, b, c] = &gpus;
    let router = over(&addresses([a, b, c]), "balance: idle_aware")
        .start()
        .await;
    let mut visited = Vec::new();
    for _ in 0..6 {
        visited.push(chat(&router).await.0);
    }
    assert_eq!(visited, ["gpu0", "gpu1", "gpu2", "gpu0", "gpu1", "gpu2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn load_that_others_bring_steers_requests_away_whatever_the_engine() {
    let pace = Pace {
        itl: Duration::from_millis(20),
        ..Options::default().pace
    };
    for dialect in [
        Dialect::Vllm,
        Dialect::Sglang,
        Dialect::Llamacpp,
        Dialect::LlamacppOld,
    ] {
        let options = Options {
            dialect,
            pace,
            ..Options::default()
        };
        let loaded = Engine::local(options.clone()).await.unwrap();
        let idle = Engine::local(options).await.unwrap();
        let both = [loaded.addr.to_string(), idle.addr.to_string()];
        let router = over(&both, "balance: least_busy").start().await;
        let body = r#"{"model":"sim","max_tokens":4000,"messages":[]}"#;
        let body = body.replace("[]", r#"[{"role":"user","content":"hi"}]"#);
        let elsewhere = loaded.addr;
        let mut other = JoinSet::new();
        other.spawn(
            async move { call(elsewhere, "POST", "/v1/chat/completions", &[], &body).await },
        );
        let what = format!("the load of {dialect:?} to be seen");
        until_backend(&router, "gpu0", &what, |gpu| gpu["external"] == 1).await;
        for _ in 0..3 {
            // A poll during the last chat reports the engine as busy until the next poll.
            let what = format!("{dialect:?} without load to be seen");
            until_backend(&router, "gpu1", &what, |gpu| gpu["load"] == 0).await;
            assert_eq!(
                chat(&router).await,
                ("gpu1".to_owned(), "least_busy".to_owned()),
                "{dialect:?}"
            );
        }
        other.shutdown().await;
        until_backend(&router, "gpu0", "the load to be gone", |gpu| {
            gpu["load"] == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_too_busy_to_be_read_is_held_and_one_that_refuses_is_out() {
    let (busy, gone) = (Gpu::open(SAYS).await, Gpu::open(SAYS).await);
    let options = "balance: idle_aware\nstale_after: 300ms";
    let both = addresses([&busy, &gone]);
    let router = over(&both, options).start().await;
    busy.hangs.store(true, Ordering::SeqCst);
    until_backend(&router, "gpu0", "the silent engine to be held", |gpu| {
        gpu["held"] == true
    })
    .await;
    assert_eq!(
        chat(&router).await.0,
        "gpu1",
        "a held engine comes after those with room"
    );
    drop(gone);
    until_backend(&router, "gpu1", "the dead engine to be out", |gpu| {
        gpu["fresh"] == false && gpu["held"] == false
    })
    .await;
    assert_eq!(chat(&router).await.0, "gpu0", "the held one still serves");
    assert_eq!(router.get("/ready").await.status, 200);
    busy.hangs.store(false, Ordering::SeqCst);
    until_backend(&router, "gpu0", "it to be fresh again", |gpu| {
        gpu["fresh"] == true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_request_after_the_start_finds_engines_that_tell_their_load_late() {
    let says = Says {
        slow: Duration::from_millis(300),
        ..SAYS
    };
    let gpu = Gpu::open(says).await;
    let router = over(&addresses([&gpu]), "balance: least_busy")
        .start()
        .await;
    assert_eq!(chat(&router).await.0, "gpu0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_never_tells_its_load_does_not_keep_the_others_from_serving() {
    let (silent, other) = (Gpu::open(SAYS).await, Gpu::open(SAYS).await);
    silent.hangs.store(true, Ordering::SeqCst);
    let router = over(&addresses([&silent, &other]), "balance: least_busy")
        .start()
        .await;
    assert_eq!(chat(&router).await.0, "gpu1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_refuses_from_the_start_is_out_without_a_request_lost() {
    let (refusing, alive) = (Refusing::bind(), Gpu::open(SAYS).await);
    let both = [refusing.address.to_string(), alive.address()];
    let router = over(&both, "balance: least_busy").start().await;
    for _ in 0..3 {
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(reply.header("x-routed-retries"), "0");
        assert_eq!(placed(&reply).0, "gpu1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sticky_sessions_stay_until_they_are_finished() {
    let gpus = [
        Gpu::open(SAYS).await,
        Gpu::open(SAYS).await,
        Gpu::open(SAYS).await,
    ];
    let [a, b, c] = &gpus;
    let options = "balance: least_busy\naffinity: sticky_least_loaded";
    let router = over(&addresses([a, b, c]), options).start().await;
    let turn = async |session: &str| {
        let headers = [("x-session-id", session)];
        placed(&router.post_with(CHAT_PATH, &headers, CHAT).await)
    };
    let mut homes = Vec::new();
    for session in ["one", "two", "three"] {
        let (home, mode) = turn(session).await;
        assert_eq!(mode, "sticky_new");
        for _ in 0..2 {
            let again = (home.clone(), "sticky".to_owned());
            assert_eq!(turn(session).await, again, "{session}");
        }
        homes.push(home);
    }
    homes.sort();
    assert_eq!(homes, ["gpu0", "gpu1", "gpu2"], "one session on each");
    let metrics = async || router.admin_get("/metrics").await.text();
    let counted = |page: &str, n: u32| {
        let line = format!("llm_router_sessions{{route=\"r\"}} {n}");
        assert!(page.lines().any(|found| found == line), "{line}:\n{page}");
    };
    counted(&metrics().await, 3);
    let path = "/r/_sessions?session_id=one";
    let found = router.admin_get(path).await.json();
    assert_eq!(found["homes"][0]["name"], turn("one").await.0, "{found}");
    for released in [1, 0] {
        let reply = router.post("/finish_session?session_id=one", "").await;
        assert_eq!(reply.json()["released"], released);
    }
    counted(&metrics().await, 2);
    assert_eq!(router.admin_get(path).await.json()["homes"], json!([]));
    assert_eq!(turn("one").await.1, "sticky_new");
}

#[tokio::test(flavor = "multi_thread")]
async fn sticky_session_whose_engine_died_moves_and_stays_moved() {
    let (a, b) = (Gpu::open(SAYS).await, Gpu::open(SAYS).await);
    let both = addresses([&a, &b]);
    let options = "balance: least_busy\naffinity: sticky_least_loaded";
    let router = over(&both, options).start().await;
    let turn = async || {
        let headers = [("x-session-id", "s")];
        placed(&router.post_with(CHAT_PATH, &headers, CHAT).await)
    };
    let (home, _) = turn().await;
    let (victim, left) = if home == "gpu0" {
        (a, "gpu1")
    } else {
        (b, "gpu0")
    };
    drop(victim);
    until_backend(&router, &home, "the dead engine to be out", |gpu| {
        gpu["fresh"] == false
    })
    .await;
    assert_eq!(turn().await, (left.to_owned(), "sticky_new".to_owned()));
    assert_eq!(turn().await, (left.to_owned(), "sticky".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn model_of_a_request_pins_it_to_the_engines_that_list_it() {
    let names = |model, alias| Says {
        model,
        alias,
        ..SAYS
    };
    let nine = Gpu::open(names("9B-1", "nine")).await;
    let four = Gpu::open(names("4B-0", "four")).await;
    let both = addresses([&four, &nine]);
    let router = over(&both, "balance: least_busy").start().await;
    until_answer("both model lists", async || {
        let list = router.get("/r/v1/models").await.json();
        (list["data"].as_array()?.len() == 2).then_some(())
    })
    .await;
    let ask = async |model: &str| {
        let body = CHAT.replace("tiny", model);
        placed(&router.post(CHAT_PATH, &body).await)
    };
    for (model, peer) in [("9B-1", "gpu1"), ("nine", "gpu1"), ("four", "gpu0")] {
        for _ in 0..2 {
            let pinned = (peer.to_owned(), "pin".to_owned());
            assert_eq!(ask(model).await, pinned, "{model}");
        }
    }
    assert_eq!(ask("NINE").await.1, "least_busy", "names are exact");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_without_an_id_comes_back_to_where_its_prefix_was_computed() {
    let gpus = [
        Gpu::open(SAYS).await,
        Gpu::open(SAYS).await,
        Gpu::open(SAYS).await,
    ];
    let [a, b, c] = &gpus;
    let options = "balance: idle_aware\naffinity_fallback: prefix";
    let router = over(&addresses([a, b, c]), options).start().await;
    let ask = async |messages: &[Value]| {
        let body = json!({"model": "tiny2", "messages": messages}).to_string();
        placed(&router.post(CHAT_PATH, &body).await)
    };
    for conversation in ["first", "second", "third"] {
        let opening = format!("{conversation}: {}", "remember these words ".repeat(20));
        let mut messages = vec![json!({"role": "user", "content": opening})];
        let (home, mode) = ask(&messages).await;
        assert_eq!(mode, "idle_aware");
        for _ in 0..2 {
            messages.push(json!({"role": "assistant", "content": "hello"}));
            messages.push(json!({"role": "user", "content": "and then?"}));
            let back = (home.clone(), "prefix".to_owned());
            assert_eq!(ask(&messages).await, back, "{conversation}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_metrics_show_each_peer_to_those_with_a_key() {
    let gpu = Gpu::open(Says { others: 3, ..SAYS }).await;
    let options = "balance: least_busy\naffinity: sticky_least_loaded";
    let setup = over(&addresses([&gpu]), options);
    let router = setup.keys("sk-one:team\n").start().await;
    assert_eq!(router.get("/proxy/metrics").await.status, 401);
    let get = async |accept| {
        let headers = [("authorization", "Bearer sk-one"), ("accept", accept)];
        call(router.public, "GET", "/proxy/metrics", &headers, "").await
    };
    let page = get("text/plain").await;
    assert!(page.header("content-type").starts_with("text/plain"));
    let text = page.text();
    for (name, value) in [
        ("proxy_backend_busy", "3"),
        ("proxy_backend_external", "3"),
        ("proxy_backend_in_flight", "0"),
        ("proxy_backend_load", "3"),
        ("proxy_backend_slots", "1"),
        ("proxy_backend_slots_reported", "1"),
        ("proxy_backend_fresh", "1"),
        ("proxy_backend_held", "0"),
        ("proxy_backend_idle_seconds", "0"),
        ("proxy_sessions", "0"),
    ] {
        let line = format!("{name}{{route=\"r\",backend=\"gpu0\"}} {value}");
        let found = text.lines().any(|found| {
            found == line || found.strip_prefix(&line).is_some_and(|rest| rest == ".0")
        });
        assert!(found, "{line} is missing in:\n{text}");
    }
    assert!(text.contains("proxy_backend_sample_age_seconds{"), "{text}");
    let backend = get("application/json").await.json()["backends"][0].clone();
    assert_eq!(
        (&backend["backend"], &backend["external"]),
        (&json!("gpu0"), &json!(3))
    );
    let admin = router.admin_get("/metrics").await.text();
    let peer = gpu.address();
    let line = format!("llm_router_peer_load{{route=\"r\",peer=\"{peer}\"}} 3");
    assert!(admin.lines().any(|found| found == line), "{admin}");
}
