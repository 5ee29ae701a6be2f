//! Failed starts: each error names the problem and its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use system_tests::tmpfs::Tmpfs;

use super::*;

async fn refused(start: Start, words: &[&str]) {
    let done = start.refused().await;
    assert_eq!(done.code, Some(1), "{done:?}");
    for word in words {
        assert!(done.stderr.contains(word), "no {word:?} in {}", done.stderr);
    }
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_another_one_has_is_refused() {
    let store = directory();
    let _listener = listener(&store).await;
    let _exporter = exporter(&store).await;
    let path = store.path().display().to_string();
    let other = listener_over(store.path()).option("--http-listen", "127.0.0.1:0");
    refused(other, &[&path, "another bodylog-listener"]).await;
    refused(
        exporter_over(store.path()),
        &[&path, "another exporter is running"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_written_is_refused() {
    // Root can write everywhere except on a disk that is mounted read-only.
    let disk = Tmpfs::mount(1).ok();
    let home = directory();
    let store = disk.as_ref().map_or(home.path().join("store"), Tmpfs::path);
    fs::create_dir(&store).unwrap();
    match &disk {
        Some(disk) => disk.set_writable(false),
        None => fs::set_permissions(&store, fs::Permissions::from_mode(0o500)).unwrap(),
    }
    let path = store.display().to_string();
    let start = listener_over(&store).option("--http-listen", "127.0.0.1:0");
    refused(start, &["failed to", &path]).await;
    refused(exporter_over(&store), &["failed to", &path]).await;

    // With its checkpoint elsewhere, the exporter only reads the directory.
    let elsewhere = home.path().join("exporter.checkpoint");
    let exporter = exporter_over(&store).option("--checkpoint", &elsewhere.display());
    Exporter::start(exporter).await.page().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_a_later_version_is_refused_and_left_alone() {
    let store = directory();
    let mut exporter = exporter(&store).await;
    exporter.kill().await;
    let path = store.path().join("exporter.checkpoint");
    let mut bytes = fs::read(&path).unwrap();
    // The format follows the magic number.
    bytes[4..8].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    refused(
        exporter_over(store.path()),
        &[
            "exporter.checkpoint",
            "format 99",
            "run the version that wrote it",
        ],
    )
    .await;
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_ledger_costs_time_and_no_record() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = listener(&store).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let mut asked = ask_many(&router, "before", 20).await;
    settled(&router, asked.len()).await;
    assert_eq!(listener.stop().await.code, Some(0));
    for entry in fs::read_dir(store.path().join("ledger")).unwrap() {
        fs::write(entry.unwrap().path(), b"no ledger at all").unwrap();
    }
    listener.restart().await;
    asked.extend(ask_many(&router, "after", 20).await);
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
}
