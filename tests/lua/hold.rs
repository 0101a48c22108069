//! Light reservations, which the gate alone keeps: what is written, for how long, and what is given back once.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, concurrency};
use tollgate::domain::counter::Counter;
use tollgate::domain::guard::GuardSeconds;
use tollgate::domain::ids::OperationId;
use tollgate::domain::reservation::ReservationState;
use tollgate::gate::{ReserveCall, ReserveMode, ReserveOutcome, ResolveOutcome, Totals};

use crate::gate::server::Mode;
use crate::gate::world::*;
use crate::support::matching::assert_matches;

/// Holds once and sweeps, for the test of what scripts are sent.
pub(super) async fn hold_and_sweep(world: &World) {
    let (id, ask) = (world.ids.light(world.id("light")), pages("light", 5));
    let body = world.body(&ask);
    let call = ReserveCall { id, ..world.reserve_call(&ask, &body) };
    assert_matches!(world.gate.reserve(&call).await.unwrap(), ReserveOutcome::Admitted { .. });
    world.gate.expire_held(world.partition, Some(START_MS), 10).await.unwrap();
}

fn slots() -> Counter {
    let parameters = Parameters::Concurrency(concurrency::Parameters { each: 1 });
    Counter { parameters, ..limit(b"slots---", 2) }
}

fn ask_for(key: &str, amount: i64) -> Ask {
    pages(key, amount).under([slots(), day(100)])
}

impl World {
    /// The keys of its partition, without what they have in common, in order.
    fn keys(&self) -> Vec<String> {
        let prefix = self.key("");
        let found = self.server.command(&["KEYS", &format!("{}*", prefix.replace('{', "\\{"))]);
        let mut found: Vec<String> = redis::from_redis_value(found).unwrap();
        found.sort();
        found.into_iter().map(|key| key[prefix.len()..].to_owned()).collect()
    }

    pub(super) fn expires_in_ms(&self, key: &str) -> i64 {
        redis::from_redis_value(self.server.command(&["PTTL", key])).unwrap()
    }

    fn holds(&self) -> i64 {
        redis::from_redis_value(self.server.command(&["ZCARD", &self.key("holds")])).unwrap()
    }
}

#[rstest]
#[tokio::test]
async fn a_light_hold_writes_its_record_the_counters_and_nothing_else(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::light(mode).await;
    let ada = user("ada");
    let of_ada = of_subject(1, limit(b"of-ada--", 10));
    world.hold(&pages("job", 5).of(&ada).under([day(100), of_ada])).await;
    let hex = world.id("job").to_hex();
    let light = format!("light:{}", world.tenant);
    let of_ada = format!("{light}:{}", world.hash(&ada).as_str());
    let mut expected = vec![format!("held:{hex}"), "holds".into(), light, of_ada, "meta".into()];
    expected.sort();
    assert_eq!(world.keys(), expected);
    assert_eq!(world.day().await, (0, 5));
    let again = world.reserve(&pages("job", 5).of(&ada).under([day(100)])).await;
    assert_matches!(again, ReserveOutcome::Replayed { .. });
    let other = world.reserve(&pages("job", 6).with_meaning(2)).await;
    assert_matches!(other, ReserveOutcome::KeyReused { .. });
    assert_eq!(world.day().await, (0, 5), "a repeat holds nothing");
    done(world.consume("job", total("3"), true).await);
    assert_eq!((world.day().await, world.holds()), ((3, 0), 0));
    let again = world.reserve(&pages("job", 5).of(&ada).under([day(100)])).await;
    assert_matches!(again, ReserveOutcome::Replayed { record, .. } if record.body.rest.is_some());
}

#[tokio::test]
async fn an_open_record_outlives_its_latest_expiry_by_a_month_and_a_resolved_one_ends_with_its_key() {
    let world = World::light(Mode::Alone).await;
    let (ask, valid) = (pages("job", 5).under([day(100)]), (0, i64::MAX));
    let body = world.body(&ask);
    let call = || ReserveCall { now_ms: None, valid, ..world.reserve_call(&ask, &body) };
    assert_matches!(world.gate.reserve(&call()).await.unwrap(), ReserveOutcome::Admitted { .. });
    let options = options(String::new());
    let whole = call().max_life_ms + options.tombstone_keyed_ms + 30 * 86_400_000;
    let left = world.expires_in_ms(&world.record_key("job"));
    assert!((whole - 60_000..=whole).contains(&left), "{left} of {whole}");
    let counters = world.expires_in_ms(&world.key(&format!("light:{}", world.tenant)));
    assert!(counters >= 3_600_000, "{counters}");
    let extend =
        tollgate::gate::ExtendCall { id: world.id("job"), bound: None, ttl_ms: 90_000, now_ms: None };
    assert_matches!(world.gate.extend(&extend).await.unwrap(), ResolveOutcome::Done { .. });
    let extended = world.expires_in_ms(&world.record_key("job"));
    assert!((left - 60_000..=left).contains(&extended), "{extended} after {left}");
    let release = tollgate::gate::ReleaseCall {
        id: world.id("job"),
        bound: None,
        incurred: Totals::Default,
        now_ms: None,
    };
    assert_matches!(world.gate.release(&release).await.unwrap(), ResolveOutcome::Done { .. });
    let remembered = world.expires_in_ms(&world.record_key("job"));
    assert!((1..=options.tombstone_keyed_ms).contains(&remembered), "{remembered}");
}

