//! Complete runs over files on disk.

use std::fs;
use std::path::Path;

use router_core::affinity::Hash;
use router_core::layered::Source;
use tempfile::TempDir;

use super::*;
use crate::report::{Style, render};

/// A directory with these files, and sources that point into it.
fn files(files: &[(&str, &str)]) -> (TempDir, Sources) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let sources = Sources {
        config: Some(directory.path().join("router.yaml")),
        routes: RoutesAt::Main,
        env: Env::fixed([("PORT", "8000")]),
        advise: false,
    };
    (directory, sources)
}

fn run(list: &[(&str, &str)]) -> Loaded {
    let (_directory, sources) = files(list);
    load(&sources)
}

fn titles(loaded: &Loaded) -> Vec<String> {
    loaded.problems.iter().map(Problem::title).collect()
}

fn fixtures(name: &str) -> Sources {
    Sources {
        config: Some(Path::new("src/fixtures").join(name).join("router.yaml")),
        routes: RoutesAt::Main,
        env: Env::fixed([("PORT", "8000")]),
        advise: false,
    }
}

#[test]
fn the_accepted_files_are_accepted_without_a_word() {
    let loaded = load(&fixtures("accepted"));
    assert_eq!(titles(&loaded), [""; 0]);
    let names: Vec<_> = loaded.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["by-model", "full", "minimal", "no-peers"]);
    assert!(loaded.main.result.is_ok() && loaded.routes.iter().all(|route| route.result.is_ok()));
}

#[test]
fn every_problem_of_every_file_is_in_one_report() {
    let loaded = load(&fixtures("broken"));
    insta::assert_snapshot!("broken", render(&loaded.problems, Style::Plain));
    assert!(loaded.has_errors() && loaded.main.result.is_err());
    let good: Vec<_> = loaded
        .routes
        .iter()
        .filter(|route| route.result.is_ok())
        .collect();
    assert!(good.is_empty());
}

#[test]
fn the_report_for_programs_has_file_line_and_column() {
    let loaded = load(&fixtures("broken"));
    let machine: Vec<_> = loaded.problems.iter().map(Problem::machine).collect();
    let shown: Vec<_> = machine
        .iter()
        .map(|m| format!("{}:{}:{}: {}", m.file, m.line, m.column, m.severity))
        .collect();
    insta::assert_snapshot!("broken-places", shown.join("\n"));
    assert_eq!(
        serde_json::to_value(&machine[0])
            .unwrap()
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["column", "file", "line", "message", "severity"]
    );
}

#[test]
fn validity_is_per_file() {
    let loaded = run(&[
        ("router.yaml", ""),
        ("routes/good.yaml", "peers: []\n"),
        ("routes/bad.yaml", "peers: 5\n"),
        ("routes/lenient.yaml", "peers: []\nmerge_models: perhaps\n"),
    ]);
    assert!(loaded.main.result.is_ok());
    let valid: Vec<_> = loaded
        .routes
        .iter()
        .map(|route| (&*route.name, route.result.is_ok()))
        .collect();
    assert_eq!(valid, [("bad", false), ("good", true), ("lenient", true)]);
    assert!(loaded.has_errors(), "a boolean that is none fails a check");
}

#[test]
fn routes_are_checked_although_the_main_file_is_broken() {
    let loaded = run(&[
        ("router.yaml", "server: [\n"),
        ("routes/bad.yaml", "peers: 5\n"),
    ]);
    assert_eq!(loaded.problems.len(), 2, "{:?}", titles(&loaded));
    assert!(loaded.main.result.is_err());
}

#[test]
fn defaults_are_the_global_layer() {
    let loaded = run(&[
        (
            "router.yaml",
            "server: {request_timeout: 5s}\ndefaults: {hash: rendezvous, default_max: 7, merge_models: perhaps}\n",
        ),
        (
            "routes/a.yaml",
            "peers: [{address: \"h:${PORT}\"}]\nhash: rendezvous_md5\n",
        ),
    ]);
    let route = loaded.routes[0].result.as_ref().unwrap();
    let options = &route.options;
    assert_eq!(
        (options.hash.value, options.hash.source),
        (Hash::RendezvousMd5, Source::Route)
    );
    assert_eq!(
        (options.default_max.value, options.default_max.source),
        (7, Source::Global)
    );
    assert_eq!(route.pools[0].peers[0].max_concurrency, 7);
    assert_eq!(
        (options.merge_models.value, options.merge_models.source),
        (true, Source::DefaultInvalid)
    );
    assert_eq!(options.request_timeout.source, Source::Global);
    assert_eq!(options.balance.source, Source::Default);
    assert_eq!(
        loaded.problems.len(),
        1,
        "reported once, in the main file: {:?}",
        titles(&loaded)
    );
}

