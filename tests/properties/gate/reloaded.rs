//! Every algorithm after its scripts were loaded again: they were flushed, or the server ended and started again.

use std::time::Duration;

use tollgate::gate::{CheckAsk, CheckOutcome, GateError};

use super::algorithms::checked_rows;
use super::*;
use crate::support::matching::assert_matches;
use crate::support::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(30);

/// How the scripts were lost.
#[derive(Debug, Clone, Copy)]
enum Lost {
    ByFlush,
    ByRestart,
}

/// Loses the scripts; nothing runs until they are loaded again.
async fn load_again(world: &mut World, lost: Lost) {
    match lost {
        Lost::ByFlush => drop(world.server.command(&["SCRIPT", "FLUSH", "SYNC"])),
        Lost::ByRestart => Arc::get_mut(&mut world.server).unwrap().restart(),
    }
    let run_id = wait_for("the gate meets it", PATIENCE, async || world.gate.meet().await.ok()).await;
    let early = world.try_reserve(&pages("early", 1)).await;
    assert_matches!(early, Err(GateError::Alarm { .. }));
    world.gate.load_scripts(&run_id).await.unwrap();
}

#[rstest::rstest]
#[tokio::test]
async fn every_algorithm_goes_on_after_its_scripts_were_loaded_again(
    #[values(Lost::ByFlush, Lost::ByRestart)] lost: Lost,
    #[values(false, true)] is_light: bool,
) {
    let all: Vec<Row> = all_rows();
    // The least time between calls refuses the second call, whatever else counts it.
    let is_alone = |row: &Row| matches!(row.lasting, Parameters::Interval(_));
    let (alone, together): (Vec<_>, Vec<_>) = all.into_iter().partition(is_alone);
    let rule = Rule { on_excess: OnExcess::Record, on_late: OnLate::Charge, late_within_ms: 60_000 };
    let hold =
        |id, amount| Step::Reserve { id, meaning: 0, mode: Mode::All, amounts: [amount, 1], ttl_ms: 500 };
    let before = [hold(1, 6), hold(2, 5), hold(3, 12)];
    let after = [
        hold(1, 6),
        Step::Consume { id: 1, totals: Some([4, 1]), is_final: true },
        Step::Release { id: 2, incurred: None },
        hold(4, 9),
        hold(5, 12),
        Step::Extend { id: 4, ttl_ms: 900 },
    ];
    for (rows, admits_more) in [(together, true), (alone, false)] {
        let other = Counter::new(in_window(WINDOW.0, WINDOW.1), 1_000, vec![0, 1]);
        let of_row = |row: Row| Counter::new(row.lasting, 20, vec![1, 0]);
        let counters: Vec<_> = rows.into_iter().map(of_row).chain([other]).collect();
        let mut subject = Subject::new(Server::own(), is_light, vec![rule; 2], &counters).await;
        let mut model = Model::new(vec![rule; 2], counters, if is_light { 1 } else { BUCKET_MS });
        step_alike(&mut subject, &mut model, &before).await;
        load_again(&mut subject.world, lost).await;
        step_alike(&mut subject, &mut model, &after).await;
        assert_eq!((model.hold(4).is_some(), model.hold(5).is_some()), (admits_more, false));
    }
}

/// Whether a check of so much is refused.
async fn is_refused(
    world: &World,
    counter: &tollgate::domain::counter::Counter,
    amount: i64,
    peeks: bool,
) -> bool {
    let amounts = [units(amount)];
    let ask = CheckAsk {
        tenant: Some(&world.tenant),
        subjects: &[],
        amounts: &amounts,
        counters: std::slice::from_ref(counter),
        valid: WINDOW,
        needed_until_ms: WINDOW.1,
        peeks,
    };
    match world.gate.check(world.partition, &[ask], false, Some(START_MS)).await.unwrap() {
        CheckOutcome::Decided { checks, .. } => !checks[0].refusing.is_empty(),
        stale @ CheckOutcome::StaleWindow { .. } => panic!("{stale:?}"),
    }
}

#[rstest::rstest]
#[tokio::test]
async fn checks_by_every_algorithm_go_on_after_their_scripts_were_loaded_again(
    #[values(Lost::ByFlush, Lost::ByRestart)] lost: Lost,
) {
    let mut world = World::over(Server::own()).await;
    let counter = |(at, row): (usize, Row)| {
        let counter =
            tollgate::domain::counter::Counter { parameters: row.lasting, ..limit(&name_of(at), 10) };
        (row, counter)
    };
    let all: Vec<_> = checked_rows().chain([interval()]).enumerate().map(counter).collect();
    for (row, counter) in &all {
        assert!(!is_refused(&world, counter, 6, false).await, "{}", row.name);
    }
    load_again(&mut world, lost).await;
    for (row, counter) in &all {
        let counts_units = row.counts_use();
        assert!(is_refused(&world, counter, 5, true).await, "{}: a look", row.name);
        assert!(is_refused(&world, counter, 5, false).await, "{}", row.name);
        assert_eq!(is_refused(&world, counter, 4, true).await, !counts_units, "{}: a look", row.name);
        assert_eq!(is_refused(&world, counter, 4, false).await, !counts_units, "{}", row.name);
    }
}