#[tokio::test]
async fn work_without_a_key_that_was_given_up_is_remembered_for_a_day() {
    let world = World::light(Mode::Alone).await;
    let ask = |key: &str| Ask { keyed: false, ..pages(key, 1).under([day(100)]) };
    for key in ["released", "expired", "consumed"] {
        world.hold(&ask(key)).await;
    }
    done_release(world.release("released", Totals::Default).await);
    done(world.consume("consumed", total("1"), true).await);
    world.gate.expire_held(world.partition, Some(START_MS + TTL_MS), 10).await.unwrap();
    let unkeyed_ms = options(String::new()).tombstone_unkeyed_ms;
    for (key, whole) in [("released", 86_400_000), ("expired", 86_400_000), ("consumed", unkeyed_ms)] {
        let left = world.expires_in_ms(&world.record_key(key));
        assert!((whole - 60_000..=whole).contains(&left), "{key}: {left} of {whole}");
    }
}

#[tokio::test]
async fn a_slot_comes_back_at_the_end_of_its_hold_and_only_once() {
    let world = World::light(Mode::Alone).await;
    for key in ["a", "b"] {
        world.hold(&ask_for(key, 4)).await;
    }
    assert_matches!(world.reserve(&ask_for("c", 1)).await, ReserveOutcome::Refused { .. });
    done(world.consume("a", total("2"), false).await);
    assert_matches!(world.reserve(&ask_for("c", 1)).await, ReserveOutcome::Refused { .. });
    done(world.consume("a", total("3"), true).await);
    assert_matches!(world.consume("a", total("3"), true).await, ResolveOutcome::Replayed { .. });
    world.hold(&ask_for("c", 1)).await;
    assert_eq!(world.counts(&slots()).await, (0, 2));
    assert_matches!(world.release("b", Totals::Default).await, ResolveOutcome::Done { .. });
    assert_matches!(world.release("b", Totals::Default).await, ResolveOutcome::Replayed { .. });
    assert_eq!(world.counts(&slots()).await, (0, 1));
    assert_eq!(world.sweep(START_MS + TTL_MS - 1).await, 0);
    assert_eq!(world.sweep(START_MS + TTL_MS).await, 1);
    assert_eq!(world.sweep(START_MS + TTL_MS).await, 0);
    assert_eq!((world.counts(&slots()).await, world.day().await, world.holds()), ((0, 0), (3, 0), 0));
    assert_eq!(world.state("c").await, Some(ReservationState::Expired));
    done(world.consume_at(START_MS + TTL_MS, "c", total("1"), true).await);
    assert_eq!((world.counts(&slots()).await, world.day().await), ((0, 0), (4, 0)), "late, and charged once");
}

#[tokio::test]
async fn an_extended_hold_is_swept_at_its_new_end() {
    let world = World::light(Mode::Alone).await;
    world.hold(&ask_for("job", 4)).await;
    done(world.extend_at(START_MS + 1_000, "job", 2 * TTL_MS).await);
    assert_eq!((world.sweep(START_MS + 2 * TTL_MS).await, world.holds()), (0, 1));
    assert_eq!((world.sweep(START_MS + 1_000 + 2 * TTL_MS).await, world.holds()), (1, 0));
    assert_matches!(world.extend_at(START_MS, "job", TTL_MS).await, ResolveOutcome::Rejected { .. });
}

