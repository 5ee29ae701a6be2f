use std::fs;

use super::*;
use crate::tail::{Tail, Where};

fn state_of(rows: u64) -> State {
    let mut state = State::default();
    for seq in 1..=rows {
        let line = format!(
            r#"{{"v":2,"pid":"p","epoch":1,"seq":{seq},"route":"chat","backend":"a:1","model":"m","status":200,"rt":0.7,"prompt_tokens":9}}"#
        );
        state.line(line.as_bytes(), 5).unwrap();
    }
    state
}

fn positions() -> Positions {
    Tail::from_start(Where::rows(Path::new("nowhere"))).positions()
}

fn save(store: &Store, rows: u64) {
    let state = state_of(rows);
    let positions = positions();
    store
        .save(&CheckpointRef {
            positions: &positions,
            state: &state,
        })
        .unwrap();
}

fn rows_of(found: Found) -> Option<(u64, &'static str)> {
    let (checkpoint, which) = match found {
        Found::Newest(checkpoint) => (checkpoint, "newest"),
        Found::Older(checkpoint) => (checkpoint, "older"),
        Found::Nothing => return None,
    };
    Some((checkpoint.state.view().own.lines, which))
}

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("exporter.checkpoint")).unwrap();
    Place { dir, store }
}

#[test]
fn what_was_saved_is_found_again() {
    let Place { dir: _dir, store } = place();
    assert_eq!(rows_of(store.load().unwrap()), None);
    save(&store, 3);
    let Found::Newest(checkpoint) = store.load().unwrap() else {
        panic!("saved just now");
    };
    let expected = state_of(3);
    let (found, expected) = (checkpoint.state.view(), expected.view());
    assert_eq!(found.series, expected.series);
    assert_eq!(found.own, expected.own);
    // Earlier counts are still there after a restart.
    let mut state = checkpoint.state;
    state
        .line(br#"{"v":2,"pid":"p","epoch":1,"seq":2,"status":200}"#, 6)
        .unwrap();
    assert_eq!(state.view().own.duplicates, 1);
}

#[test]
fn two_generations_are_kept_and_damage_falls_back() {
    let Place { dir: _dir, store } = place();
    save(&store, 1);
    save(&store, 2);
    assert_eq!(rows_of(store.load().unwrap()), Some((2, "newest")));
    let good = fs::read(store.path()).unwrap();
    // A flipped bit anywhere, and a cut anywhere.
    for at in [0, 9, 17, 25, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(store.path(), &bad).unwrap();
        assert_eq!(
            rows_of(store.load().unwrap()),
            Some((1, "older")),
            "bit in byte {at}"
        );
        fs::write(store.path(), &good[..at]).unwrap();
        assert_eq!(
            rows_of(store.load().unwrap()),
            Some((1, "older")),
            "cut at {at}"
        );
    }
    // Between the two renames of a save only the previous checkpoint exists.
    assert!(!store.path().exists());
    assert_eq!(rows_of(store.load().unwrap()), Some((1, "older")));
}

#[test]
fn damage_of_both_is_put_aside_not_deleted() {
    let Place { dir, store } = place();
    save(&store, 1);
    save(&store, 2);
    for name in ["exporter.checkpoint", "exporter.checkpoint.old"] {
        fs::write(dir.path().join(name), "nonsense").unwrap();
    }
    assert_eq!(rows_of(store.load().unwrap()), None);
    for name in [
        "exporter.checkpoint.damaged",
        "exporter.checkpoint.old.damaged",
    ] {
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"nonsense");
    }
}

#[test]
fn a_checkpoint_of_a_later_version_is_refused_by_its_number() {
    let Place { dir: _dir, store } = place();
    save(&store, 1);
    save(&store, 2);
    let mut later = fs::read(store.path()).unwrap();
    later[7] = 9;
    fs::write(store.path(), &later).unwrap();
    let error = store.load().unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found: 9, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("format 9"), "{error}");
}

#[test]
fn a_second_exporter_is_refused() {
    let Place { dir, store } = place();
    let path = dir.path().join("exporter.checkpoint");
    let error = Store::open(path.clone()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(store);
    Store::open(path).unwrap();
}

#[test]
fn a_save_that_fails_leaves_the_one_before() {
    let Place { dir, store } = place();
    save(&store, 1);
    // A directory has the name of the temporary file.
    fs::create_dir(dir.path().join("exporter.checkpoint.tmp")).unwrap();
    let state = state_of(2);
    let positions = positions();
    let checkpoint = CheckpointRef {
        positions: &positions,
        state: &state,
    };
    assert!(store.save(&checkpoint).is_err());
    assert_eq!(rows_of(store.load().unwrap()), Some((1, "newest")));
}

#[test]
fn twenty_thousand_series_fit_in_five_megabytes() {
    let mut state = State::default();
    // 40 routes with 12 backends each; the lines make some 44 exposed series per combination.
    for seq in 0..40 * 12 * 24_u64 {
        let (route, backend) = (seq % 40, seq / 40 % 12);
        let (prompt, seconds) = (1 << (seq % 20), 0.01 * (seq % 977) as f64 + 0.3);
        let line = format!(
            r#"{{"v":2,"pid":"p","epoch":1,"seq":{seq},"route":"r{route}","backend":"10.0.{route}.{backend}:8000","model":"m","status":200,"stream":true,"rt":{seconds},"frt":0.2,"lct":{seconds},"prompt_tokens":{prompt},"completion_tokens":50}}"#
        );
        state.line(line.as_bytes(), 5).unwrap();
    }
    let positions = positions();
    let bytes = format::encode(&CheckpointRef {
        positions: &positions,
        state: &state,
    })
    .unwrap();
    assert_eq!(state.view().series.len(), 480);
    assert!(bytes.len() < 5 * 1024 * 1024, "{}", bytes.len());
}
