//! The program as it is run: exit codes, streams, and what a closed pipe does.

#![expect(
    clippy::unwrap_used,
    reason = "a test helper that fails has found the failure"
)]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const GOOD: &str =
    "peers: [{address: 10.0.0.11:8000, name: gpu-1}, {address: 10.0.0.12:8000, name: gpu-2}]\n";
const BAD: &str = "peers: [{adress: 10.0.0.11:8000}]\n";

/// `llmctl` in a directory of its own, with nothing of this machine's settings.
fn llmctl(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmctl"));
    command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .env_clear()
        .env("XDG_CONFIG_HOME", directory);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    llmctl(directory, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A directory with `router.yaml` and these routes.
fn files(routes: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("router.yaml"), "routes: routes/\n").unwrap();
    fs::create_dir(directory.path().join("routes")).unwrap();
    for (name, text) in routes {
        fs::write(directory.path().join(format!("routes/{name}.yaml")), text).unwrap();
    }
    directory
}

#[test]
fn results_go_to_stdout_and_failures_to_stderr() {
    let directory = files(&[("good", GOOD), ("bad", BAD)]);
    let fine = run(directory.path(), &["route", "check", "routes/good.yaml"]);
    assert_eq!((fine.status.code(), text(&fine.stderr)), (Some(0), ""));
    let found = run(directory.path(), &["route", "check"]);
    assert_eq!((found.status.code(), text(&found.stderr)), (Some(1), ""));
    assert!(
        text(&found.stdout).contains("routes/bad.yaml:1:10"),
        "{}",
        text(&found.stdout)
    );
    let failed = run(directory.path(), &["route", "show", "nobody"]);
    assert_eq!((failed.status.code(), text(&failed.stdout)), (Some(1), ""));
    assert!(
        text(&failed.stderr).contains("there are: bad, good"),
        "{}",
        text(&failed.stderr)
    );
}

#[test]
fn an_empty_variable_counts_as_none() {
    let directory = files(&[("good", GOOD)]);
    let mut command = llmctl(directory.path(), &["route", "check"]);
    for name in [
        "LLMCTL_ROUTER",
        "LLMCTL_TOKEN_FILE",
        "LLMCTL_OUTPUT",
        "LLMCTL_ROUTES",
        "LLMCTL_CONFIG",
        "LLM_ROUTER_CONFIG",
    ] {
        command.env(name, "");
    }
    let output = command.output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), ""),
        "{}",
        text(&output.stdout)
    );
    let replayed = llmctl(directory.path(), &["replay", "--router", "127.0.0.1:1"])
        .env("LLMCTL_URL", "")
        .output()
        .unwrap();
    assert_eq!(
        replayed.status.code(),
        Some(3),
        "{}",
        text(&replayed.stderr)
    );
}

#[test]
fn usage_errors_end_with_2() {
    let directory = files(&[("good", GOOD)]);
    for arguments in [
        &["no-such-command"][..],
        &["route", "show"],
        &["status", "--router", "ftp://x"],
        &["route", "list", "--output", "github"],
        &[
            "route",
            "list",
            "--router",
            "http://127.0.0.1:1",
            "--config",
            "router.yaml",
        ],
        &["route", "explain", "good", "-H", "no colon"],
        &["route", "new", "v1", "--print"],
        &["up", "--engines", "0"],
        &["keys", "add", "two words"],
        &["keys", "revoke", "alice", "--old", "--id", "0"],
        &["keys", "check", "--wait", "5s"],
        &["completions", "tcsh"],
        &["man", "no-such-command"],
        &["reload", "--output", "github"],
        &["session", "finish", "", "--router", "127.0.0.1:1"],
    ] {
        let ended = run(directory.path(), arguments);
        assert_eq!(
            ended.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&ended.stderr)
        );
        assert!(
            !ended.stderr.is_empty() && ended.stdout.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_router_that_cannot_be_reached_ends_with_3() {
    let directory = files(&[("good", GOOD)]);
    let router = closed_port();
    for arguments in [
        &["status"][..],
        &["route", "list"],
        &["route", "explain", "good", "--last"],
        &["replay"],
    ] {
        let ended = run(
            directory.path(),
            &[arguments, &["--router", &router]].concat(),
        );
        assert_eq!(
            ended.status.code(),
            Some(3),
            "{arguments:?}: {}",
            text(&ended.stderr)
        );
        assert!(
            text(&ended.stderr).contains(&router),
            "{}",
            text(&ended.stderr)
        );
    }
}

/// The URL of a port that nobody listens on.
fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn flag_beats_environment_beats_file() {
    let directory = files(&[("good", GOOD)]);
    fs::create_dir(directory.path().join("llmctl")).unwrap();
    let (by_file, by_env, by_flag) = (closed_port(), closed_port(), closed_port());
    fs::write(
        directory.path().join("llmctl/config.yaml"),
        format!("router: {by_file}\n"),
    )
    .unwrap();
    let asked = |mut command: Command| text(&command.output().unwrap().stderr).to_owned();
    assert!(asked(llmctl(directory.path(), &["status"])).contains(&by_file));
    let mut with_env = llmctl(directory.path(), &["status"]);
    with_env.env("LLMCTL_ROUTER", &by_env);
    assert!(asked(with_env).contains(&by_env));
    let mut with_flag = llmctl(directory.path(), &["status", "--router", &by_flag]);
    with_flag.env("LLMCTL_ROUTER", &by_env);
    assert!(asked(with_flag).contains(&by_flag));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let directory = files(&[("good", GOOD)]);
    let mut command = llmctl(directory.path(), &["route", "schema"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaint)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), complaint.as_str()),
        (Some(0), "")
    );
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let directory = files(&[]);
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["route", "check", "--help"],
    ] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = llmctl(directory.path(), arguments);
        let ended = command.stdout(full).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        assert!(
            text(&ended.stderr).contains("cannot write the result"),
            "{arguments:?}"
        );
    }
}

