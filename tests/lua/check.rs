//! Checks: light counters move all or none of them, live as long as what they count, and are forgotten with their
//! epoch.

use std::collections::BTreeSet;
use std::sync::Arc;

use rstest::rstest;
use tollgate::domain::counter::Counter;
use tollgate::domain::ids::Subject;
use tollgate::gate::{CheckAsk, CheckOutcome, CheckedCounters, Gate, GateError};

use crate::gate::server::{Mode, Server};
use crate::gate::world::*;
use crate::properties::gate::algorithms::checked_rows;
use crate::support::matching::assert_matches;

/// One check and one look at the start, for the test of what scripts are sent.
pub(super) async fn check(world: &World) {
    let counters = [limit(b"light---", 10)];
    check_at(world, START_MS, &user("ada"), &counters, 1).await;
    let asks = [look(world, &[], &counters, true)];
    world.gate.check(world.partition, &asks, false, Some(START_MS)).await.unwrap();
}

/// One check for this amount under these counters, at this time.
async fn check_at(
    world: &World,
    now_ms: i64,
    subject: &Subject,
    counters: &[Counter],
    amount: i64,
) -> CheckedCounters {
    let (hashes, amounts) = ([world.hash(subject)], [units(amount)]);
    let asks = [CheckAsk { amounts: &amounts, ..look(world, &hashes, counters, false) }];
    match world.gate.check(world.partition, &asks, false, Some(now_ms)).await.unwrap() {
        CheckOutcome::Decided { mut checks, .. } => checks.remove(0),
        stale => panic!("{stale:?}"),
    }
}

/// A look at these counters, or what begins a check.
pub(super) fn look<'a>(
    world: &'a World,
    subjects: &'a [tollgate::domain::reservation::SubjectHash],
    counters: &'a [Counter],
    peeks: bool,
) -> CheckAsk<'a> {
    CheckAsk {
        tenant: Some(&world.tenant),
        subjects,
        amounts: &[],
        counters,
        valid: WINDOW,
        needed_until_ms: WINDOW.1,
        peeks,
    }
}

fn light_key(world: &World, subject: Option<&Subject>) -> String {
    let of = subject.map_or_else(String::new, |subject| format!(":{}", world.hash(subject).as_str()));
    world.key(&format!("light:{}{of}", world.tenant))
}

/// Everything that is stored of the light counters of the tenant and of this subject.
fn stored(world: &World, subject: &Subject) -> [BTreeSet<String>; 2] {
    let fields = |of| match world.server.command(&["HGETALL", &light_key(world, of)]) {
        redis::Value::Array(all) => all.chunks(2).map(|pair| format!("{pair:?}")).collect::<BTreeSet<_>>(),
        other => panic!("{other:?}"),
    };
    [None, Some(subject)].map(fields)
}

#[rstest]
#[tokio::test]
async fn a_check_that_its_last_counter_refuses_leaves_all_others_byte_for_byte(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    for (number, row) in checked_rows().enumerate() {
        let named = |prefix: &str| *<&[u8; 8]>::try_from(format!("{prefix}{number:07}").as_bytes()).unwrap();
        let ada = user(&number.to_string());
        let first = Counter { parameters: row.lasting, ..limit(&named("f"), 100) };
        let second = of_subject(1, Counter { parameters: row.lasting, ..limit(&named("s"), 100) });
        let last = of_subject(1, Counter { parameters: row.lasting, ..limit(&named("l"), 3) });
        let all = [first, second, last];
        assert_eq!(check_at(&world, START_MS, &ada, &all, 2).await.refusing, [], "{}", row.name);
        let before = stored(&world, &ada);
        let refused = check_at(&world, START_MS, &ada, &all, 2).await;
        assert_eq!(refused.refusing.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2], "{}", row.name);
        assert_eq!(refused.readings.iter().map(|r| r.consumed.get()).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(stored(&world, &ada), before, "{}", row.name);
    }
}

