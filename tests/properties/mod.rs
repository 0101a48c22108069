//! Random sequences of calls, on the real thing and on a model of it.

mod bills;
pub(crate) mod gate;
mod give_backs;
mod rating;
mod service;
mod year;

use crate::support::process::from_environment;

/// How many cases a run tries: all of them by `make behaviour`, which says how many it wants, and a quarter of them in
/// an ordinary run.
fn sized(cases: u32) -> u32 {
    if from_environment("TOLLGATE_BEHAVIOUR_CASES").is_some() { cases } else { cases / 4 }
}
