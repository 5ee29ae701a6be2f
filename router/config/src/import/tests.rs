use std::path::{Path, PathBuf};

use super::llm_proxy::llm_proxy;
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
    Env::fixed([
        ("PROXY_API_KEY", "sk-proxy"),
        ("LLAMA_API_KEY", "sk-llama"),
        ("GPU_B", "10.0.0.12"),
        ("ENGINE_KEY", "sk-engine"),
    ])
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

/// Converts a fixture with the name that the file gives its route.
fn converted(name: &str) -> Imported {
    file(&fixture(name), None, &variables())
}

#[test]
fn a_route_of_openresty_becomes_a_route_with_the_same_options() {
    let imported = converted("session_route_chat.conf");
    assert_eq!(imported.name, "chat", "{}", report(&imported));
    let text = imported.text.as_deref().unwrap();
    insta::assert_snapshot!("openresty", text);
    insta::assert_snapshot!("openresty_report", report(&imported));
    assert!(imported.holds_secret && !report(&imported).contains("secret"));
    let route = route(text);
    let peers = &route.pools[0].peers;
    assert_eq!((peers.len(), peers[0].max_concurrency), (3, 64));
    assert_eq!(peers[2].key.to_string(), "[fd00::3]:8000");
}

#[test]
fn lua_that_is_no_literal_is_refused_where_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("session_route_x.conf");
    let lua =
        |body: &str| format!("set_by_lua_block $i {{\n_G.register_route(\"x\", {body})\n}}\n");
    for (body, why) in [
        (
            "function() return { peers = load_peers() } end",
            "found `load_peers`",
        ),
        ("function() for i = 1, 3 do end end", "`return`"),
        ("make_route", "`function` is missing"),
        (
            "function() return { peers = { {\"h\"} }, api_keys = { [\"sk-plain\"] = 'a' } } end",
            "a host and a port",
        ),
        (
            "function() return { peers = {}, ttft_limit_ms = 'fast' } end",
            "ttft_limit_ms",
        ),
    ] {
        std::fs::write(&at, lua(body)).unwrap();
        let imported = file(&at, None, &variables());
        let shown = report(&imported);
        assert_eq!(imported.text, None, "{body}: {shown}");
        assert!(
            shown.contains(why) && !shown.contains("sk-plain"),
            "{body}: {shown}"
        );
        assert!(shown.contains("session_route_x.conf:2:"), "{body}: {shown}");
    }
}

#[test]
fn an_empty_route_of_openresty_stays_open_and_without_peers() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("session_route_x.conf");
    let lua = "_G.register_route('x', function() return { peers = {}, api_keys = {} } end)";
    std::fs::write(&at, lua).unwrap();
    let text = file(&at, None, &variables()).text.unwrap();
    assert!(text.contains("peers: []\napi_keys: {}\n"), "{text}");
}

#[test]
fn a_command_line_of_vllm_router_becomes_a_route() {
    let imported = converted("vllm-router.sh");
    assert_eq!(imported.name, "vllm-router");
    let text = imported
        .text
        .as_deref()
        .unwrap_or_else(|| panic!("{}", report(&imported)));
    insta::assert_snapshot!("vllm_router", text);
    insta::assert_snapshot!("vllm_router_report", report(&imported));
    assert!(imported.holds_secret && !report(&imported).contains("secret"));
    let limits: Vec<_> = [22, 21, 21]
        .map(|limit| format!("max_concurrency: {limit}"))
        .into();
    assert!(limits.iter().all(|limit| text.contains(limit)), "{text}");
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn each_policy_of_a_command_line_has_its_counterpart() {
    for (line, expected) in [
        ("vllm-router", "affinity_fallback: prefix"),
        (
            "vllm-router --policy sticky_least_loaded",
            "affinity: sticky_least_loaded",
        ),
        ("vllm-router --policy round_robin", "balance: round_robin"),
        (
            "/usr/bin/vllm-router --policy power_of_two",
            "balance: power_of_two",
        ),
        (
            "sglang-router launch --policy random",
            "balance: power_of_two",
        ),
        (
            "python3 -m sglang_router.launch_router --policy manual --max-idle-secs 60",
            "session_ttl: 60s",
        ),
        ("smg launch --policy manual", "x-smg-routing-key"),
        (
            "vllm-router --disable-circuit-breaker --disable-retries",
            "eject: off",
        ),
        (
            "vllm-router --max-concurrent-requests 8 --queue-size 0",
            "full_policy: reject",
        ),
    ] {
        let all = words(&format!("{line} --worker-urls http://a:1 http://b:1"));
        let imported = command(&all, "chat", &variables());
        let text = imported
            .text
            .as_deref()
            .unwrap_or_else(|| panic!("{}", report(&imported)));
        assert!(text.contains(expected), "{line}:\n{text}");
        route(text);
    }
}

#[test]
fn a_command_line_that_cannot_be_a_route_says_why() {
    for (line, why) in [
        (
            "vllm-router --policy round_robin",
            "`--worker-urls` is missing or empty",
        ),
        (
            "vllm-router --worker-urls http://a:1 --policy fastest",
            "unknown policy `fastest`",
        ),
        ("vllm-router --worker-urls a:1", "peers[0].url"),
        (
            "vllm-router --worker-urls http://a:1 --queue-size many",
            "expected a whole number, found `many`",
        ),
        (
            "vllm-router --worker-urls http://a:1 --policy",
            "takes one value, found 0",
        ),
        (
            "vllm-router --vllm-pd-disaggregation --prefill http://a:1 --decode http://b:1",
            "prefill and decode",
        ),
        ("nginx -g daemon", "no command of vllm-router"),
    ] {
        let imported = command(&words(line), "chat", &variables());
        let shown = report(&imported);
        assert_eq!(imported.text, None, "{line}: {shown}");
        assert!(shown.contains(why), "{line}: {shown}");
    }
}

#[test]
fn the_self_hosted_models_of_litellm_become_pools() {
    let imported = converted("litellm.yaml");
    let text = imported
        .text
        .as_deref()
        .unwrap_or_else(|| panic!("{}", report(&imported)));
    insta::assert_snapshot!("litellm", text);
    insta::assert_snapshot!("litellm_report", report(&imported));
    assert!(!imported.holds_secret && !text.contains("secret"), "{text}");
    assert!(
        !report(&imported).contains("secret"),
        "{}",
        report(&imported)
    );
    let route = route(text);
    assert_eq!(route.pools.len(), 1);
    assert_eq!(route.pools[0].peers.len(), 2);
}

#[test]
fn a_file_of_no_known_router_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for text in [
        "",
        "peers: []\n",
        "upstream x { server a:1; }\n",
        "model_list: []\n",
    ] {
        let at = directory.path().join("x.conf");
        std::fs::write(&at, text).unwrap();
        let imported = file(&at, None, &variables());
        assert_eq!(imported.text, None, "{text}");
        assert!(!imported.problems.is_empty());
    }
}
