//! What must hold for any lines, for the fuzzer and for the tests of `bodylog-exporter`.

use bodylog_exporter::aggregate::State;

/// Each line is counted, as a row or as none, and what was counted comes back from a checkpoint as
/// it was.
pub(super) fn rows(bytes: &[u8]) {
    const NOW_MS: i64 = 1_767_323_045_678;
    let mut state = State::default();
    let mut lines = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        // Good or not is its own affair; it must be one of them.
        let _ = state.line(line, NOW_MS);
        lines += 1;
    }
    assert_eq!(state.own_mut().lines, lines);
    state.settle(NOW_MS, None);
    let _ = state.view();
    let kept = serde_json::to_string(&state).expect("counts have a text form");
    let again: State = serde_json::from_str(&kept).expect("it was written just now");
    assert!(again.is_sound());
    assert_eq!(
        serde_json::to_value(&again).expect("as before"),
        serde_json::to_value(&state).expect("as before")
    );
}
