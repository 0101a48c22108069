//! Refused by the last of many limits after all the others have turned and slid: nothing of anything changes, in
//! whatever mode, whomever the limits count and wherever they are kept; and no key ends at another time.

use std::collections::BTreeMap;
use std::sync::Arc;

use rstest::rstest;
use tollgate::domain::algorithms::Parameters;
use tollgate::domain::counter::Counter;
use tollgate::domain::ids::Subject;
use tollgate::domain::limit::Kind;
use tollgate::gate::{
    CheckAsk, CheckOutcome, CheckedCounters, ReserveCall, ReserveMode, ReserveOutcome, Totals, WarmState,
};

use super::check::look;
use super::duplicates::work;
use super::expiry::{CENTURY, redis_ms};
use super::together::dump;
use crate::gate::server::Server;
use crate::gate::world::*;
use crate::properties::gate::algorithms::{Row, all_rows, anomaly, checked_rows, interval, rows};

/// When the windows, the rings and the logs that turn have left behind what was counted at the start.
const LATER_MS: i64 = START_MS + 30_000;
const AMOUNT: i64 = 3;
const HOUR_MS: i64 = 3_600_000;

/// Two limits of each row, the tenant's and a subject's: of thirteen one is in shadow and refuses, and one is soft and
/// exceeded.
fn others(rows: impl IntoIterator<Item = Row>, of_row: fn(&Row) -> Parameters) -> Vec<Counter> {
    let of_both = rows.into_iter().flat_map(|row| [(0, of_row(&row)), (1, of_row(&row))]);
    let limit_of = |(number, (scope_index, parameters)): (usize, (u8, Parameters))| {
        let name: [u8; 8] = format!("limit-{number:02}").into_bytes().try_into().unwrap();
        let (kind, capacity) = match number % 13 {
            4 => (Kind::Shadow, 1),
            7 => (Kind::Soft, 1),
            _ => (Kind::Hard, 1_000),
        };
        Counter { scope_index, kind, parameters, ..limit(&name, capacity) }
    };
    of_both.enumerate().map(limit_of).collect()
}

/// Of these limits as many as one call may have beside the last: in two halves, each in an order of its own.
fn halves(mut others: Vec<Counter>, number: usize) -> [Vec<Counter>; 2] {
    let half = others.len() / 2;
    others.rotate_left(number * 5 % half);
    let second = others.split_off(half);
    [others, second]
}

/// The same; under a booked reservation every third is a light counter.
fn some_light(mut others: Vec<Counter>, is_booked: bool) -> Vec<Counter> {
    for counter in others.iter_mut().step_by(3) {
        counter.is_light = is_booked;
    }
    others
}

/// The limit that refuses, which is full once it has counted the amount.
fn last(parameters: Parameters) -> Counter {
    Counter { parameters, ..limit(b"last----", parameters.need(AMOUNT, false)) }
}

/// What was counted at the start, some of it used, some given back, and lately all that the last limit has room for.
async fn have_counted(world: &World, others: &[Counter], last: &Counter) {
    let under_others = |key: &str| pages(key, AMOUNT).of(&user("ada")).under(others.to_vec());
    world.hold(&under_others("used")).await;
    done(world.consume_at(START_MS + 400, "used", total("1"), false).await);
    world.hold(&under_others("given back").at(START_MS + 2_500)).await;
    done(world.release_at(START_MS + 2_600, "given back", Totals::Default).await);
    let filling = pages("filling", AMOUNT).of(&user("ada")).under([last.clone()]);
    world.hold(&filling.at(LATER_MS - 500)).await;
}

/// An ask of guarded work is refused by the last limit alone.
async fn assert_refused(world: &World, ask: &Ask, by_redis_until_ms: Option<i64>) {
    let body = world.body(ask);
    let payload = work(world, "scan", &ask.subjects, "payload");
    let call = ReserveCall { work: Some(&payload), ..world.reserve_call(ask, &body) };
    let call = match by_redis_until_ms {
        Some(subject_windows_end_ms) => ReserveCall { subject_windows_end_ms, now_ms: None, ..call },
        None => call,
    };
    let outcome = world.gate.reserve(&call).await.unwrap();
    assert_eq!(refusing(outcome), [ask.checks.len() - 1], "{ask:?}");
}

