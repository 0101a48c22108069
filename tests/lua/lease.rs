//! Shares of a counter: what instances may admit by themselves is held in the counter, settled once, and comes back.

use rstest::rstest;
use tollgate::domain::algorithms::{Parameters, fixed_window};
use tollgate::domain::counter::Counter;
use tollgate::domain::ids::Subject;
use tollgate::domain::share::{SHARE_LASTS_MS, Share};
use tollgate::gate::{
    CheckAsk, CheckOutcome, CheckedCounters, KnownSubjects, LeaseCall, LeaseOutcome, ReserveMode,
    SubjectFilter, WarmState,
};

use crate::gate::server::Mode;
use crate::gate::world::*;

const BEAT_MS: i64 = 2_000;

/// An instance and what it has of a counter.
struct Instance<'a> {
    world: &'a World,
    name: [u8; 8],
    counter: Counter,
    subject: Option<Subject>,
    is_light: bool,
    /// Whether nothing else counts what it uses.
    charges: bool,
    share: Share,
}

/// What a renewal is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Wants,
    GivesBack,
    Recalls,
}

impl<'a> Instance<'a> {
    fn new(world: &'a World, number: u8, counter: Counter, is_light: bool) -> Self {
        let share = Share::default();
        Self { world, name: [number; 8], counter, subject: None, is_light, charges: true, share }
    }

    /// Renews its share; whether the answer arrives.
    async fn renew_at(&mut self, now_ms: i64, why: Why, hears: bool) -> LeaseOutcome {
        let call = LeaseCall {
            partition: self.world.partition,
            tenant: &self.world.tenant,
            subject: self.subject.as_ref().map(|subject| self.world.hash(subject)),
            counter: &self.counter,
            is_light: self.is_light,
            instance: self.name,
            totals: self.share.totals(true, now_ms),
            wants: why == Why::Wants,
            charges: self.charges,
            recalls: why == Why::Recalls,
            beat_ms: BEAT_MS,
            now_ms: Some(now_ms),
        };
        let outcome = self.world.gate.lease(&call).await.unwrap();
        if let (LeaseOutcome::Leased(lease), true) = (outcome, hears) {
            self.share.renew(self.world.epoch(), lease);
        }
        outcome
    }

    async fn renew(&mut self) {
        self.renew_at(START_MS, Why::Wants, true).await;
    }

    fn left_at(&self, now_ms: i64) -> i64 {
        self.share.left(Some(self.world.epoch()), None, self.counter.capacity.get(), now_ms)
    }

    fn left(&self) -> i64 {
        self.left_at(START_MS)
    }
}

/// One share of a counter of the tenant and one of a subject's, for the test of what scripts are sent.
pub(super) async fn renew(world: &World) {
    Instance::new(world, 1, day(100), false).renew().await;
    let of_subject = of_subject(1, limit(b"light---", 10));
    let mut light = Instance::new(world, 1, of_subject, true);
    light.subject = Some(user("ada"));
    light.renew().await;
}

fn look<'a>(
    world: &'a World,
    counters: &'a [Counter],
    amounts: &'a [tollgate::domain::amount::Units],
) -> CheckAsk<'a> {
    CheckAsk {
        tenant: Some(&world.tenant),
        subjects: &[],
        amounts,
        counters,
        valid: WINDOW,
        needed_until_ms: WINDOW.1,
        peeks: amounts.is_empty(),
    }
}

/// Counts this amount, or looks, at this time: what the counter has then.
async fn check_at(world: &World, now_ms: i64, counter: &Counter, amount: Option<i64>) -> CheckedCounters {
    let amounts: Vec<_> = amount.into_iter().map(units).collect();
    let counters = std::slice::from_ref(counter);
    let asks = [look(world, counters, &amounts)];
    match world.gate.check(world.partition, &asks, false, Some(now_ms)).await.unwrap() {
        CheckOutcome::Decided { mut checks, .. } => checks.remove(0),
        stale => panic!("{stale:?}"),
    }
}

/// The key of the tenant's counters.
fn hash_of(world: &World, is_light: bool) -> String {
    if is_light { world.key(&format!("light:{}", world.tenant)) } else { world.state_key() }
}

/// Consumed and reserved units of a counter.
async fn counted(world: &World, counter: &Counter, is_light: bool) -> (i64, i64) {
    if !is_light {
        return world.counts(counter).await;
    }
    let reading = check_at(world, START_MS, counter, None).await.readings[0];
    (reading.consumed.get(), reading.reserved.get())
}

/// Uses units at the gate. Returns whether that fits.
async fn uses(world: &World, counter: &Counter, is_light: bool, call: (usize, i64)) -> bool {
    uses_at(world, START_MS, counter, is_light, call).await
}

