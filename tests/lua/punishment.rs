//! What limits with a punishment remember of refused calls: when they ban, for how long, whom, and what they leave
//! alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use tollgate::domain::counter::{Counter, Source};
use tollgate::domain::ids::Subject;
use tollgate::domain::limit::Kind;
use tollgate::domain::policy::Level;
use tollgate::domain::punishment::{Conduct, Deed};
use tollgate::gate::{
    CheckAsk, CheckOutcome, CheckedCounters, CounterReading, LimitBan, PlacedBan, ReserveMode, ReserveOutcome,
};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

const MEMORY_MS: i64 = 10_000;

/// Bans at three refused calls within ten seconds: for two seconds, then each time three times as long, at most ten.
fn three_strikes() -> Value {
    json!({
        "memory_seconds": 10, "warn_at": 2, "ban_at": 3, "ban_seconds": 2, "ban_factor": "3", "max_ban_seconds": 10
    })
}

/// The limit of this field, with a punishment.
pub(super) fn punishing(name: &[u8; 8], capacity: i64) -> Counter {
    punishing_by(three_strikes(), None, limit(name, capacity))
}

/// The same for each user.
fn of_users(name: &[u8; 8], capacity: i64) -> Counter {
    of_subject(1, punishing_by(three_strikes(), Some("user"), limit(name, capacity)))
}

fn punishing_by(punishment: Value, subject_kind: Option<&str>, counter: Counter) -> Counter {
    let mut definition = json!({
        "id": "limit", "meter": "page", "window": "day", "capacity": "1", "punishment": punishment
    });
    if let Some(kind) = subject_kind {
        definition["scope"] = "subject".into();
        definition["subject_kind"] = kind.into();
    }
    let limit = serde_json::from_value(definition).unwrap();
    Counter { source: Source::Limit(Arc::new(limit), Level::Tenant), ..counter }
}

/// Two pages under a limit of one.
fn too_much(key: &str) -> Ask {
    pages(key, 2).under([punishing(b"strict--", 1)])
}

/// The answer to a call: which counters refused, with their waits, and what the first limit remembers.
async fn ask(world: &World, ask: &Ask) -> (Vec<(usize, Option<i64>)>, Conduct) {
    match world.reserve(ask).await {
        ReserveOutcome::Refused { refusing, readings, .. } => (refusing, readings[0].conduct),
        ReserveOutcome::Admitted { readings, .. } | ReserveOutcome::Allowed { readings, .. } => {
            (Vec::new(), readings[0].conduct)
        }
        other => panic!("{other:?}"),
    }
}

async fn deed(world: &World, call: &Ask) -> (Deed, i64) {
    let (_, conduct) = ask(world, call).await;
    (conduct.deed, conduct.violations)
}

/// All fields of the hashes of tenant and subjects, without those of violations.
fn counters(world: &World) -> BTreeMap<String, Vec<String>> {
    let texts = |value: redis::Value| match value {
        redis::Value::Array(all) => all.iter().map(|one| format!("{one:?}")).collect(),
        redis::Value::BulkString(text) => vec![String::from_utf8(text).unwrap()],
        other => panic!("{other:?}"),
    };
    let redis::Value::Array(keys) = world.server.command(&["KEYS", &world.key("*")]) else { panic!() };
    let keys = keys.into_iter().flat_map(texts).filter(|key| !key.contains(":bans:"));
    let of_key = |key: String| {
        let redis::Value::BulkString(dump) = world.server.command(&["DUMP", &key]) else { panic!() };
        let is_hash = key.contains(":state:") || key.contains(":light:");
        let content = match is_hash {
            true => {
                let all = texts(world.server.command(&["HGETALL", &key]));
                let pairs = all.chunks(2).map(|pair| pair.join(" "));
                let mut kept: Vec<_> = pairs.filter(|pair| !pair.contains("\"v")).collect();
                kept.sort();
                kept
            }
            false => vec![format!("{dump:?}")],
        };
        (key, content)
    };
    keys.map(of_key).collect()
}

/// The tenant's bans that limits have placed, at this time.
async fn bans(world: &World, now_ms: i64) -> Vec<PlacedBan> {
    let all = world.gate.limit_bans(world.partition, &world.tenant, (None, 0), 100, Some(now_ms));
    all.await.unwrap()
}