#[test]
fn one_name_belongs_to_one_file() {
    let loaded = run(&[
        ("router.yaml", ""),
        ("routes/a.yaml", "name: chat\npeers: []\n"),
        ("routes/chat.yaml", "peers: []\n"),
        ("routes/x.yaml", "name: y\npeers: []\n"),
        ("routes/z.yaml", "name: y\npeers: []\n"),
    ]);
    let valid: Vec<_> = loaded
        .routes
        .iter()
        .map(|route| {
            (
                route.path.file_stem().unwrap().to_str().unwrap(),
                route.result.is_ok(),
            )
        })
        .collect();
    assert_eq!(
        valid,
        [("a", false), ("chat", true), ("x", true), ("z", false)]
    );
    assert!(
        titles(&loaded)[0].contains("the name `chat` is taken by "),
        "{:?}",
        titles(&loaded)
    );
}

#[test]
fn the_default_route_is_one_of_the_routes_valid_or_not() {
    let main = ("router.yaml", "server: {default_route: chat}\n");
    assert!(
        run(&[main, ("routes/chat.yaml", "peers: 5\n")])
            .main
            .result
            .is_ok()
    );
    let loaded = run(&[main, ("routes/chat1.yaml", "peers: []\n")]);
    assert!(loaded.main.result.is_err());
    assert!(
        titles(&loaded)[0].contains("did you mean `chat1`?"),
        "{:?}",
        titles(&loaded)
    );
}

#[test]
fn a_missing_directory_is_an_error_where_it_was_named() {
    let default = run(&[("router.yaml", "")]);
    assert_eq!(
        (default.routes_state, default.has_errors()),
        (RoutesState::Missing, false)
    );
    assert!(default.main.result.is_ok() && default.has_no_route_files());
    let named = run(&[("router.yaml", "routes: elsewhere\n")]);
    assert!(named.main.result.is_err(), "{:?}", titles(&named));
    let (_directory, mut sources) = files(&[("router.yaml", "")]);
    sources.routes = RoutesAt::Directory("/nonexistent/routes".into());
    assert!(load(&sources).has_errors());
}

#[test]
fn a_missing_main_file_is_an_error_where_it_was_named() {
    let (directory, mut sources) = files(&[]);
    assert!(load(&sources).main.result.is_err());
    sources.config = None;
    let named = directory.path().join("router.yaml");
    sources.env = Env::fixed([("LLM_ROUTER_CONFIG", named.to_str().unwrap())]);
    let loaded = load(&sources);
    assert_eq!(loaded.main.path, Some(named));
    assert!(loaded.main.result.is_err());
}

#[test]
fn files_may_be_named_one_by_one() {
    let (directory, mut sources) = files(&[
        ("router.yaml", "routes: nowhere\n"),
        ("x/b.yaml", "peers: []\n"),
        ("a.yml", "peers: []\n"),
    ]);
    sources.routes = RoutesAt::Files(vec![
        directory.path().join("x/b.yaml"),
        directory.path().join("a.yml"),
    ]);
    let loaded = load(&sources);
    let names: Vec<_> = loaded.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(!loaded.has_errors(), "{:?}", titles(&loaded));
}

#[test]
fn hidden_files_and_directories_are_no_routes() {
    let loaded = run(&[
        ("router.yaml", ""),
        ("routes/.a.yaml", "x"),
        ("routes/..data/b.yaml", "x"),
        ("routes/c.yaml/d", "x"),
        ("routes/notes.txt", "x"),
    ]);
    assert!(loaded.has_no_route_files() && !loaded.has_errors());
    assert_eq!(loaded.routes_state, RoutesState::Read);
}

#[test]
fn a_bom_and_crlf_do_not_matter() {
    let loaded = run(&[
        ("router.yaml", "\u{feff}server:\r\n  access_log: false\r\n"),
        ("routes/a.yaml", "peers: []\r\nhash: x\r\n"),
    ]);
    assert!(!loaded.main.result.as_ref().unwrap().server.access_log);
    assert_eq!(loaded.problems[0].position(), (2, 7));
}

#[test]
fn what_cannot_be_read_is_a_problem_of_that_file() {
    let (directory, sources) = files(&[("router.yaml", ""), ("routes/a.yaml", "")]);
    let large = format!(
        "peers: []\n#{}\n",
        "x".repeat(usize::try_from(FILE_MAX).unwrap())
    );
    fs::write(directory.path().join("routes/large.yaml"), large).unwrap();
    fs::write(
        directory.path().join("routes/latin1.yaml"),
        b"peers: []\n# caf\xe9\n",
    )
    .unwrap();
    let loaded = load(&sources);
    let shown = titles(&loaded).join("\n");
    assert!(
        shown.contains("larger than") && shown.contains("first broken byte is in line 2"),
        "{shown}"
    );
    assert!(loaded.routes.iter().all(|route| route.result.is_err()));
}