#[test]
fn nothing_is_coloured_off_a_terminal() {
    let directory = files(&[("good", GOOD), ("bad", BAD)]);
    for arguments in [
        &["route", "check"][..],
        &["route", "list"],
        &["route", "show", "good"],
        &["--help"],
        &["nope"],
    ] {
        let ended = run(directory.path(), arguments);
        assert!(
            !ended.stdout.contains(&0x1b) && !ended.stderr.contains(&0x1b),
            "{arguments:?}"
        );
    }
}

#[test]
fn explain_offline_names_the_home_of_a_session() {
    let directory = files(&[("good", GOOD)]);
    let explain = |more: &[&str]| {
        let ended = run(
            directory.path(),
            &[&["route", "explain", "good", "--output", "json"], more].concat(),
        );
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        serde_json::from_slice::<serde_json::Value>(&ended.stdout).unwrap()
    };
    // crc32("sess-1") is 862954847, an odd number.
    let told = explain(&["--session", "sess-1"]);
    assert_eq!(told["outcome"]["send"]["name"], "gpu-2");
    assert_eq!(
        told["outcome"]["send"]["facts"]["home"]["score"],
        862_954_847
    );
    fs::write(
        directory.path().join("body.json"),
        r#"{"model":"m","metadata":{"session_id":"sess-1"}}"#,
    )
    .unwrap();
    let told = explain(&["--body", "body.json"]);
    assert_eq!(
        (&told["source"], &told["model"]),
        (&"body.metadata.session_id".into(), &"m".into())
    );
    assert_eq!(told["outcome"]["send"]["name"], "gpu-2");
    let told = explain(&["--body", "body.json", "-H", "x-session-id: sess-2"]);
    assert_eq!(
        (&told["session"], &told["source"]),
        (&"sess-2".into(), &"header.x-session-id".into())
    );
    let told = explain(&[]);
    assert_eq!(
        (&told["session"], &told["outcome"]["send"]["mode"]),
        (&"-".into(), &"least_conn".into())
    );
}