async fn lift(world: &World, ban: &LimitBan, now_ms: i64) -> bool {
    world.gate.lift_limit_ban(world.partition, &world.tenant, ban, Some(now_ms)).await.unwrap()
}

/// A ban, the list of bans, and a lift, for the test of what scripts are sent.
pub(super) async fn list_and_lift(world: &World) {
    for key in ["p1", "p2", "p3"] {
        ask(world, &too_much(key)).await;
    }
    let placed = bans(world, START_MS).await;
    assert!(lift(world, &placed[0].ban, START_MS).await);
}

#[rstest]
#[tokio::test]
async fn the_last_refusal_that_counts_places_a_ban_which_ends_to_the_millisecond(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    assert_eq!(deed(&world, &too_much("1")).await, (Deed::Violation, 1));
    assert_eq!(deed(&world, &too_much("2")).await, (Deed::Violation, 2));
    let (refusing, conduct) = ask(&world, &too_much("3")).await;
    assert_eq!(refusing, [(0, None)], "it is refused for what it asks");
    assert_eq!((conduct.deed, conduct.violations, conduct.bans), (Deed::LastViolation, 0, 1));
    assert_eq!(conduct.ban_ends_at_ms(), Some(START_MS + 2_000));
    // Now also what would fit is refused, and counts no more.
    let fits = pages("4", 1).under([punishing(b"strict--", 1)]);
    let (refusing, conduct) = ask(&world, &fits.clone().at(START_MS + 1_999)).await;
    assert_eq!((refusing, conduct.deed, conduct.violations), (vec![(0, Some(1))], Deed::UnderBan, 0));
    assert_eq!(ask(&world, &fits.at(START_MS + 2_000)).await.0, []);
}

#[tokio::test]
async fn each_ban_is_longer_up_to_the_longest_until_its_memory_has_passed() {
    let world = World::warm(Mode::Alone).await;
    let (mut now_ms, mut lengths) = (START_MS, Vec::new());
    let mut number = 0;
    for _ in 0..4 {
        loop {
            number += 1;
            let (_, conduct) = ask(&world, &too_much(&number.to_string()).at(now_ms)).await;
            if let Some(until_ms) = conduct.ban_ends_at_ms() {
                lengths.push(until_ms - now_ms);
                now_ms = until_ms;
                break;
            }
        }
    }
    assert_eq!((lengths.as_slice(), number), ([2_000, 6_000, 10_000, 10_000].as_slice(), 12));
    // One millisecond before the memory of the last ban has passed it still counts, then no longer.
    for (later_ms, bans) in [(MEMORY_MS - 1, 4), (MEMORY_MS, 0)] {
        let (_, conduct) = ask(&world, &too_much(&format!("later {later_ms}")).at(now_ms + later_ms)).await;
        assert_eq!(conduct.bans, bans);
    }
}

#[tokio::test]
async fn refused_calls_are_forgotten_together_when_the_memory_of_the_first_has_passed() {
    let world = World::warm(Mode::Alone).await;
    assert_eq!(deed(&world, &too_much("1")).await, (Deed::Violation, 1));
    let end_ms = START_MS + MEMORY_MS;
    assert_eq!(deed(&world, &too_much("2").at(end_ms - 1)).await, (Deed::Violation, 2));
    assert_eq!(deed(&world, &too_much("3").at(end_ms)).await, (Deed::Violation, 1));
    assert_eq!(deed(&world, &too_much("4").at(end_ms + MEMORY_MS - 1)).await, (Deed::Violation, 2));
}

#[tokio::test]
async fn the_same_call_again_within_a_second_is_the_same_violation() {
    let world = World::warm(Mode::Alone).await;
    assert_eq!(deed(&world, &too_much("1")).await, (Deed::Violation, 1));
    assert_eq!(deed(&world, &too_much("other").at(START_MS + 500)).await, (Deed::Violation, 2));
    assert_eq!(deed(&world, &too_much("1").at(START_MS + 999)).await, (Deed::Nothing, 2));
    assert_eq!(deed(&world, &too_much("other").at(START_MS + 1_499)).await, (Deed::Nothing, 2));
    // The second counts from the counted refusal, so that a caller who never stops is not forgotten.
    assert_eq!(deed(&world, &too_much("1").at(START_MS + 1_500)).await, (Deed::LastViolation, 0));
}

