//! An earlier build and this one, each on servers of its own, measured in turn: a machine that is now fast and now slow
//! is so for both.

use std::path::Path;

use super::Options;
use super::calls::{finish, reserve, tenant_of};
use super::figures::{Figure, Figures};
use super::load::{Caller, Load};
use super::over_http::{spread_reserves, warm_up};
use super::service::Service;

/// So many rounds; of each figure the middle one counts.
const ROUNDS: usize = 5;

/// Rows of both builds: their names begin with these.
pub const BEFORE: &str = "build before";
pub const NOW: &str = "this build";

/// Measures both.
pub async fn measure(options: &Options, before: &Path, figures: &mut Figures) {
    let now = Path::new(env!("CARGO_BIN_EXE_tollgate"));
    let mut builds = Vec::new();
    for (name, command) in [(BEFORE, before), (NOW, now)] {
        let service = Service::of_build(command, "http,writer,jobs").await;
        warm_up(&service, options.callers, options.tenants).await;
        builds.push((name, service, Vec::new()));
    }
    for round in 0..ROUNDS {
        for (name, service, rounds) in &mut builds {
            rounds.push(one_round(service, name, options).await);
        }
        eprintln!("round {} of {ROUNDS}", round + 1);
        builds.reverse();
    }
    builds.sort_by_key(|(name, ..)| *name != BEFORE);
    for (_, _, rounds) in builds {
        for figure in middle(rounds) {
            figures.add(figure);
        }
    }
}

async fn one_round(service: &Service, build: &str, options: &Options) -> Vec<Figure> {
    let load = options.load();
    let mut figures =
        vec![spread_reserves(service, &format!("{build}: reserve, 3 limits"), load, options.tenants).await];
    for (name, ack) in [("job", "gate"), ("job, ack: ledger", "ledger")] {
        figures.push(jobs(service, &format!("{build}: {name}"), ack, load, options.tenants).await);
    }
    figures
}

async fn jobs(service: &Service, name: &str, ack: &'static str, load: Load, tenants: usize) -> Figure {
    let work = move |mut caller: Caller, turn| async move {
        let id = reserve(&mut caller, &tenant_of(turn, tenants)).await;
        finish(&mut caller, &id, ack).await;
        caller
    };
    service.measure(name, load, 1, work).await
}

/// Of each figure that the rounds have, the one with the middle rate.
fn middle(rounds: Vec<Vec<Figure>>) -> Vec<Figure> {
    let count = rounds.first().map_or(0, Vec::len);
    let mut figures: Vec<Vec<Figure>> = vec![Vec::new(); count];
    for round in rounds {
        for (all, figure) in figures.iter_mut().zip(round) {
            all.push(figure);
        }
    }
    let middle_of = |mut all: Vec<Figure>| {
        all.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        all.swap_remove(all.len() / 2)
    };
    figures.into_iter().map(middle_of).collect()
}
