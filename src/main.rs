//! The binary: passes the arguments to `cli`.

use std::process::ExitCode;

/// Memory allocator for static builds, because the allocator of musl has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: secrets are read soon. If the system refuses, the program continues without it.
    if let Err(error) = ralph_bot::process::harden() {
        anstream::eprintln!(
            "warning: could not protect this process's memory from other processes of this account: {error}"
        );
    }
    ralph_bot::cli::main()
}