#[tokio::test]
async fn replays_dry_runs_and_what_is_admitted_in_part_are_no_violations() {
    let world = World::warm(Mode::Alone).await;
    let fits = pages("held", 1).under([punishing(b"strict--", 1)]);
    world.hold(&fits).await;
    for _ in 0..4 {
        assert_matches!(world.reserve(&fits).await, ReserveOutcome::Replayed { .. });
        assert_matches!(world.reserve(&fits.clone().with_meaning(2)).await, ReserveOutcome::KeyReused { .. });
    }
    for (number, mode) in
        [ReserveMode::DryRun, ReserveMode::DryUsage, ReserveMode::DryBestEffort].into_iter().enumerate()
    {
        for again in 0..2 {
            let dry = too_much(&format!("dry {number} {again}")).by(mode);
            assert_eq!(deed(&world, &dry).await, (Deed::Nothing, 0));
        }
    }
    let part = |key: &str, capacity| {
        let checks = [punishing(b"part----", capacity), limit(b"strict--", 100)];
        pages(key, 5).under(checks).by(ReserveMode::BestEffort)
    };
    assert_eq!(ask(&world, &part("part", 3)).await, (Vec::new(), Conduct::default()));
    assert_eq!(deed(&world, &part("nothing", 3)).await, (Deed::Violation, 1), "nothing was left");
    assert_eq!(deed(&world, &too_much("usage").by(ReserveMode::Usage)).await, (Deed::Violation, 1));
}

#[tokio::test]
async fn of_a_best_effort_that_gets_nothing_only_limits_without_any_room_count() {
    let world = World::warm(Mode::Alone).await;
    let full = punishing(b"full----", 0);
    let short = punishing(b"short---", 3);
    let call = pages("1", 5).under([short, full]).by(ReserveMode::BestEffort);
    let ReserveOutcome::Refused { readings, .. } = world.reserve(&call).await else { panic!("admitted") };
    assert_eq!([readings[0].conduct.deed, readings[1].conduct.deed], [Deed::Nothing, Deed::Violation]);
}

#[rstest]
#[tokio::test]
async fn a_refusal_that_counts_leaves_every_counter_record_and_event_byte_for_byte(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::warm(mode).await;
    let ada = user("ada");
    let all = || [limit(b"day-----", 100), of_users(b"hour----", 3), punishing(b"strict--", 4)];
    world.hold(&pages("held", 3).under(all()).of(&ada)).await;
    let before = counters(&world);
    for key in ["1", "2", "3", "4"] {
        let refused = world.reserve(&pages(key, 2).under(all()).of(&ada)).await;
        assert_matches!(refused, ReserveOutcome::Refused { .. });
        assert_eq!(counters(&world), before, "{key}");
    }
    assert_eq!(bans(&world, START_MS).await.len(), 2, "both limits have placed a ban");
}

#[tokio::test]
async fn a_ban_of_one_subject_touches_no_other_and_one_of_the_tenant_stops_all() {
    let world = World::warm(Mode::Alone).await;
    let (ada, ben) = (user("ada"), user("ben"));
    let call =
        |key: &str, amount, who: &Subject| pages(key, amount).under([of_users(b"strict--", 1)]).of(who);
    for key in ["1", "2", "3"] {
        ask(&world, &call(key, 2, &ada)).await;
    }
    assert_eq!(deed(&world, &call("4", 1, &ada)).await, (Deed::UnderBan, 0));
    assert_eq!(ask(&world, &call("5", 1, &ben)).await, (Vec::new(), Conduct::default()));
    // Another limit knows nothing of it.
    assert_eq!(ask(&world, &pages("6", 1).under([of_users(b"other---", 1)]).of(&ada)).await.0, []);
    for key in ["7", "8", "9"] {
        ask(&world, &too_much(key)).await;
    }
    let of_both = |key: &str| pages(key, 1).under([punishing(b"strict--", 9), of_users(b"other---", 9)]);
    assert_eq!(deed(&world, &of_both("10").of(&ben)).await, (Deed::UnderBan, 0));
}

#[tokio::test]
async fn two_limits_that_refuse_the_first_call_of_a_subject_both_remember_it() {
    let world = World::warm(Mode::Alone).await;
    for number in 1..=2 {
        let limits = [of_users(b"strict--", 1), of_users(b"other---", 1)];
        let call = pages(&number.to_string(), 2).under(limits).of(&user("ada"));
        let ReserveOutcome::Refused { readings, .. } = world.reserve(&call).await else { panic!() };
        assert_eq!([0, 1].map(|at: usize| readings[at].conduct.violations), [number; 2]);
    }
}