fn modes(last: &Counter) -> impl Iterator<Item = ReserveMode> + use<> {
    let (held, used) =
        ([ReserveMode::AllOrNothing, ReserveMode::BestEffort, ReserveMode::DryRun], [ReserveMode::Usage]);
    // A usage never runs, so that what counts what runs does not refuse it.
    let is_used = last.parameters.need(AMOUNT, true) > 0;
    held.into_iter().chain(used.into_iter().filter(move |_| is_used))
}

#[rstest]
#[tokio::test]
async fn a_call_that_its_last_limit_refuses_leaves_all_byte_for_byte_after_the_others_have_turned_and_slid(
    #[values(false, true)] is_light: bool,
) {
    let server = Server::own();
    let ways: Vec<Row> = all_rows();
    let lasts = ways.iter().filter(|row| row.name != interval().name).map(|row| last(row.lasting));
    for (number, last) in lasts.enumerate() {
        let turning = others(ways.iter().copied().chain([anomaly()]), |row| row.turning);
        for half in halves(some_light(turning, !is_light), number) {
            server.empty();
            let world = World { is_light, ..World::over(Arc::clone(&server)).await };
            world.warm_up(WarmState::default()).await;
            have_counted(&world, &half, &last).await;
            let before = dump(&server);
            for mode in modes(&last) {
                // One who is known, and one of whom nothing was ever counted.
                for subject in ["ada", "bob"].map(user) {
                    let ask = pages("refused", AMOUNT).of(&subject).by(mode).at(LATER_MS);
                    let all = half.iter().chain([&last]).cloned();
                    assert_refused(&world, &ask.under(all), None).await;
                }
                assert_eq!(dump(&server), before, "{mode:?} {last:?}");
            }
            world.hold(&pages("admitted", AMOUNT).of(&user("bob")).under(half).at(LATER_MS)).await;
            assert_ne!(dump(&server), before);
        }
    }
}

/// When each key ends by itself (unix ms); below 0 for never.
fn ends(server: &Server) -> BTreeMap<String, i64> {
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "*"])).unwrap();
    let end = |key: &String| redis::from_redis_value(server.command(&["PEXPIRETIME", key])).unwrap();
    keys.iter().map(|key| (key.clone(), end(key))).collect()
}

/// So that no window turns, whatever the time is.
fn at_any_time(row: &Row) -> Parameters {
    row.lasting.window().map_or(row.lasting, |_| in_window(CENTURY.0, CENTURY.1))
}

#[rstest]
#[tokio::test]
async fn a_refused_call_prolongs_the_life_of_nothing(#[values(false, true)] is_light: bool) {
    let server = Server::own();
    let ways: Vec<Row> = if is_light { all_rows() } else { rows() };
    let ways = ways.into_iter().filter(|row| row.name != interval().name).chain([anomaly()]);
    let last = last(in_window(CENTURY.0, CENTURY.1));
    for half in halves(some_light(others(ways, at_any_time), !is_light), 1) {
        server.empty();
        let world = World { is_light, ..World::over(Arc::clone(&server)).await };
        world.warm_up(WarmState::default()).await;
        let now_ms = redis_ms(&world);
        let all = half.into_iter().chain([last.clone()]);
        let ask = Ask { valid: CENTURY, ..pages("first", AMOUNT).of(&user("ada")).under(all) };
        let body = world.body(&ask);
        let call = ReserveCall {
            subject_windows_end_ms: now_ms + HOUR_MS,
            now_ms: None,
            ..world.reserve_call(&ask, &body)
        };
        let outcome = world.gate.reserve(&call).await.unwrap();
        assert!(matches!(outcome, ReserveOutcome::Admitted { .. }), "{outcome:?}");
        let before = (dump(&server), ends(&server));
        assert!(before.1.values().any(|end| *end > 0));
        for mode in modes(&last) {
            for subject in ["ada", "bob"].map(user) {
                let ask = Ask { key: "refused".into(), ..ask.clone() }.of(&subject).by(mode);
                let ask = Ask { ttl_ms: 9 * HOUR_MS, max_life_ms: 9 * HOUR_MS, ..ask };
                assert_refused(&world, &ask, Some(now_ms + 9 * HOUR_MS)).await;
            }
            assert_eq!((dump(&server), ends(&server)), before, "{mode:?}");
        }
    }
}

