//! The binary: runs the command line, and prints the error if it failed.

use std::io::Write;
use std::process::ExitCode;

use tidings::cli;

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // If standard error is closed, only the exit code reports the failure.
            let _ = std::io::stderr().write_all(cli::explain_failure(&failure).as_bytes());
            cli::exit_of_failure(&failure).into()
        }
    }
}