async fn uses_at(
    world: &World,
    now_ms: i64,
    counter: &Counter,
    is_light: bool,
    (number, amount): (usize, i64),
) -> bool {
    if is_light {
        return check_at(world, now_ms, counter, Some(amount)).await.refusing.is_empty();
    }
    let ask = pages(&format!("use-{number}"), amount).under([counter.clone()]).by(ReserveMode::Usage);
    let ask = ask.at(now_ms);
    matches!(world.reserve(&ask).await, tollgate::gate::ReserveOutcome::Admitted { .. })
}

#[rstest]
#[tokio::test]
async fn a_share_is_held_in_the_counter_and_half_of_what_is_left_stays_with_the_gate(
    #[values(Mode::Alone, Mode::Cluster)] mode: Mode,
    #[values(false, true)] is_light: bool,
) {
    let world = World::warm(mode).await;
    let counter = day(100);
    assert!(uses(&world, &counter, is_light, (0, 20)).await);
    let mut first = Instance::new(&world, 1, counter.clone(), is_light);
    first.renew().await;
    assert_eq!((first.left(), counted(&world, &counter, is_light).await), (40, (20, 40)));
    let mut second = Instance::new(&world, 2, counter.clone(), is_light);
    second.renew().await;
    assert_eq!((second.left(), counted(&world, &counter, is_light).await), (20, (20, 60)));
    first.renew().await;
    assert_eq!((first.left(), counted(&world, &counter, is_light).await), (20, (20, 60)), "not told yet");
    first.renew().await;
    assert_eq!((first.left(), counted(&world, &counter, is_light).await), (20, (20, 40)));
    assert!(uses(&world, &counter, is_light, (1, 40)).await);
    assert!(!uses(&world, &counter, is_light, (2, 1)).await, "the rest is held");
    for each in [&mut first, &mut second] {
        assert!(each.share.give_up());
        each.renew_at(START_MS, Why::GivesBack, true).await;
    }
    assert_eq!(counted(&world, &counter, is_light).await, (60, 0));
}

#[rstest]
#[tokio::test]
async fn what_was_used_of_a_share_is_counted_once_however_often_it_is_told(
    #[values(false, true)] is_light: bool,
) {
    let world = World::warm(Mode::Alone).await;
    let counter = day(100);
    let mut instance = Instance::new(&world, 1, counter.clone(), is_light);
    instance.renew().await;
    instance.share.take(30);
    for _ in 0..2 {
        instance.renew_at(START_MS, Why::Wants, false).await;
        assert_eq!(counted(&world, &counter, is_light).await, (30, 35), "it is not known what it has heard");
        assert_eq!(instance.left(), 20);
    }
    instance.share.take(20);
    instance.renew().await;
    assert_eq!((instance.left(), counted(&world, &counter, is_light).await), (25, (50, 25)));
}

#[rstest]
#[tokio::test]
async fn an_ended_share_whose_use_is_parked_comes_back_with_the_first_lease_and_was_given_up_before(
    #[values(false, true)] is_light: bool,
) {
    let world = World::warm(Mode::Alone).await;
    let counter = day(100);
    let instance = |number| Instance { charges: false, ..Instance::new(&world, number, day(100), is_light) };
    let [mut gone, mut other] = [1, 2].map(instance);
    gone.renew().await;
    assert_eq!((gone.left(), gone.left_at(START_MS + SHARE_LASTS_MS - 5_000)), (50, 0));
    other.renew_at(START_MS + SHARE_LASTS_MS - 1, Why::Wants, true).await;
    assert_eq!((other.left(), counted(&world, &counter, is_light).await), (25, (0, 75)));
    other.renew_at(START_MS + SHARE_LASTS_MS, Why::Wants, true).await;
    assert_eq!((other.left(), counted(&world, &counter, is_light).await), (50, (0, 50)));
    gone.renew_at(START_MS + SHARE_LASTS_MS, Why::Wants, true).await;
    assert_eq!(counted(&world, &counter, is_light).await, (0, 75));
}

#[rstest]
#[tokio::test]
async fn an_ended_share_of_which_only_leases_tell_stays_held_until_its_instance_has_told(
    #[values(false, true)] is_light: bool,
) {
    let world = World::warm(Mode::Alone).await;
    let counter = day(100);
    let mut silent = Instance::new(&world, 1, counter.clone(), is_light);
    let mut other = Instance::new(&world, 2, counter.clone(), is_light);
    silent.renew().await;
    silent.share.take(30);
    let later_ms = START_MS + SHARE_LASTS_MS;
    for _ in 0..2 {
        other.renew_at(later_ms, Why::Wants, true).await;
        assert_eq!((other.left_at(later_ms), counted(&world, &counter, is_light).await), (25, (0, 75)));
    }
    assert!(uses(&world, &counter, is_light, (0, 25)).await);
    assert!(!uses(&world, &counter, is_light, (1, 1)).await, "it may have been used");
    silent.renew_at(later_ms, Why::Wants, true).await;
    assert_eq!((silent.left_at(later_ms), counted(&world, &counter, is_light).await), (11, (55, 36)));
}

