//! The `tollgate` command. Its code is in [`tollgate::cli`].

/// A call's memory is often freed by another thread than the one that took it, which costs less here than with the
/// system's.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    tollgate::cli::main()
}