#[rstest]
#[tokio::test]
async fn a_tenant_that_the_ledger_has_not_told_is_checked_all_the_same(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let counters = [limit(b"day-----", 2)];
    for expected in [vec![], vec![], vec![(0, Some(WINDOW.1 - START_MS))]] {
        assert_eq!(check_at(&world, START_MS, &user("ada"), &counters, 1).await.refusing, expected);
    }
    assert_eq!(check_at(&world, START_MS, &user("ada"), &counters, 3).await.refusing, [(0, None)]);
    assert!(world.events().await.is_empty(), "nothing is booked");
}

#[rstest]
#[tokio::test]
async fn a_look_moves_nothing_and_leaves_nothing_behind(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let (ada, counters) = (user("ada"), [of_subject(1, limit(b"day-----", 5))]);
    let (hashes, amounts) = ([world.hash(&ada)], [units(6)]);
    let asks = [CheckAsk { amounts: &amounts, ..look(&world, &hashes, &counters, true) }];
    let outcome = world.gate.check(world.partition, &asks, false, Some(START_MS)).await.unwrap();
    let CheckOutcome::Decided { checks, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(checks[0].refusing, [(0, None)]);
    assert_eq!(world.server.command(&["EXISTS", &light_key(&world, Some(&ada))]), redis::Value::Int(0));
}

#[rstest]
#[tokio::test]
async fn checks_together_are_all_counted_or_none(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let (ada, counters) = (user("ada"), [limit(b"day-----", 5), of_subject(1, limit(b"hour----", 9))]);
    let (hashes, amounts) = ([world.hash(&ada)], [units(2)]);
    let ask = || CheckAsk { amounts: &amounts, ..look(&world, &hashes, &counters, false) };
    let decide = async |count: usize, together| {
        let asks = vec![ask(); count];
        match world.gate.check(world.partition, &asks, together, Some(START_MS)).await.unwrap() {
            CheckOutcome::Decided { checks, .. } => checks,
            stale => panic!("{stale:?}"),
        }
    };
    let refused = decide(3, true).await;
    let refusing = |checks: &[CheckedCounters]| checks.iter().map(|c| c.refusing.len()).collect::<Vec<_>>();
    assert_eq!(refusing(&refused), [0, 0, 1]);
    assert!(refused.iter().all(|check| check.readings.iter().all(|reading| reading.consumed.get() == 0)));
    assert_eq!(world.server.command(&["EXISTS", &light_key(&world, None)]), redis::Value::Int(0));
    assert_eq!(refusing(&decide(2, true).await), [0, 0]);
    let rest = decide(2, false).await;
    assert_eq!(refusing(&rest), [1, 1], "each for itself, and both find four of five used");
    assert_eq!(rest[1].readings[1].consumed, units(4), "the other counter was left alone");
}

#[rstest]
#[tokio::test]
async fn what_another_epoch_counted_is_forgotten_whole(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let (ada, both) = (user("ada"), [limit(b"first---", 5), limit(b"second--", 5)]);
    check_at(&world, START_MS, &ada, &both, 4).await;
    world.adopt(2).await;
    world.gate.set_epoch(world.partition, tollgate::domain::ids::Epoch(2));
    let after = check_at(&world, START_MS, &ada, &both[..1], 2).await;
    assert_eq!((after.refusing, after.readings[0].consumed), (vec![], units(2)));
    let gone = world.server.command(&["HEXISTS", &light_key(&world, None), "second--"]);
    assert_eq!(gone, redis::Value::Int(0), "the hash was replaced whole");
}

/// How long a key lives, in ms; -1 where it does not end.
fn lives_ms(world: &World, key: &str) -> i64 {
    redis::from_redis_value(world.server.command(&["PTTL", key])).unwrap()
}

#[tokio::test]
async fn light_counters_live_as_long_as_the_longest_check_of_a_call_needs_them() {
    let world = World::cold(Mode::Alone).await;
    let now_ms = world.gate.redis_time_ms();
    let parameters = in_window(now_ms - 1_000, now_ms + 3_600_000);
    let (amounts, counters) = ([units(1)], [Counter { parameters, ..limit(b"hour----", 5) }]);
    let asks = [now_ms + 86_400_000, now_ms + 3_600_000].map(|needed_until_ms| CheckAsk {
        amounts: &amounts,
        valid: (0, i64::MAX),
        needed_until_ms,
        ..look(&world, &[], &counters, false)
    });
    world.gate.check(world.partition, &asks, false, None).await.unwrap();
    let lives_ms = lives_ms(&world, &light_key(&world, None));
    assert!(lives_ms > 86_400_000, "{lives_ms}");
}

#[rstest]
#[tokio::test]
async fn light_counters_end_an_hour_after_what_they_count(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let now_ms = world.gate.redis_time_ms();
    let window = (now_ms - 1_000, now_ms + 3_600_000);
    let (ada, hashes, amounts) = (user("ada"), [world.hash(&user("ada"))], [units(1)]);
    let parameters = in_window(window.0, window.1);
    let counters = [of_subject(1, Counter { parameters, ..limit(b"hour----", 5) })];
    let ask = |needed_until_ms| CheckAsk {
        amounts: &amounts,
        valid: (0, i64::MAX),
        needed_until_ms,
        ..look(&world, &hashes, &counters, false)
    };
    let lives = |key: &str| lives_ms(&world, key);
    world.gate.check(world.partition, &[ask(window.1)], false, None).await.unwrap();
    let key = light_key(&world, Some(&ada));
    assert!((7_100_000..=7_800_000).contains(&lives(&key)), "{}", lives(&key));
    world.gate.check(world.partition, &[ask(window.1 + 1_800_000)], false, None).await.unwrap();
    assert!(
        lives(&key) >= 1_800_000 + 7_100_000,
        "an hour longer than what it counts, also half an hour later"
    );
    world.gate.check(world.partition, &[ask(window.1 + 86_400_000)], false, None).await.unwrap();
    assert!(lives(&key) > 86_400_000, "it lives longer with what it counts");
    world.gate.check(world.partition, &[ask(window.1)], false, None).await.unwrap();
    assert!(lives(&key) > 86_400_000, "and never shorter");
    check_at(&world, START_MS, &user("eve"), &[of_subject(1, limit(b"hour----", 5))], 1).await;
    assert_eq!(lives(&light_key(&world, Some(&user("eve")))), -1, "by a test clock nothing ends by itself");
}

#[rstest]
#[tokio::test]
async fn a_window_that_was_computed_for_another_time_decides_nothing(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let (amounts, counters) = ([units(1)], [limit(b"day-----", 5)]);
    let asks = [CheckAsk { amounts: &amounts, ..look(&world, &[], &counters, false) }];
    let outcome = world.gate.check(world.partition, &asks, false, Some(WINDOW.1)).await.unwrap();
    assert_eq!(outcome, CheckOutcome::StaleWindow { now_ms: WINDOW.1 });
    let later = [Counter { parameters: in_window(WINDOW.1, WINDOW.1 + 1), ..limit(b"day-----", 5) }];
    let asks_later = [CheckAsk { valid: (WINDOW.1, WINDOW.1 + 1), counters: &later, ..asks[0].clone() }];
    world.gate.check(world.partition, &asks_later, false, Some(WINDOW.1)).await.unwrap();
    let outcome = world.gate.check(world.partition, &asks, false, Some(START_MS)).await.unwrap();
    assert_eq!(outcome, CheckOutcome::StaleWindow { now_ms: START_MS }, "a later window is there");
}

/// Checks under one counter by windows, of which the second is decided by the plain path.
async fn check_plainly(
    world: &World,
    now_ms: Option<i64>,
    valid: (i64, i64),
) -> Result<CheckOutcome, GateError> {
    let (amounts, counters) = ([units(1)], [limit(b"day-----", 5)]);
    let ask = CheckAsk { amounts: &amounts, valid, ..look(world, &[], &counters, false) };
    world.gate.check(world.partition, &[ask], false, now_ms).await
}

#[rstest]
#[tokio::test]
async fn a_known_counter_is_not_moved_before_or_after_the_windows_that_were_sent(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
) {
    let world = World::cold(mode).await;
    let inside = (START_MS, START_MS + 10);
    assert_matches!(check_plainly(&world, Some(START_MS), inside).await, Ok(CheckOutcome::Decided { .. }));
    let before = stored(&world, &user("ada"));
    for now_ms in [inside.0 - 1, inside.1] {
        let outcome = check_plainly(&world, Some(now_ms), inside).await.unwrap();
        assert_eq!(outcome, CheckOutcome::StaleWindow { now_ms });
    }
    assert_eq!(stored(&world, &user("ada")), before);
}

#[rstest]
#[tokio::test]
async fn a_known_counter_is_not_moved_below_the_floor(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    assert_matches!(check_plainly(&world, Some(START_MS), WINDOW).await, Ok(CheckOutcome::Decided { .. }));
    let before = stored(&world, &user("ada"));
    world.server.command(&["HSET", &world.key("meta"), "floor", &i64::MAX.to_string()]);
    assert_matches!(check_plainly(&world, Some(START_MS), WINDOW).await, Err(_));
    assert_eq!(stored(&world, &user("ada")), before);
}

#[rstest]
#[tokio::test]
async fn each_check_of_a_call_counts_by_its_own_lines(#[values(Mode::Alone, Mode::Cluster)] mode: Mode) {
    let world = World::cold(mode).await;
    let on_line = |line: u8| [Counter { lines: vec![(line, 1)], ..limit(b"day-----", 100) }];
    let (first, second) = (on_line(0), on_line(1));
    let (of_first, of_second) = ([units(3)], [units(50), units(4)]);
    let asks = [(&first, &of_first[..]), (&second, &of_second[..])]
        .map(|(counters, amounts)| CheckAsk { amounts, ..look(&world, &[], counters, false) });
    let outcome = world.gate.check(world.partition, &asks, false, Some(START_MS)).await.unwrap();
    let CheckOutcome::Decided { checks, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(checks.iter().map(|check| check.readings[0].consumed.get()).collect::<Vec<_>>(), [3, 7]);
}

#[tokio::test]
async fn a_bucket_that_refuses_nothing_lives_until_it_has_drained() {
    let world = World::cold(Mode::Alone).await;
    let drain = tollgate::domain::algorithms::bucket::Drain { units: 1, per_ms: 1_000 };
    let bucket = tollgate::domain::algorithms::leaky_bucket::Parameters { drain, max_wait_ms: 1_000 };
    let parameters = tollgate::domain::algorithms::Parameters::LeakyBucket(bucket);
    let soft = Counter { parameters, kind: tollgate::domain::limit::Kind::Soft, ..limit(b"soft----", 5) };
    let (amounts, counters) = ([units(86_400)], [soft]);
    let now_ms = world.gate.redis_time_ms();
    let ask = CheckAsk {
        amounts: &amounts,
        valid: (0, i64::MAX),
        needed_until_ms: now_ms + 5_000,
        ..look(&world, &[], &counters, false)
    };
    world.gate.check(world.partition, &[ask], false, None).await.unwrap();
    let lives_ms = lives_ms(&world, &light_key(&world, None));
    assert!(lives_ms > 86_400_000, "{lives_ms}");
}

#[tokio::test]
async fn an_emptied_server_is_noticed_by_a_check() {
    let world = World::over(crate::gate::server::Server::own()).await;
    check_at(&world, START_MS, &user("ada"), &[limit(b"day-----", 5)], 1).await;
    world.server.command(&["FLUSHALL"]);
    let (amounts, counters) = ([units(1)], [limit(b"day-----", 5)]);
    let asks = [CheckAsk { amounts: &amounts, ..look(&world, &[], &counters, false) }];
    let noticed = world.gate.check(world.partition, &asks, false, Some(START_MS)).await;
    assert_matches!(noticed, Err(GateError::Alarm { .. }));
}

#[tokio::test]
async fn many_checks_at_once_never_take_more_than_there_is() {
    for row in checked_rows() {
        let world = Arc::new(World::cold(Mode::Alone).await);
        let counters = Arc::new([Counter { parameters: row.lasting, ..limit(b"counter-", 50) }]);
        let checking = (0..16).map(|_| {
            let (world, counters) = (world.clone(), counters.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..20 {
                    let checked = check_at(&world, START_MS, &user("ada"), &counters[..], 1).await;
                    admitted += i64::from(checked.refusing.is_empty());
                }
                admitted
            })
        });
        let admitted: i64 = futures::future::join_all(checking).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(admitted, 50, "{}", row.name);
    }
}

/// How many scripts a server was asked to run.
fn scripts_run(server: &Server) -> u64 {
    let told: String = redis::from_redis_value(server.command(&["INFO", "commandstats"])).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0");
    line.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn checks_that_are_asked_for_at_once_go_together_and_come_to_what_they_come_to_one_by_one() {
    let [apart, together] = [World::over(Server::own()).await, World::over(Server::own()).await];
    for (number, row) in checked_rows().enumerate() {
        let named = *<&[u8; 8]>::try_from(format!("{number:08}").as_bytes()).unwrap();
        let counters = [
            Counter { parameters: row.lasting, ..limit(&named, 30) },
            of_subject(1, Counter { parameters: row.lasting, ..limit(&named, 9) }),
        ];
        let subjects: Vec<_> = (0..20).map(|number| user(&(number % 3).to_string())).collect();
        let mut one_by_one = Vec::new();
        for subject in &subjects {
            one_by_one.push(check_at(&apart, START_MS, subject, &counters, 2).await);
        }
        let before = scripts_run(&together.server);
        let all = subjects.iter().map(|subject| check_at(&together, START_MS, subject, &counters, 2));
        let at_once = Gate::together(futures::future::join_all(all)).await;
        assert_eq!(scripts_run(&together.server) - before, 2, "sixteen and four");
        assert_eq!(one_by_one, at_once, "{}", row.name);
        assert!(at_once.iter().any(|check| !check.refusing.is_empty()), "{}", row.name);
    }
}

#[tokio::test]
async fn of_checks_that_go_together_one_that_fails_fails_alone() {
    let world = World::over(Server::own()).await;
    let counters = [of_subject(1, limit(b"day-----", 5))];
    let [ada, eve] = [user("ada"), user("eve")];
    world.server.command(&["SET", &light_key(&world, Some(&eve)), "no hash"]);
    let hashes = [[world.hash(&ada)], [world.hash(&eve)]];
    let amounts = [units(1)];
    let check = async |of: usize| {
        let ask = CheckAsk { amounts: &amounts, ..look(&world, &hashes[of], &counters, false) };
        world.gate.check(world.partition, &[ask], false, Some(START_MS)).await
    };
    let [first, damaged, second] = Gate::together(futures::future::join_all([check(0), check(1), check(0)]))
        .await
        .try_into()
        .unwrap_or_else(|_| panic!("three answers"));
    assert_matches!(damaged, Err(GateError::Script { .. }));
    for answer in [first, second] {
        assert_matches!(answer, Ok(CheckOutcome::Decided { .. }));
    }
    assert_eq!(
        check_at(&world, START_MS, &ada, &counters, 1).await.readings[0].consumed,
        units(3),
        "each once"
    );
}

#[tokio::test]
async fn of_checks_that_go_together_each_hears_that_its_windows_are_over() {
    let world = World::over(Server::own()).await;
    let (counters, amounts) = ([limit(b"day-----", 5)], [units(1)]);
    let check = async || {
        let ask = CheckAsk { amounts: &amounts, ..look(&world, &[], &counters, false) };
        world.gate.check(world.partition, &[ask], false, Some(WINDOW.1)).await.unwrap()
    };
    let answers = Gate::together(futures::future::join_all([check(), check()])).await;
    assert_eq!(answers, vec![CheckOutcome::StaleWindow { now_ms: WINDOW.1 }; 2]);
}