#[rstest]
#[tokio::test]
async fn what_was_counted_is_not_counted_again_however_late_its_instance_hears_of_it(
    #[values(false, true)] is_light: bool,
) {
    let world = World::warm(Mode::Alone).await;
    let counter = day(100);
    let mut silent = Instance::new(&world, 1, counter.clone(), is_light);
    let mut other = Instance::new(&world, 2, counter.clone(), is_light);
    silent.renew().await;
    silent.share.take(30);
    silent.share.give_up();
    silent.renew_at(START_MS, Why::GivesBack, false).await;
    let later_ms = START_MS + SHARE_LASTS_MS;
    other.renew_at(later_ms, Why::Wants, true).await;
    let bytes = || {
        let length = world.server.command(&["HSTRLEN", &hash_of(&world, is_light), "lday-----"]);
        redis::from_redis_value::<i64>(length).unwrap()
    };
    for kept in [2, 2, 1] {
        assert_eq!(bytes(), 16 + 32 * kept);
        silent.renew_at(later_ms, Why::GivesBack, true).await;
        assert_eq!(counted(&world, &counter, is_light).await.0, 30);
    }
}

#[rstest]
#[tokio::test]
async fn while_shares_are_recalled_nobody_gets_one(#[values(false, true)] is_light: bool) {
    let world = World::warm(Mode::Alone).await;
    let counter = day(100);
    let mut first = Instance::new(&world, 1, counter.clone(), is_light);
    let mut second = Instance::new(&world, 2, counter.clone(), is_light);
    first.renew().await;
    second.renew().await;
    first.share.give_up();
    first.renew_at(START_MS, Why::Recalls, true).await;
    assert_eq!(counted(&world, &counter, is_light).await, (0, 25));
    for _ in 0..2 {
        second.renew().await;
    }
    first.renew().await;
    assert_eq!((first.left(), second.left(), counted(&world, &counter, is_light).await), (0, 0, (0, 0)));
    first.renew_at(START_MS + 5 * BEAT_MS, Why::Wants, true).await;
    assert_eq!(first.left(), 25);
}

#[tokio::test]
async fn a_share_ends_with_its_window_and_with_the_gates_memory() {
    let world = World::warm(Mode::Alone).await;
    let minute = Parameters::FixedWindow(fixed_window::Parameters { length_ms: 60_000, aligned: false });
    let counter = Counter { parameters: minute, ..day(100) };
    let mut instance = Instance::new(&world, 1, counter.clone(), true);
    check_at(&world, START_MS, &counter, Some(0)).await;
    instance.renew().await;
    instance.share.take(10);
    assert_eq!((instance.left_at(START_MS + 50_000), instance.left_at(START_MS + 60_000)), (40, 0));
    check_at(&world, START_MS + 60_000, &counter, Some(0)).await;
    instance.renew_at(START_MS + 60_000, Why::Wants, true).await;
    let reading = check_at(&world, START_MS + 60_000, &counter, None).await.readings[0];
    assert_eq!(
        (reading.consumed.get(), reading.reserved.get()),
        (0, 50),
        "of the window before nothing counts"
    );
    assert_eq!(instance.left_at(START_MS + 60_000), 50);
    world.adopt(2).await;
    assert_eq!(instance.left_at(START_MS + 60_000), 0);
    instance.renew_at(START_MS + 60_000, Why::GivesBack, true).await;
    let reading = check_at(&world, START_MS + 60_000, &counter, None).await.readings[0];
    assert_eq!((reading.consumed.get(), reading.reserved.get()), (0, 0));
}

