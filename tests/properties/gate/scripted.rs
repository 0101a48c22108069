//! Behaviours written call by call, each shown by the model and by the gate for every algorithm.

use super::*;

/// A behaviour written once: the model must show it, and the real gate must show it alike, whatever algorithm counts.
/// Meter `in` has room for 10. After a loss of memory only those go on that the ledger can tell.
fn both_behave(script: &[(Step, &str)]) {
    both_behave_by(rows(), script);
}

/// The same where what is used stays counted.
fn both_behave_where_use_counts(script: &[(Step, &str)]) {
    both_behave_by(rows().into_iter().filter(Row::counts_use), script);
}

fn both_behave_by(rows: impl IntoIterator<Item = Row>, script: &[(Step, &str)]) {
    let loses_memory = script.iter().any(|(step, _)| matches!(step, Step::LoseMemory));
    let rows = rows.into_iter().filter(|row| !loses_memory || row.lasting.window().is_some());
    for Row { name, lasting, .. } in rows {
        let rule = Rule { on_excess: OnExcess::Record, on_late: OnLate::Charge, late_within_ms: 60_000 };
        let counter = |capacity, weights: [i64; 2]| Counter::new(lasting, capacity, weights.to_vec());
        let counters = vec![counter(10, [1, 0]), counter(100, [0, 1])];
        let (mut model, mut now_ms) = (Model::new(vec![rule; 2], counters.clone(), BUCKET_MS), START_MS);
        for (number, (step, expected)) in script.iter().enumerate() {
            let answer = on_model(&mut model, now_ms, step);
            assert!(sort_of(&answer).starts_with(expected), "{name}, step {number}, {step:?}: {answer:?}");
            if let Step::Pass { ms } = step {
                now_ms += ms;
            }
        }
        let steps = script.iter().map(|(step, _)| step.clone()).collect();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(behave_alike(Server::own(), vec![rule; 2], counters, steps));
    }
}

fn hold(id: u8, amount: i64) -> Step {
    Step::Reserve { id, meaning: 0, mode: Mode::All, amounts: [amount, 1], ttl_ms: 500 }
}

fn total(id: u8, amount: i64, is_final: bool) -> Step {
    Step::Consume { id, totals: Some([amount, 1]), is_final }
}

#[test]
fn a_released_hold_makes_room_and_a_refused_one_leaves_no_trace() {
    both_behave_by(
        rows().into_iter().filter(Row::gives_back),
        &[
            (hold(1, 6), "reserved"),
            (hold(2, 6), "Refused"),
            (Step::Release { id: 1, incurred: None }, "released"),
            (hold(2, 6), "reserved"),
            (Step::Release { id: 1, incurred: None }, "Replayed"),
            (hold(3, 5), "Refused"),
        ],
    );
}

#[test]
fn a_slot_in_a_queue_passes_unused_where_it_is_given_up() {
    both_behave_by(
        rows().into_iter().filter(|row| !row.gives_back()),
        &[
            (hold(1, 6), "reserved"),
            (Step::Release { id: 1, incurred: None }, "released"),
            (hold(2, 5), "Refused"),
            (hold(2, 4), "reserved"),
            (total(2, 6, true), "consumed late=false"),
            (hold(3, 1), "Refused"),
        ],
    );
}

#[test]
fn totals_only_rise_and_a_reservation_resolves_once() {
    both_behave_where_use_counts(&[
        (hold(1, 6), "reserved"),
        (total(1, 4, false), "reserved"),
        (total(1, 4, false), "Replayed"),
        (total(1, 3, false), "AmountDecreased"),
        (total(1, 8, true), "consumed late=false"),
        (total(1, 8, true), "Replayed"),
        (total(1, 9, true), "AlreadyResolved"),
        (Step::Release { id: 1, incurred: None }, "AlreadyResolved"),
        (hold(2, 3), "Refused"),
    ]);
}

#[test]
fn an_expired_hold_makes_room_and_is_charged_late_once() {
    both_behave_where_use_counts(&[
        (hold(1, 6), "reserved"),
        (Step::Pass { ms: 5_000 }, "Nothing"),
        (Step::Sweep, "Swept"),
        (Step::Extend { id: 1, ttl_ms: 1_000 }, "Expired"),
        (hold(2, 4), "reserved"),
        (Step::Consume { id: 1, totals: None, is_final: true }, "consumed late=true"),
        (Step::Consume { id: 1, totals: None, is_final: true }, "Replayed"),
        (hold(3, 1), "Refused"),
    ]);
}

