use std::path::{Path, PathBuf};

use super::*;
use crate::load::{RoutesAt, Sources, load};
use crate::report::{Style, render};
use crate::{Env, valid};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/import/fixtures")
        .join(name)
}

fn variables() -> Env {
    Env::fixed([("PROXY_API_KEY", "sk-proxy"), ("LLAMA_API_KEY", "sk-llama")])
}

/// The report, with paths relative to the repository.
fn report(imported: &Imported) -> String {
    let root = format!("{}/", env!("CARGO_MANIFEST_DIR"));
    render(&imported.problems, Style::Plain).replace(&root, "")
}

/// Parses a text as a route file with the name `chat`.
fn route(text: &str) -> valid::Route {
    let directory = tempfile::tempdir().unwrap();
    let (main, file) = (
        directory.path().join("router.yaml"),
        directory.path().join("chat.yaml"),
    );
    std::fs::write(&main, "{}").unwrap();
    std::fs::write(&file, text).unwrap();
    let mut loaded = load(&Sources {
        config: Some(main),
        routes: RoutesAt::Files(vec![file]),
        env: variables(),
        advise: false,
    });
    assert!(!loaded.has_errors(), "{:?}", loaded.problems);
    loaded.routes.remove(0).result.unwrap()
}

fn imported(text: &str) -> Imported {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("old.yaml");
    std::fs::write(&file, text).unwrap();
    llm_proxy(&file, "chat", &variables())
}

#[test]
fn the_sample_becomes_a_route_that_behaves_as_the_proxy_did() {
    let imported = llm_proxy(&fixture("llm-proxy.yaml"), "chat", &variables());
    let text = imported.text.as_deref().unwrap();
    insta::assert_snapshot!("llm_proxy", text);
    insta::assert_snapshot!("llm_proxy_report", report(&imported));
    assert!(!imported.holds_secret && !text.contains("sk-"));
    let options = route(text).options;
    let shown = format!(
        "{:?} {:?} {} {:?} {:?} {:?} {:?}",
        options.balance.value,
        options.full_policy.value,
        options.full_status.value,
        options.load.stale_policy.value,
        options.load.model.value,
        options.request_timeout.value,
        options.api_keys.value.map(|keys| keys.len()),
    );
    assert_eq!(
        shown,
        "IdleAware Overflow 503 Exclude Additive Some(600s) Some(1)"
    );
}

#[test]
fn every_flaw_is_reported_with_its_place_and_no_secret() {
    let imported = llm_proxy(&fixture("llm-proxy-broken.yaml"), "chat", &variables());
    assert_eq!(imported.text, None);
    let report = report(&imported);
    for secret in ["sk-plain", "sk-secret", "sk-other", "user:pass"] {
        assert!(!report.contains(secret), "{report}");
    }
    insta::assert_snapshot!("llm_proxy_broken_report", report);
}

#[test]
fn what_is_left_out_gets_the_proxys_own_defaults() {
    let imported = imported("backends: [{name: a, url: 'http://10.0.0.1:8080/'}]\n");
    let text = imported.text.unwrap();
    let route = route(&text);
    let peer = &route.pools[0].peers[0];
    assert!(peer.learns_slots && peer.max_concurrency == 1, "{text}");
    assert_eq!(route.options.api_keys.value.map(|keys| keys.len()), Some(0));
    let [told] = &imported.problems[..] else {
        panic!("{:?}", imported.problems)
    };
    assert!(told.message.contains("0.0.0.0:4000"));
}

#[test]
fn variables_stay_variables_and_dollars_stay_dollars() {
    let text = "server: {request_timeout: '${T:-30}'}\nbackends:\n- {name: 'a$b', url: 'http://${H:-h}:1', slots: '${S:-2}', api_key: 'x$$y'}\n";
    let imported = imported(text);
    let text = imported.text.unwrap();
    assert!(imported.holds_secret);
    for line in [
        "request_timeout: \"${T:-30}\"",
        "url: \"http://${H:-h}:1\"",
        "max_concurrency: \"${S:-2}\"",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    let route = route(&text);
    let peer = &route.pools[0].peers[0];
    assert_eq!((&*peer.name, peer.max_concurrency), ("a$b", 2));
    assert_eq!(peer.api_key.as_ref().unwrap().expose(), "x$y");
}

#[test]
fn variables_that_are_not_set_here_are_carried_over() {
    let text = "server: {api_keys: ['${NO_KEY}', sk-plain]}\nbackends:\n- {name: a, url: 'http://${NO_HOST}:1', slots: '${NO_SLOTS}', api_key: '${NO_TOKEN}'}\n";
    let imported = imported(text);
    let report = report(&imported);
    for name in ["NO_KEY", "NO_HOST", "NO_SLOTS", "NO_TOKEN"] {
        let said = format!("the variable `{name}` is not set here");
        assert!(report.contains(&said), "{name}: {report}");
    }
    let text = imported.text.unwrap();
    for line in [
        "url: \"http://${NO_HOST}:1\"",
        "max_concurrency: \"${NO_SLOTS}\"",
        "api_key: \"${NO_TOKEN}\"",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    let [unknown, known] = ["sha256:0000", "sha256:"].map(|key| text.matches(key).count());
    assert_eq!(
        (unknown, known),
        (1, 2),
        "one opens nothing, one is the key's:\n{text}"
    );
}

#[test]
fn a_file_of_something_else_is_refused_as_a_whole() {
    for (text, why) in [
        ("peers: []\n", "it has no `backends`"),
        ("- a\n", "it has no `backends`"),
        ("a: [\n", "line"),
        ("backends: {a: 1}\n", "a list of backends"),
        ("backends: []\n", "no backend is enabled"),
        (
            "backends: [{name: a, url: 'http://a:1', enabled: false}]\n",
            "no backend is enabled",
        ),
    ] {
        let imported = imported(text);
        assert_eq!(imported.text, None, "{text}");
        let shown = report(&imported);
        assert!(shown.contains(why) || why == "line", "{text}: {shown}");
    }
}