#[tokio::test]
async fn a_limit_that_refuses_nothing_counts_nothing_and_its_bans_rest() {
    let world = World::warm(Mode::Alone).await;
    for kind in [Kind::Soft, Kind::Shadow] {
        let counter = Counter { kind, ..punishing(b"lenient-", 1) };
        for number in 0..4 {
            let call = pages(&format!("{kind:?} {number}"), 2).under([counter.clone()]);
            assert_eq!(ask(&world, &call).await, (Vec::new(), Conduct::default()));
        }
    }
    for key in ["1", "2", "3"] {
        ask(&world, &too_much(key)).await;
    }
    let soft = Counter { kind: Kind::Soft, ..punishing(b"strict--", 1) };
    assert_eq!(ask(&world, &pages("4", 2).under([soft])).await.0, []);
    assert_eq!(deed(&world, &too_much("5")).await, (Deed::UnderBan, 0));
}

#[tokio::test]
async fn of_many_refusals_at_once_each_counts_and_one_places_the_ban() {
    let world = Arc::new(World::warm(Mode::Alone).await);
    let strikes = json!({ "memory_seconds": 10, "ban_at": 64, "ban_seconds": 2 });
    let call =
        move |key: &str| pages(key, 2).under([punishing_by(strikes.clone(), None, limit(b"strict--", 1))]);
    let refused = (0..64).map(|caller| {
        let (world, call) = (world.clone(), call(&caller.to_string()));
        tokio::spawn(async move { ask(&world, &call).await.1 })
    });
    let all: Vec<_> = futures::future::join_all(refused).await.into_iter().map(Result::unwrap).collect();
    let mut counts: Vec<_> = all.iter().map(|conduct| conduct.violations).collect();
    counts.sort_unstable();
    assert_eq!(counts, (0..64).collect::<Vec<_>>());
    assert_eq!(all.iter().filter(|conduct| conduct.deed == Deed::LastViolation).count(), 1);
}

#[rstest]
#[tokio::test]
async fn a_lifted_ban_is_forgotten_with_all_that_led_to_it(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let (ada, ben) = (user("ada"), user("ben"));
    let call = |key: &str, who: &Subject| pages(key, 2).under([of_users(b"strict--", 1)]).of(who);
    for who in [&ada, &ben] {
        for number in 0..3 {
            ask(&world, &call(&format!("{} {number}", who.id), who)).await;
        }
    }
    let placed = bans(&world, START_MS).await;
    assert_eq!(placed.iter().map(|ban| ban.until_ms).collect::<Vec<_>>(), [START_MS + 2_000; 2]);
    let of_ada = placed.iter().find(|placed| placed.ban.subject.as_ref().unwrap().1 == world.hash(&ada));
    let of_ada = &of_ada.unwrap().ban;
    assert_eq!(of_ada.to_string(), format!("limit~user~sstrict--{}", world.hash(&ada).digits()));
    assert!(lift(&world, of_ada, START_MS + 1).await);
    assert!(!lift(&world, of_ada, START_MS + 1).await, "it is gone");
    assert_eq!(deed(&world, &call("again", &ada).at(START_MS + 1)).await, (Deed::Violation, 1));
    assert_eq!(deed(&world, &call("again ben", &ben).at(START_MS + 1)).await, (Deed::UnderBan, 0));
    assert_eq!(bans(&world, START_MS + 1_999).await.len(), 1);
    assert_eq!(bans(&world, START_MS + 2_000).await, []);
    assert!(!lift(&world, &placed[0].ban, START_MS + 2_000).await, "what has ended is no ban");
}

#[tokio::test]
async fn bans_are_listed_in_pages_by_when_they_end() {
    let world = World::warm(Mode::Alone).await;
    for number in 0..5 {
        let who = user(&number.to_string());
        for strike in 0..3 {
            let key = format!("{number} {strike}");
            let call = pages(&key, 2).under([of_users(b"strict--", 1)]).of(&who);
            ask(&world, &call.at(START_MS + 10 * i64::from(number / 2))).await;
        }
    }
    let page = async |place: (Option<i64>, usize), count| {
        let all = world.gate.limit_bans(world.partition, &world.tenant, place, count, Some(START_MS + 20));
        all.await.unwrap().into_iter().map(|ban| ban.until_ms - START_MS - 2_000).collect::<Vec<_>>()
    };
    assert_eq!(page((None, 0), 100).await, [20, 10, 10, 0, 0]);
    assert_eq!(page((None, 0), 2).await, [20, 10]);
    assert_eq!(page((Some(START_MS + 2_010), 1), 2).await, [10, 0]);
}