#[test]
fn a_late_part_is_remembered_and_takes_larger_totals_until_a_final_one() {
    both_behave(&[
        (hold(1, 6), "reserved"),
        (Step::Pass { ms: 5_000 }, "Nothing"),
        (Step::Sweep, "Swept"),
        (total(1, 4, false), "expired late=true"),
        (total(1, 4, false), "Replayed"),
        (Step::LoseMemory, "Nothing"),
        (total(1, 4, false), "Replayed"),
        (total(1, 3, false), "AmountDecreased"),
        (Step::Release { id: 1, incurred: None }, "Expired"),
        (total(1, 5, false), "expired late=true"),
        (hold(2, 6), "Refused"),
        (total(1, 8, true), "consumed late=true"),
        (total(1, 8, true), "Replayed"),
        (total(1, 9, false), "AlreadyResolved"),
    ]);
}

#[test]
fn what_runs_at_once_is_held_whole_until_it_ends_and_its_use_counts_nothing() {
    let at_once = rows().into_iter().filter(|row| !row.counts_use());
    both_behave_by(
        at_once,
        &[
            (hold(1, 10), "reserved"),
            (total(1, 9, false), "reserved"),
            (hold(2, 1), "Refused"),
            (
                Step::Reserve { id: 3, meaning: 0, mode: Mode::Usage, amounts: [30, 1], ttl_ms: 500 },
                "consumed",
            ),
            (total(1, 20, true), "consumed late=false"),
            (hold(4, 10), "reserved"),
            (Step::Pass { ms: 5_000 }, "Nothing"),
            (Step::Sweep, "Swept"),
            (hold(5, 10), "reserved"),
            (total(4, 10, true), "consumed late=true"),
            (hold(6, 1), "Refused"),
            (Step::Release { id: 5, incurred: None }, "released"),
            (hold(6, 1), "reserved"),
        ],
    );
}

#[test]
fn a_release_with_another_part_incurred_is_another_release() {
    let release = |amount: i64| Step::Release { id: 1, incurred: Some([amount, 0]) };
    both_behave(&[
        (hold(1, 6), "reserved"),
        (Step::Release { id: 1, incurred: None }, "released"),
        (release(0), "Replayed"),
        (release(2), "AlreadyResolved"),
        (Step::Release { id: 1, incurred: None }, "Replayed"),
    ]);
}

#[test]
fn a_key_with_another_meaning_is_refused_and_lost_memory_changes_nothing() {
    let other = Step::Reserve { id: 1, meaning: 1, mode: Mode::All, amounts: [6, 1], ttl_ms: 500 };
    both_behave(&[
        (hold(1, 6), "reserved"),
        (hold(1, 6), "Replayed"),
        (other, "KeyReused"),
        (Step::LoseMemory, "Nothing"),
        (hold(1, 6), "Replayed"),
        (hold(2, 6), "Refused"),
        (total(1, 6, true), "consumed late=false"),
        (Step::LoseMemory, "Nothing"),
        (total(1, 6, true), "Replayed"),
        (hold(2, 5), "Refused"),
        (hold(3, 4), "reserved"),
    ]);
}

#[test]
fn one_call_is_admitted_in_each_length_of_time_whatever_became_of_it_and_however_much_it_asked_for() {
    both_behave_by(
        [interval()],
        &[
            (hold(1, 30), "reserved"),
            (hold(2, 1), "Refused"),
            (hold(1, 30), "Replayed"),
            (total(1, 40, false), "reserved"),
            (Step::Release { id: 1, incurred: None }, "released"),
            (hold(2, 1), "Refused"),
            (Step::Pass { ms: 59_999 }, "Nothing"),
            (hold(2, 1), "Refused"),
            (Step::Pass { ms: 1 }, "Nothing"),
            (
                Step::Reserve { id: 2, meaning: 0, mode: Mode::Usage, amounts: [9, 1], ttl_ms: 500 },
                "consumed",
            ),
            (Step::Reserve { id: 3, meaning: 0, mode: Mode::Best, amounts: [9, 1], ttl_ms: 500 }, "Refused"),
        ],
    );
}
