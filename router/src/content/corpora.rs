//! Runs the fuzzers' corpora as tests in every build.

#[path = "../../fuzz/check.rs"]
mod check;

pub(super) fn inspect(bytes: &[u8]) {
    check::inspect(bytes);
}

fn each(target: &str, check: fn(&[u8])) {
    let corpus = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        check(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 8, "{seen} files in {corpus}");
}

#[test]
fn the_scanner_passes_its_check() {
    each("scan", check::scan);
}

#[test]
fn the_walk_over_a_request_passes_its_check() {
    each("inspect", check::inspect);
    each("scan", check::inspect);
}

#[test]
fn the_splicer_passes_its_check() {
    each("splice", check::splice);
}

#[test]
fn the_line_splitter_passes_its_check() {
    each("sse", check::sse);
}

#[test]
fn the_filter_of_usage_passes_its_check() {
    each("usage_filter", check::usage_filter);
}

#[test]
fn the_handlers_of_answers_pass_their_check() {
    each("postprocess", check::postprocess);
}