#[tokio::test]
async fn under_a_limit_with_shares_only_what_is_consumed_makes_a_refusal_a_violation() {
    let world = World::warm(Mode::Alone).await;
    let shared = |name: &[u8; 8]| {
        let counter = punishing(name, 10);
        let Source::Limit(limit, level) = &counter.source else { panic!() };
        let on_gate_failure = tollgate::domain::on_gate_failure::OnGateFailure::Local;
        let limit = Arc::new(tollgate::domain::limit::Limit { on_gate_failure, ..(**limit).clone() });
        Counter { source: Source::Limit(limit, *level), ..counter }
    };
    let counter = shared(b"shared--");
    world.hold(&pages("held", 7).under([counter.clone()])).await;
    world.hold(&pages("used", 2).under([counter.clone()]).by(ReserveMode::Usage)).await;
    for (key, amount, mode, expected) in [
        ("fits", 8, ReserveMode::AllOrNothing, (Deed::Nothing, 0)),
        ("fits too", 8, ReserveMode::AllOrNothing, (Deed::Nothing, 0)),
        ("does not", 9, ReserveMode::AllOrNothing, (Deed::Violation, 1)),
        ("last", 1, ReserveMode::Usage, (Deed::Nothing, 1)),
        ("a part fits", 20, ReserveMode::BestEffort, (Deed::Nothing, 1)),
        ("never", 11, ReserveMode::Usage, (Deed::Violation, 2)),
    ] {
        let call = pages(key, amount).under([counter.clone()]).by(mode);
        assert_eq!(deed(&world, &call).await, expected, "{key}");
    }
}

#[tokio::test]
async fn after_a_loss_of_memory_everybody_starts_afresh() {
    let world = World::warm(Mode::Alone).await;
    let ada = user("ada");
    world.hold(&pages("held", 1).under([limit(b"day-----", 9)])).await;
    let of_ada = |key: &str| pages(key, 2).under([of_users(b"strict--", 1)]).of(&ada);
    for number in 0..3 {
        ask(&world, &too_much(&number.to_string())).await;
        ask(&world, &of_ada(&format!("ada {number}"))).await;
    }
    world.lose_and_restore("held", START_MS + 1).await;
    assert_eq!(bans(&world, START_MS + 1).await, []);
    assert_eq!(deed(&world, &too_much("again").at(START_MS + 2)).await, (Deed::Violation, 1));
    assert_eq!(deed(&world, &of_ada("ada again").at(START_MS + 2)).await, (Deed::Violation, 1));
}

#[tokio::test]
async fn a_subject_that_waits_for_the_ledger_keeps_what_is_remembered_of_it() {
    let world = World::warm(Mode::Alone).await;
    let ada = user("ada");
    let call = |key: &str| pages(key, 2).under([of_users(b"strict--", 1)]).of(&ada);
    ask(&world, &call("1")).await;
    world.suspend(Some(&ada)).await;
    assert_matches!(world.reserve(&call("2")).await, ReserveOutcome::Cold(_));
    world.tell_subject(&ada, told(&[])).await;
    assert_eq!(deed(&world, &call("3")).await, (Deed::Violation, 2));
}