#[test]
fn explain_says_when_the_body_cannot_be_read() {
    let directory = files(&[("good", GOOD)]);
    let explain = |body: &str| {
        fs::write(directory.path().join("body"), body).unwrap();
        run(
            directory.path(),
            &["route", "explain", "good", "--body", "body"],
        )
    };
    let broken = explain(r#"{"user":"bob","model":"#);
    assert_eq!(broken.status.code(), Some(0));
    assert!(
        text(&broken.stderr).contains("the body is not JSON"),
        "{}",
        text(&broken.stderr)
    );
    let sound = explain(r#"{"user":"bob"}"#);
    assert_eq!((sound.status.code(), text(&sound.stderr)), (Some(0), ""));
}

#[test]
fn a_new_route_passes_its_check() {
    let directory = files(&[]);
    let made = run(
        directory.path(),
        &["route", "new", "chat", "--peer", "10.0.0.11:8000"],
    );
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let checked = run(directory.path(), &["route", "check", "--strict"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    let again = run(directory.path(), &["route", "new", "chat"]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn keys_work_without_a_terminal_and_without_a_main_file() {
    let directory = files(&[]);
    let keys = |arguments: &[&str]| run(directory.path(), &[&["keys"], arguments].concat());
    fs::write(
        directory.path().join("router.yaml"),
        "keys: {file: secret/keys}\n",
    )
    .unwrap();
    let nowhere = keys(&["add", "alice"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        text(&nowhere.stderr).contains("secret"),
        "{}",
        text(&nowhere.stderr)
    );
    fs::create_dir(directory.path().join("secret")).unwrap();
    let added = keys(&["add", "alice"]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    assert!(directory.path().join("secret/keys").is_file());
    assert_eq!(text(&added.stdout).lines().count(), 1);
    let quiet = keys(&["add", "alice", "--quiet"]);
    assert_eq!(text(&quiet.stderr), "");
    let revoked = keys(&["revoke", "alice"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", text(&revoked.stderr));
    assert!(text(&revoked.stderr).contains("keep the last keys they loaded"));
    let empty = keys(&["check"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        text(&empty.stdout).contains("error[empty]"),
        "{}",
        text(&empty.stdout)
    );
    let none = keys(&["check", "--file", "nothing"]);
    assert_eq!(none.status.code(), Some(1));
    let strict = keys(&["add", "bob", "--file", "new"]);
    assert_eq!(strict.status.code(), Some(0));
    assert_eq!(
        keys(&["check", "--strict", "--file", "new"]).status.code(),
        Some(0)
    );
}

#[test]
fn a_locale_without_utf8_gets_ascii_and_programs_get_what_is() {
    let directory = files(&[("good", GOOD)]);
    let explain = |more: &[&str], locale: &str| {
        let base = ["route", "explain", "good", "--model", "m\u{fc}ller"];
        let mut command = llmctl(directory.path(), &[&base[..], more].concat());
        command.env("LC_ALL", locale).output().unwrap().stdout
    };
    let plain = explain(&[], "C");
    assert!(
        plain.is_ascii() && text(&plain).contains("m\\u{fc}ller"),
        "{}",
        text(&plain)
    );
    for (more, locale) in [(&[][..], "C.UTF-8"), (&["--output", "json"], "C")] {
        assert!(text(&explain(more, locale)).contains("m\u{fc}ller"));
    }
}

#[test]
fn unwise_settings_are_warned_of_with_their_code() {
    let unwise = format!("{GOOD}wait_max: 5\n");
    let directory = files(&[("good", &unwise)]);
    let check = |more: &[&str]| run(directory.path(), &[&["route", "check"], more].concat());
    let human = check(&[]);
    assert_eq!(human.status.code(), Some(0));
    assert!(
        text(&human.stdout).contains("warning[unused-option]"),
        "{}",
        text(&human.stdout)
    );
    assert_eq!(check(&["--strict"]).status.code(), Some(1));
    let github = check(&["--output", "github"]);
    let line =
        "::warning file=routes/good.yaml,line=2,col=11,title=unused-option::wait_max: does nothing";
    assert!(
        text(&github.stdout).contains(line),
        "{}",
        text(&github.stdout)
    );
    let told = check(&["--output", "json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["problems"][0]["code"], "unused-option");
}

#[test]
fn every_shell_gets_its_script_and_every_command_its_page() {
    let directory = files(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(directory.path(), &["completions", shell]);
        assert_eq!(script.status.code(), Some(0), "{shell}");
        assert!(text(&script.stdout).contains("llmctl"), "{shell}");
    }
    let page = run(directory.path(), &["man"]);
    assert!(
        text(&page.stdout).contains(".TH llmctl"),
        "{}",
        text(&page.stdout)
    );
    let all = run(directory.path(), &["man", "--dir", "man1"]);
    assert_eq!(all.status.code(), Some(0));
    assert!(directory.path().join("man1/llmctl-keys-rotate.1").is_file());
}

/// A document with a word for each value: what programs rely on is which keys there are.
fn shape(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::Object(keys) => keys
            .iter()
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect(),
    }
}

#[test]
fn the_json_of_every_command_that_asks_no_router_keeps_its_shape() {
    let unwise = format!("{GOOD}wait_max: 5\n");
    let directory = files(&[("good", &unwise)]);
    fs::write(directory.path().join("router.yaml"), "keys: {file: keys}\n").unwrap();
    for (name, arguments) in [
        ("keys_add", &["keys", "add", "alice"][..]),
        ("keys_rotate", &["keys", "rotate", "alice", "--hashed"]),
        ("keys_list", &["keys", "list"]),
        ("keys_check", &["keys", "check"]),
        ("keys_revoke", &["keys", "revoke", "alice", "--old"]),
        ("route_check", &["route", "check"]),
        ("route_list", &["route", "list"]),
        (
            "route_explain",
            &["route", "explain", "good", "--session", "s"],
        ),
        (
            "route_new",
            &["route", "new", "other", "--peer", "10.0.0.1:1"],
        ),
        ("route_new_print", &["route", "new", "more", "--print"]),
        ("completions", &["completions", "fish"]),
        ("man", &["man"]),
        ("man_dir", &["man", "--dir", "man1"]),
    ] {
        let told = run(
            directory.path(),
            &[arguments, &["--output", "json"]].concat(),
        );
        assert_eq!(
            told.status.code(),
            Some(0),
            "{name}: {}",
            text(&told.stderr)
        );
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let told = serde_json::to_string_pretty(&shape(&told)).unwrap();
        insta::assert_snapshot!(format!("json_{name}"), told);
    }
}