#[rstest]
#[tokio::test]
async fn a_share_begins_no_window_that_begins_with_its_first_use(#[values(false, true)] is_light: bool) {
    let world = World::warm(Mode::Alone).await;
    let window = |name, aligned| {
        let parameters = fixed_window::Parameters { length_ms: 60_000, aligned };
        Counter { parameters: Parameters::FixedWindow(parameters), ..limit(name, 100) }
    };
    let counter = window(b"minute--", false);
    let mut instance = Instance::new(&world, 1, counter.clone(), is_light);
    for why in [Why::Wants, Why::Recalls] {
        assert_eq!(instance.renew_at(START_MS, why, true).await, LeaseOutcome::StaleWindow);
        let fields = world.server.command(&["HMGET", &hash_of(&world, is_light), "minute--", "lminute--"]);
        assert_eq!(fields, redis::Value::Array(vec![redis::Value::Nil; 2]));
    }
    let used_ms = START_MS + 40_000;
    assert!(uses_at(&world, used_ms, &counter, is_light, (0, 20)).await);
    instance.renew_at(used_ms, Why::Wants, true).await;
    assert_eq!((instance.left_at(used_ms), instance.left_at(used_ms + 50_000)), (40, 40));
    for now_ms in [used_ms + 60_000, used_ms + 60_001] {
        let outcome = instance.renew_at(now_ms, Why::Wants, true).await;
        assert_eq!((outcome, instance.left_at(now_ms)), (LeaseOutcome::StaleWindow, 0));
    }
    let mut aligned = Instance::new(&world, 1, window(b"aligned-", true), is_light);
    aligned.renew().await;
    assert_eq!(aligned.left(), 50, "it begins whether it is used or not");
}

#[tokio::test]
async fn a_tenant_that_the_gate_does_not_know_and_a_window_that_is_over_have_no_shares() {
    let world = World::cold(Mode::Alone).await;
    let mut instance = Instance::new(&world, 1, day(100), false);
    assert_eq!(instance.renew_at(START_MS, Why::Wants, true).await, LeaseOutcome::Cold);
    world.warm_up(Default::default()).await;
    assert_eq!(instance.renew_at(WINDOW.1, Why::Wants, true).await, LeaseOutcome::StaleWindow);
    assert_eq!(instance.left(), 0);
}

#[tokio::test]
async fn a_subject_that_the_ledger_must_restore_has_no_share_and_its_counter_is_not_made() {
    let world = World::cold(Mode::Alone).await;
    let ada = user("ada");
    let filter = SubjectFilter::of(&[world.hash(&ada)]);
    let subjects = KnownSubjects::Some { filter, until_ms: WINDOW.1 };
    world.warm_up(WarmState { subjects, ..WarmState::default() }).await;
    let counter = of_subject(1, limit(b"users---", 10));
    let mut instance = Instance::new(&world, 1, counter, false);
    instance.subject = Some(ada.clone());
    assert_eq!(instance.renew_at(START_MS, Why::Wants, true).await, LeaseOutcome::Cold);
    assert_eq!(instance.left(), 0);
    world.tell_subject(&ada, told(&[(b"users---", 0, 8)])).await;
    instance.renew().await;
    assert_eq!(instance.left(), 1, "half of what the restored hold leaves");
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[rstest]
#[tokio::test]
async fn whatever_answers_are_lost_gate_and_instances_together_admit_no_more_than_the_capacity(
    #[values(false, true)] is_light: bool,
    #[values(1, 2, 3, 4)] seed: u64,
) {
    let world = World::warm(Mode::Alone).await;
    let counter = day(60);
    let mut instances: Vec<_> =
        (1..=3).map(|number| Instance::new(&world, number, counter.clone(), is_light)).collect();
    let (mut dice, mut admitted, mut now_ms) = (Dice(seed), 0, START_MS);
    for step in 0..250 {
        // Now and then all are silent for as long as a share lasts.
        if dice.roll(25) == 0 {
            now_ms += SHARE_LASTS_MS;
        }
        let instance = &mut instances[usize::try_from(dice.roll(3)).unwrap()];
        let amount = i64::try_from(1 + dice.roll(3)).unwrap();
        match dice.roll(6) {
            0 if uses_at(&world, now_ms, &counter, is_light, (step, amount)).await => admitted += amount,
            1 | 2 if instance.left_at(now_ms) >= amount => {
                instance.share.take(amount);
                admitted += amount;
            }
            3 => {
                instance.share.give_up();
                let hears = dice.roll(2) == 0;
                instance.renew_at(now_ms, Why::Recalls, hears).await;
            }
            4 | 5 => {
                let hears = dice.roll(3) > 0;
                instance.renew_at(now_ms, Why::Wants, hears).await;
            }
            _ => {}
        }
        let left: i64 = instances.iter().map(|instance| instance.left_at(now_ms)).sum();
        assert!(admitted + left <= 60, "step {step}: {admitted} admitted, {left} left");
    }
    for instance in &mut instances {
        instance.share.give_up();
        instance.renew_at(now_ms, Why::GivesBack, true).await;
    }
    assert_eq!(counted(&world, &counter, is_light).await, (admitted, 0), "every unit once");
}