#[tokio::test]
async fn by_the_clock_of_redis_hashes_and_the_list_outlive_a_ban() {
    let world = World::warm(Mode::Alone).await;
    let (ada, longest) =
        (user("ada"), json!({ "memory_seconds": 7_200, "ban_at": 1, "ban_seconds": 100_000 }));
    let checks = [of_subject(1, punishing_by(longest, Some("user"), limit(b"strict--", 1)))];
    let ask = Ask { valid: (0, i64::MAX), ..pages("1", 2).under(checks).of(&ada) };
    let body = world.body(&ask);
    let call = tollgate::gate::ReserveCall { now_ms: None, ..world.reserve_call(&ask, &body) };
    let outcome = world.gate.reserve(&call).await.unwrap();
    let ReserveOutcome::Refused { now_ms, readings, .. } = outcome else { panic!("{outcome:?}") };
    let until_ms = readings[0].conduct.banned_until_ms;
    let ends_at = |key: &str| -> i64 {
        redis::from_redis_value(world.server.command(&["PEXPIRETIME", &world.key(key)])).unwrap()
    };
    let state = format!("state:{}:{}", world.tenant, world.hash(&ada).as_str());
    assert_eq!(until_ms, now_ms + 100_000_000);
    assert!(
        ends_at(&state) >= until_ms + 7_200_000,
        "the hash stays for as long as a ban makes the next one longer"
    );
    assert_eq!(ends_at(&format!("bans:{}:{}", world.epoch().0, world.tenant)), until_ms);
}

/// Checks for these amounts under one light counter, in one call.
async fn check(
    world: &World,
    (now_ms, together, peeks): (i64, bool, bool),
    counter: &Counter,
    amounts: &[i64],
) -> Vec<CheckedCounters> {
    let hashes = [world.hash(&user("ada"))];
    let amounts: Vec<_> = amounts.iter().map(|amount| [units(*amount)]).collect();
    let ask = |amounts| CheckAsk {
        tenant: Some(&world.tenant),
        subjects: &hashes,
        amounts,
        counters: std::slice::from_ref(counter),
        valid: WINDOW,
        needed_until_ms: WINDOW.1,
        peeks,
    };
    let asks: Vec<_> = amounts.iter().map(|amounts| ask(amounts)).collect();
    match world.gate.check(world.partition, &asks, together, Some(now_ms)).await.unwrap() {
        CheckOutcome::Decided { checks, .. } => checks,
        stale => panic!("{stale:?}"),
    }
}

fn conducts(checks: &[CheckedCounters]) -> Vec<(Deed, i64)> {
    let first = |check: &CheckedCounters| {
        let CounterReading { conduct, .. } = check.readings[0];
        (conduct.deed, conduct.violations)
    };
    checks.iter().map(first).collect()
}

#[rstest]
#[tokio::test]
async fn refused_checks_count_one_by_one_also_in_one_call(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::warm(mode).await;
    let counter = of_users(b"light---", 5);
    let looked = check(&world, (START_MS, false, true), &counter, &[6, 6, 6, 6]).await;
    assert_eq!(conducts(&looked), [(Deed::Nothing, 0); 4], "looks are none");
    let checked = check(&world, (START_MS, false, false), &counter, &[6, 1, 6, 6, 1]).await;
    let expected = [
        (Deed::Violation, 1),
        (Deed::Nothing, 1),
        (Deed::Violation, 2),
        (Deed::LastViolation, 0),
        (Deed::UnderBan, 0),
    ];
    assert_eq!(conducts(&checked), expected);
    assert_eq!(checked[4].refusing, [(0, Some(2_000))]);
    assert_eq!(checked[4].readings[0].consumed, units(1), "what was admitted before is counted");
    let banned = check(&world, (START_MS + 1_999, false, false), &counter, &[1]).await;
    assert_eq!((conducts(&banned), banned[0].refusing[0].1), (vec![(Deed::UnderBan, 0)], Some(1)));
    let [placed] = bans(&world, START_MS).await.try_into().unwrap();
    assert!(placed.ban.is_light);
    assert!(lift(&world, &placed.ban, START_MS).await);
    let again = check(&world, (START_MS, false, false), &counter, &[1]).await;
    assert_eq!((again[0].refusing.len(), again[0].readings[0].consumed), (0, units(2)));
}

#[tokio::test]
async fn checks_together_that_are_refused_count_a_violation_and_nothing_else() {
    let world = World::warm(Mode::Alone).await;
    let counter = of_users(b"light---", 5);
    check(&world, (START_MS, false, false), &counter, &[1]).await;
    let before = counters(&world);
    let refused = check(&world, (START_MS, true, false), &counter, &[3, 3]).await;
    assert_eq!(conducts(&refused), [(Deed::Nothing, 0), (Deed::Violation, 1)]);
    assert_eq!(counters(&world), before);
    let next = check(&world, (START_MS, false, false), &counter, &[6]).await;
    assert_eq!(conducts(&next), [(Deed::Violation, 2)]);
}
