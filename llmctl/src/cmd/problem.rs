//! A problem that a running router found in one of its files. The text of the file is on the
//! router's machine, so the report has a location and no excerpt.

use proto::admin::Problem;

use crate::render::{Paint, Screen, tame};

/// Prints a problem as `route check` does. Names the router when the command asked several.
pub(super) fn excerpt(problem: &Problem, router: Option<&str>, screen: &mut Screen) {
    let paint = if problem.severity == "warning" {
        Paint::Yellow
    } else {
        Paint::Red
    };
    let code = problem.code.as_deref();
    let code = code.map_or(String::new(), |code| format!("[{}]", tame(code)));
    let level = screen.paint(paint, &format!("{}{code}", tame(&problem.severity)));
    screen.line(&format!("{level}: {}", tame(&problem.message)));
    let whose = router.map_or(String::new(), |router| format!(" on {router}"));
    screen.line(&format!(" --> {}{whose}", place(problem)));
}

/// The location, for example `routes/chat.yaml:3:5`.
pub(super) fn place(problem: &Problem) -> String {
    format!(
        "{}:{}:{}",
        tame(&problem.file),
        problem.line,
        problem.column
    )
}