#[tokio::test]
async fn in_another_epoch_a_light_reservation_is_unknown_and_leaves_the_list() {
    let world = World::light(Mode::Alone).await;
    world.hold(&ask_for("job", 4)).await;
    world.adopt(2).await;
    assert_matches!(world.consume("job", total("1"), true).await, ResolveOutcome::Unknown { .. });
    assert_eq!(world.record("job").await, None);
    let report = world.sweep_once(START_MS + TTL_MS, 10).await;
    assert_eq!((report.expired, report.skipped, world.holds()), (0, 1, 0));
    assert_eq!(world.expires_in_ms(&world.record_key("job")), -2, "nothing is left of it");
    world.hold(&ask_for("job", 2)).await;
    assert_eq!((world.day().await, world.counts(&slots()).await), ((0, 2), (0, 1)));
}

#[tokio::test]
async fn a_sweep_does_so_much_at_once_and_passes_over_what_it_cannot_read() {
    let world = World::light(Mode::Alone).await;
    for key in ["a", "b", "c", "d"] {
        world.hold(&pages(key, 1).under([day(100)])).await;
    }
    world.server.command(&["SET", &world.record_key("a"), "nonsense"]);
    world.server.command(&["DEL", &world.record_key("b")]);
    let ends_ms = START_MS + TTL_MS;
    let mut sum = world.sweep_once(ends_ms, 3).await;
    assert!(sum.more);
    sum.add(world.sweep_once(ends_ms, 3).await);
    assert_eq!((sum.expired, sum.missing, sum.damaged, sum.more), (2, 1, 1, false), "{sum:?}");
    assert!(sum.unreadable[0].item.contains(&world.id("a").to_string()), "{sum:?}");
    assert_eq!((world.sweep_once(ends_ms + 59_999, 3).await.damaged, world.holds()), (0, 1));
    assert_eq!(world.sweep_once(ends_ms + 60_000, 3).await.damaged, 1, "it is tried again");
}

#[tokio::test]
async fn a_dry_run_says_what_a_light_hold_would_be_and_writes_nothing() {
    let world = World::light(Mode::Alone).await;
    let before = world.keys();
    let dry = world.reserve(&ask_for("job", 4).by(ReserveMode::DryRun)).await;
    assert_matches!(dry, ReserveOutcome::Allowed { .. });
    let dry = world.reserve(&ask_for("job", 101).by(ReserveMode::DryRun)).await;
    assert_matches!(dry, ReserveOutcome::Refused { .. });
    assert_eq!(world.keys(), before);
    let used = world.reserve(&ask_for("used", 4).by(ReserveMode::Usage)).await;
    assert_matches!(used, ReserveOutcome::Admitted { .. });
    assert_eq!((world.day().await, world.counts(&slots()).await, world.holds()), ((4, 0), (0, 0), 0));
    assert_eq!(world.state("used").await, Some(ReservationState::Consumed));
    let best = world.reserve(&ask_for("best", 200).by(ReserveMode::BestEffort)).await;
    assert_matches!(best, ReserveOutcome::Admitted { granted, .. } if granted == all_units(&[96]));
}

#[tokio::test]
async fn a_limit_with_a_punishment_bans_from_light_holds_too() {
    let world = World::light(Mode::Alone).await;
    let ask =
        |key: &str, amount: i64| pages(key, amount).under([super::punishment::punishing(b"strict--", 1)]);
    for key in ["a", "b", "c"] {
        assert_matches!(world.reserve(&ask(key, 2)).await, ReserveOutcome::Refused { .. });
    }
    let banned = world.reserve(&ask("d", 1).at(START_MS + 1)).await;
    assert_matches!(banned, ReserveOutcome::Refused { refusing, .. } if refusing == [(0, Some(1_999))]);
    assert_matches!(world.reserve(&ask("d", 1).at(START_MS + 2_000)).await, ReserveOutcome::Admitted { .. });
}

#[tokio::test]
async fn the_same_light_work_is_a_duplicate_until_its_first_hold_is_given_up() {
    let world = World::light(Mode::Alone).await;
    let (operation, within) = (OperationId::parse("scan").unwrap(), GuardSeconds::try_from(5).unwrap());
    let work = world.gate.guarded_work(&world.tenant, &operation, [].iter(), "payload", within);
    let submit = async |key: &str| {
        let ask = ask_for(key, 1);
        let body = world.body(&ask);
        let call = ReserveCall { work: Some(&work), ..world.reserve_call(&ask, &body) };
        world.gate.reserve(&call).await.unwrap()
    };
    assert_matches!(submit("first").await, ReserveOutcome::Admitted { .. });
    assert_eq!(submit("second").await, ReserveOutcome::Duplicate { first: world.id("first") });
    done_release(world.release("first", Totals::Default).await);
    assert_matches!(submit("second").await, ReserveOutcome::Admitted { .. });
}

fn done_release(outcome: ResolveOutcome) {
    assert_eq!(done(outcome).head.state, ReservationState::Released);
}