/// Decides checks of this subject, each under a list of counters, several of them together. By the test clock, or by
/// Redis's.
async fn check(
    world: &World,
    now_ms: Option<i64>,
    subject: &Subject,
    lists: &[Vec<Counter>],
    peeks: bool,
) -> Vec<CheckedCounters> {
    let (hashes, amounts) = ([world.hash(subject)], [units(AMOUNT)]);
    let ask = |counters| CheckAsk {
        amounts: &amounts,
        valid: CENTURY,
        needed_until_ms: now_ms.unwrap_or_else(|| redis_ms(world)) + 9 * HOUR_MS,
        ..look(world, &hashes, counters, peeks)
    };
    let asks: Vec<_> = lists.iter().map(|counters| ask(counters)).collect();
    match world.gate.check(world.partition, &asks, lists.len() > 1, now_ms).await.unwrap() {
        CheckOutcome::Decided { checks, .. } => checks,
        stale @ CheckOutcome::StaleWindow { .. } => panic!("{stale:?}"),
    }
}

async fn count_by_check(world: &World, now_ms: Option<i64>, counters: &[Counter]) {
    let checks = check(world, now_ms, &user("ada"), &[counters.to_vec()], false).await;
    assert_eq!(checks[0].refusing, []);
}

#[rstest]
#[tokio::test]
async fn a_refused_check_leaves_all_byte_for_byte_and_of_several_together_one_is_enough(
    #[values(false, true)] by_redis_clock: bool,
) {
    let server = Server::own();
    let clock = |now_ms| (!by_redis_clock).then_some(now_ms);
    for (number, row) in checked_rows().enumerate() {
        // By Redis's clock no time passes, so that a call may not come too soon.
        let ways = checked_rows().chain([anomaly()]);
        let (ways, of_row): (Vec<Row>, fn(&Row) -> Parameters) = match by_redis_clock {
            true => (ways.collect(), at_any_time),
            false => (ways.chain([interval()]).collect(), |row| row.turning),
        };
        let last = last(at_any_time(&row));
        for half in halves(others(ways, of_row), number) {
            server.empty();
            let world = World::over(Arc::clone(&server)).await;
            count_by_check(&world, clock(START_MS), &half).await;
            count_by_check(&world, clock(START_MS + 2_500), &half).await;
            count_by_check(&world, clock(LATER_MS - 500), std::slice::from_ref(&last)).await;
            let before = (dump(&server), ends(&server));
            // Of those that admit one call at a time, the second of two together would be refused.
            let is_of_units =
                |one: &&Counter| !matches!(one.parameters, Parameters::Interval(_) | Parameters::Anomaly(_));
            let without_last: Vec<_> = half.iter().filter(is_of_units).cloned().collect();
            let with_last: Vec<_> = half.iter().chain([&last]).cloned().collect();
            for subject in ["ada", "bob"].map(user) {
                for (lists, peeks) in [
                    (vec![with_last.clone()], false),
                    (vec![without_last.clone(), with_last.clone()], false),
                    (vec![without_last.clone(), with_last.clone()], true),
                ] {
                    let checks = check(&world, clock(LATER_MS), &subject, &lists, peeks).await;
                    let refusing = checks.last().unwrap().refusing.iter().map(|(index, _)| *index);
                    assert!(refusing.eq([half.len()]), "{checks:?}");
                }
            }
            assert_eq!((dump(&server), ends(&server)), before, "{last:?}");
        }
    }
}
