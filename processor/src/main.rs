//! The program `oncely`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: oncely::MiMalloc = oncely::MiMalloc;

fn main() -> ExitCode {
    oncely::cli::main(std::env::args_os())
}
