//! Asking before something changes for good.

use std::io::{self, BufRead, IsTerminal, Write};

use super::failure::{Exit, Failure};

/// Asks on a terminal; `is_sure` (`--yes`) answers without asking, and without a terminal `--yes` is required.
pub(super) fn confirm(question: &str, is_sure: bool) -> Result<(), Failure> {
    if is_sure {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::new("this changes things and nobody is there to ask")
            .exit(Exit::Usage)
            .remedy("pass --yes if you are sure"));
    }
    eprint!("{question} [y/N] ");
    // If the question cannot be shown, the answer is no.
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::new("stopped, nothing was changed")),
    }
}
