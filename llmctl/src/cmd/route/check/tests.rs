use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{CheckArgs, Ended, run};
use crate::render::Format;
use crate::render::testing::capture_async;
use crate::settings::Settings;

const GOOD: &str = "peers: [{address: 10.0.0.11:8000, max_concurrency: 4}]\n";
const WARNED: &str = "peers: [{address: 10.0.0.11:8000}]\nmerge_models: yes\n";
const TYPO: &str = "peers:\n  - {address: 10.0.0.11:8000, max_concurency: 4}\n";

/// Writes a directory with a main file and these routes.
fn files(main: &str, routes: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("router.yaml"), main).unwrap();
    fs::create_dir(directory.path().join("routes")).unwrap();
    for (name, text) in routes {
        fs::write(
            directory.path().join("routes").join(format!("{name}.yaml")),
            text,
        )
        .unwrap();
    }
    directory
}

/// Runs `route check` on paths below `directory`. Returns the output and the result.
async fn check(
    directory: &TempDir,
    paths: &[&str],
    strict: bool,
    format: Format,
) -> (String, Ended) {
    let paths: Vec<PathBuf> = paths
        .iter()
        .map(|path| directory.path().join(path))
        .collect();
    let args = CheckArgs {
        paths,
        strict,
        probe: false,
    };
    let settings = Settings::of_files(Some(directory.path().join("router.yaml")), None);
    let (text, ended) = capture_async(format, async |screen| {
        run(&args, &settings, screen).await.unwrap()
    })
    .await;
    (relative(&text, directory.path()), ended)
}

fn relative(text: &str, base: &Path) -> String {
    text.replace(&format!("{}/", base.display()), "")
}

#[tokio::test]
async fn every_problem_of_every_file_is_shown_with_its_place() {
    let directory = files(
        "keys: {on_missing: maybe}\n",
        &[("a", GOOD), ("b", TYPO), ("c", WARNED)],
    );
    let (text, ended) = check(&directory, &[], false, Format::Human).await;
    assert_eq!(ended, Ended::Wrong);
    insta::assert_snapshot!("report", text);
}

#[tokio::test]
async fn one_file_is_checked_alone() {
    let directory = files("defaults: {default_max: 7}\n", &[("a", GOOD), ("b", TYPO)]);
    let (text, ended) = check(&directory, &["routes/a.yaml"], true, Format::Human).await;
    assert_eq!(ended, Ended::Fine, "{text}");
    let (text, ended) = check(&directory, &["routes/b.yaml"], false, Format::Human).await;
    assert_eq!(ended, Ended::Wrong);
    assert!(
        text.contains("did you mean `max_concurrency`") && !text.contains("a.yaml"),
        "{text}"
    );
}

#[tokio::test]
async fn a_directory_means_its_routes_and_its_main_file() {
    let directory = files("bogus: 1\n", &[("a", GOOD), ("b", TYPO)]);
    let (text, _) = check(&directory, &["."], false, Format::Json).await;
    assert!(text.contains("\"errors\": 2"), "{text}");
    let (text, _) = check(&directory, &["routes"], false, Format::Json).await;
    assert!(text.contains("b.yaml"), "{text}");
}

#[tokio::test]
async fn a_warning_fails_only_when_strict() {
    let directory = files("{}\n", &[("c", WARNED)]);
    assert_eq!(
        check(&directory, &[], false, Format::Human).await.1,
        Ended::Fine
    );
    assert_eq!(
        check(&directory, &[], true, Format::Human).await.1,
        Ended::Wrong
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_an_error() {
    let directory = files("{}\n", &[]);
    let (text, ended) = check(&directory, &["routes/nope.yaml"], false, Format::Human).await;
    assert_eq!(ended, Ended::Wrong);
    assert!(text.contains("nope.yaml"), "{text}");
}

#[tokio::test]
async fn programs_get_places_and_github_gets_annotations() {
    let directory = files("{}\n", &[("b", TYPO)]);
    let (text, _) = check(&directory, &[], false, Format::Json).await;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (
            &report["problems"][0]["line"],
            &report["problems"][0]["column"]
        ),
        (&2.into(), &31.into())
    );
    let (text, _) = check(&directory, &[], false, Format::Github).await;
    assert!(
        text.starts_with("::error file=routes/b.yaml,line=2,col=31::"),
        "{text}"
    );
}
