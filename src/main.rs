//! The binary: runs the command line, tells how it failed if it did, and ends with the exit code
//! that says so.

use std::io::Write;
use std::process::ExitCode;

use tidings::cli;

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // Where standard error is closed, the exit code has to do.
            let _ = std::io::stderr().write_all(cli::explain_failure(&failure).as_bytes());
            cli::of_failure(&failure).into()
        }
    }
}
