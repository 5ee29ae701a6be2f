//! Shared code of the configuration's tests.

use std::path::Path;
use std::time::Duration;

use super::check::{Base, Reader, main_file, route_file};
use super::env::{Env, expand_tree};
use super::lint;
use super::report::Problem;
use super::tree::Node;
use super::valid::{Main, Route};
use super::yaml;

/// Variables that every test may use.
fn env() -> Env {
    Env::fixed([
        ("PORT", "8000"),
        ("EMPTY", ""),
        ("FLAG", "true"),
        ("NUMBER", "7"),
        ("SECRET", "12345"),
    ])
}

/// The base of a route file without a main file.
fn base() -> Base {
    Base {
        defaults: Node::empty(),
        max_body_size: 200 << 20,
        request_timeout: None::<Duration>,
        request_timeout_set: false,
        session_ttl: Duration::from_secs(7200),
    }
}

/// A route file's content and its problems.
pub(super) fn route(text: &str) -> (Route, Vec<Problem>) {
    let mut root = yaml::parse(text).expect("the test's text is YAML");
    let mut reader = Reader::new();
    expand_tree(&mut root, &env(), &mut reader);
    let path = Path::new("routes/test.yaml");
    let file = route_file(&mut reader, path, &root, &base());
    (file.route, reader.finish(path, text))
}

/// The problems and warnings of a route file.
pub(super) fn advised_route(text: &str) -> Vec<Problem> {
    let root = yaml::parse(text).expect("the test's text is YAML");
    let mut reader = Reader::new();
    let path = Path::new("routes/test.yaml");
    let file = route_file(&mut reader, path, &root, &base());
    lint::route(&mut reader, &root, &file.route);
    reader.finish(path, text)
}

/// The problems and warnings of a main file.
pub(super) fn advised_main(text: &str) -> Vec<Problem> {
    let root = yaml::parse(text).expect("the test's text is YAML");
    let mut reader = Reader::new();
    let path = Path::new("router.yaml");
    let file = main_file(&mut reader, Some(path), &root, base().session_ttl);
    lint::process(&mut reader, &root, &file.main);
    reader.finish(path, text)
}

/// The main file's content and its problems.
pub(super) fn main(text: &str) -> (Main, Vec<Problem>) {
    let mut root = yaml::parse(text).expect("the test's text is YAML");
    let mut reader = Reader::new();
    expand_tree(&mut root, &env(), &mut reader);
    let path = Path::new("router.yaml");
    let file = main_file(&mut reader, Some(path), &root, base().session_ttl);
    (file.main, reader.finish(path, text))
}

/// The problems of a peer with an address and `text`.
pub(super) fn peer(text: &str) -> Vec<Problem> {
    route(&format!("peers:\n- address: a:1\n  {text}\n")).1
}

/// `severity key: message` of each problem.
pub(super) fn lines(problems: &[Problem]) -> Vec<String> {
    problems
        .iter()
        .map(|p| format!("{} {}", p.severity.as_str(), p.title()))
        .collect()
}
