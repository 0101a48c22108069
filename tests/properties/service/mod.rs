//! The whole service against the gate's model: random calls over HTTP on real servers, while Redis is killed or
//! emptied, Postgres cut off, and service and writer killed, each at random moments. One number decides everything that
//! is random. Short in every run of the tests; long by `make behaviour`. `TOLLGATE_BEHAVIOUR_SEED` repeats the sequence
//! of a number.

mod account;
mod books;
mod sequence;
mod tenant;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;

use account::Account;
use sequence::{Sequence, Stretch};
use tenant::{Journal, Tenant};
use world::World;

use crate::support::model::Answer;
use crate::support::process::from_environment;

/// The gate's due buckets, as configured.
const BUCKET_MS: i64 = 1000;
/// How much further the clock moves after a fault: holds that a sweep met while the gate had forgotten their tenant
/// come up again by then.
const SETTLE_MS: i64 = 10_000;
/// How many sequences one world sees.
const SEQUENCES_OF_A_WORLD: u64 = 8;

/// Prints how to repeat a sequence that fails, and its steps.
struct ToldOnFailure(u64, Journal);

impl Drop for ToldOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TOLLGATE_BEHAVIOUR_SEED={}\n{:#?}\n{}", self.0, Sequence::of(self.0), self.1.told());
        }
    }
}

async fn run(world: &mut World, seed: u64) {
    let journal = Journal::begin();
    let _told = ToldOnFailure(seed, journal.clone());
    let sequence = Sequence::of(seed);
    let mut tenants = world.prepare(&sequence, &journal).await;
    for stretch in &sequence.stretches {
        tenants = work(world, tenants, stretch, &journal).await;
        let moving = world.move_clock(stretch.pass_ms);
        tokio::join!(moving, world.strike(&stretch.strikes_at_the_end, &journal));
        settle(world, &mut tenants).await;
    }
    books::hold(world, &tenants).await;
}

/// Every tenant does its steps while the faults strike.
async fn work(world: &mut World, tenants: Vec<Tenant>, stretch: &Stretch, journal: &Journal) -> Vec<Tenant> {
    let stretch = Arc::new(stretch.clone());
    let working: Vec<_> = tenants
        .into_iter()
        .zip(stretch.steps.clone())
        .map(|(tenant, steps)| tokio::spawn(tenant.work(steps, stretch.clone())))
        .collect();
    world.strike(&stretch.strikes, journal).await;
    let mut tenants = Vec::new();
    for working in working {
        tenants.push(working.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic())));
    }
    world.app.drained().await;
    tenants
}

/// What is due expires, and every read is as it must be.
async fn settle(world: &World, tenants: &mut [Tenant]) {
    for tenant in &*tenants {
        tenant.warm().await;
    }
    world.move_clock(SETTLE_MS).await;
    for tenant in tenants {
        tenant.expire().await;
        tenant.check_reads().await;
    }
    world.app.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_behaves_like_the_model_whatever_is_killed_meanwhile() {
    let cases = from_environment("TOLLGATE_BEHAVIOUR_CASES").unwrap_or(1);
    let first = from_environment("TOLLGATE_BEHAVIOUR_SEED").unwrap_or_else(|| rand::rng().next_u64() >> 1);
    eprintln!("TOLLGATE_BEHAVIOUR_SEED={first}, {cases} sequences");
    let mut world = World::begin().await;
    for seed in (0..cases).map(|case| first.wrapping_add(case)) {
        if world.sequences == SEQUENCES_OF_A_WORLD {
            world.end().await;
            world = World::begin().await;
        }
        run(&mut world, seed).await;
    }
    world.end().await;
}

/// How many sequences are looked at for what they reach.
const LOOKED_AT: u64 = 200;

/// What the model answers to each call of a sequence, and which faults strike in it.
fn reached(sequence: &Sequence) -> Vec<String> {
    let mut reached = Vec::new();
    for (at, plan) in sequence.plans.iter().enumerate() {
        let meters = ["in", "out"].map(str::to_owned);
        let mut account = Account::new("tenant".to_owned(), meters, sequence, plan);
        let mut now_ms = 0;
        for stretch in &sequence.stretches {
            for step in &stretch.steps[at] {
                let Some(request) = account.request(&step.call, step.from_ledger) else { continue };
                let answer = request.on(&mut account.model, now_ms);
                reached.push(sort_of(&answer));
            }
            now_ms += stretch.pass_ms + SETTLE_MS;
            reached.extend(account.model.sweep(now_ms).iter().map(|_| "expired".to_owned()));
        }
    }
    for stretch in &sequence.stretches {
        let care = if stretch.is_careful { "careful" } else { "careless" };
        reached.extend(stretch.strikes.iter().map(|strike| format!("{care} {:?}", strike.fault)));
        reached
            .extend(stretch.strikes_at_the_end.iter().map(|strike| format!("at the end {:?}", strike.fault)));
    }
    reached
}

/// What sort of answer it is, without its figures.
fn sort_of(answer: &Answer) -> String {
    match answer {
        Answer::Done(state, lines, _, late) => {
            format!("{state} late={late} capped={}", lines.iter().any(|line| line.uncharged.get() > 0))
        }
        other => format!("{other:?}").split('(').next().unwrap().to_owned(),
    }
}

#[test]
fn the_sequences_of_the_service_reach_every_sort_of_answer_and_every_fault() {
    let mut counts = BTreeMap::<String, u32>::new();
    for what in (0..LOOKED_AT).flat_map(|seed| reached(&Sequence::of(seed))) {
        *counts.entry(what).or_default() += 1;
    }
    let done = ["reserved", "consumed"].map(|state| format!("{state} late=false capped=false"));
    let capped = ["reserved late=false", "consumed late=false", "consumed late=true"];
    let capped = capped.map(|done| format!("{done} capped=true"));
    let rest = [
        "consumed late=true capped=false",
        "released late=false capped=false",
        "expired",
        "Replayed",
        "Refused",
    ];
    let refusals = ["KeyReused", "AlreadyResolved", "Expired", "AmountDecreased", "ExcessRejected"];
    let of_redis = ["RedisKilled", "RedisEmptied"].map(|fault| format!("careful {fault}"));
    let points = ["AfterRead", "BeforeCommit", "AfterCommit", "AfterPublish", "AfterTrim"];
    let faults = points.map(|point| format!("WriterKilled({point})"));
    let faults = faults.into_iter().chain(["PostgresCut", "ServiceKilled"].map(str::to_owned));
    let at_any_time =
        faults.flat_map(|fault| ["careful", "careless", "at the end"].map(|when| format!("{when} {fault}")));
    let named = rest.into_iter().chain(refusals).map(str::to_owned);
    for what in done.into_iter().chain(capped).chain(named).chain(of_redis).chain(at_any_time) {
        assert!(counts.get(&what).is_some_and(|count| *count >= 5), "{what} is too rare: {counts:#?}");
    }
}
