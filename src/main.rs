//! The binary: arguments to `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ralph_bot::cli::main()
}
