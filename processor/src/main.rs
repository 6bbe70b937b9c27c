//! The program `oncely`.

use std::process::ExitCode;

fn main() -> ExitCode {
    oncely::cli::main(std::env::args_os())
}
