//! The `router` program; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    router::cli::main()
}
