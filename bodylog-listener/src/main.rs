//! The `bodylog-listener` program. All code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bodylog_listener::cli::main()
}
