//! The `bodylog-exporter` program. All code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bodylog_exporter::cli::main()
}