#[test]
fn equal_content_has_an_equal_hash() {
    let (directory, sources) = files(&[
        ("router.yaml", ""),
        ("routes/a.yaml", "peers: []\n"),
        ("routes/b.yaml", "peers: []\n"),
    ]);
    let first = load(&sources);
    assert_eq!(first.routes[0].hash, first.routes[1].hash);
    fs::write(directory.path().join("routes/a.yaml"), "peers: [] \n").unwrap();
    let second = load(&sources);
    assert_ne!(first.routes[0].hash, second.routes[0].hash);
    assert_eq!(first.main.hash, second.main.hash);
}

#[test]
fn paths_in_the_main_file_are_beside_it() {
    let (directory, sources) = files(&[
        ("router.yaml", "keys: {file: keys}\nroutes: r\n"),
        ("r/a.yaml", "peers: []\n"),
    ]);
    let loaded = load(&sources);
    let main = loaded.main.result.unwrap();
    assert_eq!(main.keys.file, directory.path().join("keys"));
    assert_eq!(loaded.routes_dir, Some(directory.path().join("r")));
    assert_eq!(main.path, Some(directory.path().join("router.yaml")));
}

#[test]
fn off_in_a_route_beats_the_threshold_of_the_defaults() {
    let loaded = run(&[
        (
            "router.yaml",
            "defaults: {ttft_limit_ms: 500, tps_limit_tps: 20, adaptive_cc: true}\n",
        ),
        ("routes/a.yaml", "peers: []\nttft_limit_ms: off\n"),
        (
            "routes/b.yaml",
            "peers: []\nttft_limit_ms: off\ntps_limit_tps: off\n",
        ),
    ]);
    let a = loaded.routes[0].result.as_ref().unwrap();
    let (ttft, tps) = (a.options.ttft.limit, a.options.tps.limit);
    assert_eq!((ttft.value, ttft.source), (None, Source::Route));
    assert_eq!((tps.value, tps.source), (Some(20.0), Source::Global));
    let b = loaded.routes[1].result.as_ref().unwrap();
    assert!(
        !b.options.adaptive.enabled.value,
        "nothing is left that moves the adaptive limit"
    );
}

#[test]
fn the_environment_names_the_bodylog_listener_over_the_file() {
    let listener = |variables: &[(&str, &str)]| {
        let (_directory, mut sources) =
            files(&[("router.yaml", "bodylog: {listener: \"file:1\"}\n")]);
        sources.env = Env::fixed(variables.iter().copied());
        let result = load(&sources).main.result;
        result.map(|main| main.bodylog.listener.as_deref().map(str::to_owned))
    };
    let named = |text: &str| Some(text.to_owned());
    let (host, port) = ("BODYLOG_LISTENER_HOST", "BODYLOG_LISTENER_PORT");
    assert_eq!(listener(&[]).unwrap(), named("file:1"));
    assert_eq!(listener(&[(host, "")]).unwrap(), named("file:1"));
    assert_eq!(listener(&[(port, "7")]).unwrap(), named("file:1"));
    assert_eq!(listener(&[(host, "log")]).unwrap(), named("log:9999"));
    assert_eq!(
        listener(&[(host, "log:5"), (port, "7")]).unwrap(),
        named("log:5")
    );
    assert_eq!(
        listener(&[(host, "[::1]"), (port, "7")]).unwrap(),
        named("[::1]:7")
    );
    assert_eq!(listener(&[(host, " ")]).unwrap(), named("file:1"));
    for port_of_a_service in ["tcp://10.96.13.7:9999", "", " "] {
        let variables = [(host, "log"), (port, port_of_a_service)];
        assert_eq!(listener(&variables).unwrap(), named("log:9999"));
    }
    let variables = [(host, "log"), (port, "tcp://[fd00::7]:7")];
    assert_eq!(listener(&variables).unwrap(), named("log:7"));
    for bad in [
        [(host, "log"), (port, "tcp://10.96.13.7")],
        [(host, "log"), (port, "udp://10.96.13.7:1")],
        [(host, "a b"), (port, "7")],
        [(host, "log:"), (port, "7")],
        [(host, "log"), (port, "0")],
    ] {
        assert!(listener(&bad).is_err(), "{bad:?}");
    }
}
