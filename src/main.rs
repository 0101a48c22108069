//! The `tollgate` command. Everything it does stands in [`tollgate::cli`].

/// A call makes dozens of small, short-lived allocations over several threads: measured a tenth of the service's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tollgate::cli::main()
}
