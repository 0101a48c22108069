//! The `tollgate` command. Everything it does stands in [`tollgate::cli`].

fn main() -> std::process::ExitCode {
    tollgate::cli::main()
}
