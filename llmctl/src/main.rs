//! Entry point of `llmctl`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    llmctl::main()
}
