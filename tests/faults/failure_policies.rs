//! Redis stopped, frozen and slow under load over two instances: each limit's failure policy answers as it says and in
//! time, nothing is lost, and the books equal the gate afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::{JoinSet, block_in_place};
use tollgate::app::{App, Role};
use tollgate::gate::BreakerState;

use super::gate_away::PATIENCE;
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::caller::Caller;
use crate::support::process::from_environment;
use crate::support::wait::wait_for;

const TIMEOUT: Duration = Duration::from_millis(250);
const SLACK: Duration = Duration::from_millis(100);
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// Later than any answer in time.
const SLOW_MS: u64 = 300;
const POLICIES: [&str; 4] = ["deny", "emergency", "local", "allow"];
const LOCAL: usize = 2;
const CAP: usize = 10;
/// Calls that are repeated or measured at once.
const AT_ONCE: usize = 32;

/// How long the fault lasts, and how many calls begin in a second: few in the suite, half of the measured peak in
/// `make outage`.
#[derive(Debug, Clone, Copy)]
struct Size {
    fault: Duration,
    rate: u32,
    /// How much later than the timeout an answer may be. Other tests keep the machine busy in the suite; there it is a
    /// call that waits for the end of the fault which is to be found.
    slack: Duration,
    /// With more noise it is not measured.
    noise_max: Duration,
}

impl Size {
    async fn of(app: &TestApp, instances: &[App]) -> Self {
        match from_environment("TOLLGATE_OUTAGE_SECONDS") {
            Some(seconds) => {
                let peak = peak(app, instances).await;
                let rate = peak / 2;
                println!("{peak} calls a second at the most, {rate} under the fault of {seconds} s");
                let (fault, noise_max) = (Duration::from_secs(seconds), Duration::from_millis(100));
                Self { fault, rate, slack: SLACK, noise_max }
            }
            None => {
                let (fault, slack) = (Duration::from_secs(3), 5 * SLACK);
                Self { fault, rate: 40, slack, noise_max: Duration::MAX }
            }
        }
    }

    /// So many that the shares of both instances, at most a half of it, are used up before the fault ends.
    fn local_capacity(&self) -> usize {
        let under_a_policy = u64::from(self.rate) / POLICIES.len() as u64;
        usize::try_from(under_a_policy * self.fault.as_secs()).unwrap()
    }
}

/// Answered calls a second, each sent when an earlier one is answered.
async fn peak(app: &TestApp, instances: &[App]) -> u32 {
    const SECONDS: u32 = 3;
    let end = Instant::now() + Duration::from_secs(SECONDS.into());
    let callers = (0..AT_ONCE).map(|number| {
        let caller = app.caller().at(instances[number % instances.len()].url());
        tokio::spawn(async move {
            let mut answered = 0;
            while Instant::now() < end {
                caller
                    .post_keyed(USAGE, &format!("peak-{number}-{answered}"), work_on("peak"))
                    .await
                    .expect(201);
                answered += 1;
            }
            answered
        })
    });
    let answered: u32 = try_join_all(callers).await.unwrap().into_iter().sum();
    answered / SECONDS
}

/// A way to Redis on which requests may be delayed.
async fn slow_way(app: &TestApp) -> (Arc<AtomicU64>, String) {
    let delay_ms = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let (socket, delay) = (app.redis.socket(), delay_ms.clone());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = UnixStream::connect(&socket).await else { continue };
            let delay = delay.clone();
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(async move {
                let mut request = vec![0; 1 << 16];
                while let Ok(read @ 1..) = from_client.read(&mut request).await {
                    tokio::time::sleep(Duration::from_millis(delay.load(Ordering::SeqCst))).await;
                    if to_server.write_all(&request[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (delay_ms, url)
}

/// What Redis does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Stopped,
    Frozen,
    Slow,
}

/// An answer, and the phase in which the call began and ended: before the fault, in it, after it.
#[derive(Debug, Clone)]
struct Seen {
    policy: usize,
    key: String,
    status: u16,
    degraded: bool,
    phases: (u64, u64),
    took: Duration,
    ended: Instant,
}

impl Seen {
    /// Whether it began in the fault, whenever it ended.
    fn began_within(&self) -> bool {
        self.phases.0 == 1
    }

    /// Whether it was in flight when the fault began.
    fn was_in_flight(&self) -> bool {
        self.phases.0 == 0 && self.phases.1 > 0
    }
}

/// Calls under one policy that begin at their time, whether earlier ones are answered or not. They are timed from when
/// they were to begin.
async fn load(callers: [Caller; 2], policy: usize, each: Duration, phase: Arc<AtomicU64>) -> Vec<Seen> {
    // What is shared out is not to be used up before the fault.
    let before = if policy == LOCAL { 10 * each } else { each };
    let mut at = tokio::time::Instant::now();
    let (mut number, mut calls) = (0, JoinSet::new());
    loop {
        tokio::time::sleep_until(at).await;
        let began = phase.load(Ordering::SeqCst);
        if began == 3 {
            return calls.join_all().await;
        }
        let (caller, key, phase) = (callers[number % 2].clone(), format!("{policy}-{number}"), phase.clone());
        calls.spawn(async move {
            let answer = caller.post_keyed(USAGE, &key, work(policy)).await;
            let (took, phases) = (at.elapsed(), (began, phase.load(Ordering::SeqCst)));
            let degraded = answer.body["degraded"] == json!(true);
            Seen { policy, key, status: answer.status, degraded, phases, took, ended: Instant::now() }
        });
        at += if began == 0 { before } else { each };
        number += 1;
    }
}

fn work(policy: usize) -> Value {
    work_on(POLICIES[policy])
}

fn work_on(meter: &str) -> Value {
    json!({ "tenant": "acme", "meter": meter, "amount": "1" })
}

async fn with_limits(app: &TestApp, local_capacity: usize) {
    app.define("meters/peak", json!({ "unit": "page", "without_limit": "unlimited" })).await;
    let mut limits = Vec::new();
    for policy in POLICIES {
        app.define(&format!("meters/{policy}"), json!({ "unit": "page" })).await;
        let mut limit = json!({
            "id": policy, "meter": policy, "window": "day", "capacity": "1000000", "on_gate_failure": policy
        });
        match policy {
            "emergency" => limit["emergency_capacity"] = json!(CAP.to_string()),
            "local" => {
                limit["class"] = json!("rate");
                limit["capacity"] = json!(local_capacity.to_string());
            }
            _ => {}
        }
        limits.push(limit);
    }
    app.define("plans/plan", json!({ "limits": limits })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
}

async fn consumed(app: &TestApp, meter: &str) -> usize {
    let sum = format!(
        "SELECT coalesce(sum(consumed), 0)::bigint FROM usage_hourly WHERE subject = 0 AND meter = '{meter}'"
    );
    rows(&app.database, &sum).await[0].parse().unwrap()
}

/// How late an instance without that load answers a call that needs Postgres but not Redis, at the worst. It is timed
/// from when it was to begin.
async fn noise(caller: Caller, phase: Arc<AtomicU64>) -> Duration {
    const NAP: Duration = Duration::from_millis(20);
    let mut late = Duration::ZERO;
    while phase.load(Ordering::SeqCst) < 2 {
        let began = Instant::now();
        tokio::time::sleep(NAP).await;
        caller.get("/v1/admin/jobs").await.expect(200);
        late = late.max(began.elapsed() - NAP);
    }
    late
}

fn at_99(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

async fn breakers_close(instances: &[App]) -> Duration {
    let began = Instant::now();
    wait_for("the breakers close", PATIENCE, async || {
        instances.iter().all(|each| each.gate.breaker_state() == BreakerState::Closed).then_some(())
    })
    .await;
    began.elapsed()
}

#[rstest::rstest]
#[case::stopped(Fault::Stopped)]
#[case::frozen(Fault::Frozen)]
#[case::slow(Fault::Slow)]
#[tokio::test(flavor = "multi_thread")]
async fn each_policy_answers_in_time_and_nothing_is_lost(#[case] fault: Fault) {
    let mut app = an_app().with("redis.response_timeout_ms", TIMEOUT.as_millis()).start().await;
    with_limits(&app, 1).await;
    let (delay_ms, url) = slow_way(&app).await;
    let timeout = TIMEOUT.as_millis().to_string();
    let settings = [("redis.url", url), ("redis.response_timeout_ms", timeout)];
    let instances =
        [app.another_with(&[Role::Http], &settings).await, app.another_with(&[Role::Http], &settings).await];
    let size = Size::of(&app, &instances).await;
    with_limits(&app, size.local_capacity()).await;
    let phase = Arc::new(AtomicU64::new(0));
    let each = Duration::from_secs(POLICIES.len() as u64) / size.rate;
    let loads = std::array::from_fn::<_, { POLICIES.len() }, _>(|policy| {
        let callers = [0, 1].map(|number: usize| app.caller().at(instances[number].url()));
        tokio::spawn(load(callers, policy, each, phase.clone()))
    });
    shared_out(&app, &instances).await;
    let noise = tokio::spawn(noise(app.caller(), phase.clone()));

    let frozen = match fault {
        Fault::Stopped => block_in_place(|| app.redis.stop()).map(|()| None).unwrap(),
        Fault::Frozen => Some(app.redis.freeze()),
        Fault::Slow => {
            delay_ms.store(SLOW_MS, Ordering::SeqCst);
            None
        }
    };
    let fault_began = Instant::now();
    phase.store(1, Ordering::SeqCst);
    tokio::time::sleep(size.fault).await;
    phase.store(2, Ordering::SeqCst);
    delay_ms.store(0, Ordering::SeqCst);
    drop(frozen);
    if fault == Fault::Stopped {
        block_in_place(|| app.redis.restart()).unwrap();
    }
    let closed_after = breakers_close(&instances).await;
    wait_for("the gate decides again", PATIENCE, async || {
        let look = app.caller().at(instances[0].url());
        let dry = look.post(RESERVATIONS, work(0).with("dry_run", true)).await;
        (dry.status == 200).then_some(())
    })
    .await;
    phase.store(3, Ordering::SeqCst);
    let seen = try_join_all(loads).await.unwrap().concat();
    let noise = noise.await.unwrap();
    print_answers(fault, &seen, closed_after, noise);
    assert!(noise <= size.noise_max, "the machine is too busy to be measured: {noise:?} of noise");
    check_times(&seen, size, fault_began, noise);
    check_answers(&seen, size.local_capacity());
    assert!(closed_after <= BACK_WITHIN + noise, "{fault:?}: the breakers closed after {closed_after:?}");
    check_books(&app, &instances, fault, seen, size.local_capacity()).await;
    for instance in instances {
        instance.stop().await;
    }
    app.finish().await;
}

/// Waits until both instances have their shares.
async fn shared_out(app: &TestApp, instances: &[App]) {
    wait_for("both have shares", PATIENCE, async || {
        let quota = app.get("/v1/tenants/acme/quota").await.body;
        let mut limits = quota["limits"].as_array()?.iter();
        limits.find(|limit| limit["id"] == "local" && limit["reserved"] != "0").map(|_| ())
    })
    .await;
    for _ in 0..2 {
        for instance in instances {
            instance.operations.outage.renew_shares().await;
        }
    }
}

/// The answers under each policy to what began in the fault, as a table.
fn print_answers(fault: Fault, seen: &[Seen], closed_after: Duration, noise: Duration) {
    println!(
        "{fault:?}: breakers closed {closed_after:.0?} after its end, a call without Redis took up to {noise:.1?}"
    );
    println!("  policy       answers  admitted   refused     p50 ms     p99 ms");
    for (policy, name) in POLICIES.iter().enumerate() {
        let of: Vec<_> = seen.iter().filter(|each| each.policy == policy && each.began_within()).collect();
        let admitted = of.iter().filter(|each| each.status == 201).count();
        let mut times: Vec<_> = of.iter().map(|each| each.took).collect();
        let (slow, middle) = (at_99(&mut times).as_millis(), times[times.len() / 2].as_millis());
        println!(
            "  {name:<10} {:>9} {admitted:>9} {:>9} {middle:>10} {slow:>10}",
            of.len(),
            of.len() - admitted
        );
    }
}

/// What began in the fault was answered in time under each policy, and each call that was in flight as it began was
/// answered in time after that. A call that waits until the fault is over counts.
fn check_times(seen: &[Seen], size: Size, fault_began: Instant, noise: Duration) {
    // Four steps follow one another: it waits for Redis, then for what is being parked, is parked, and is answered.
    let in_time = TIMEOUT + size.slack + 4 * noise;
    for (policy, name) in POLICIES.iter().enumerate() {
        let mut of: Vec<_> =
            seen.iter().filter(|each| each.policy == policy && each.began_within()).collect();
        let slowest = at_99(&mut of.iter().map(|each| each.took).collect::<Vec<_>>());
        of.sort_by_key(|each| std::cmp::Reverse(each.took));
        let few: Vec<_> = of.iter().take(12).map(|each| (each.status, each.phases.1, each.took)).collect();
        assert!(
            slowest <= in_time,
            "{name}: 99 of 100 of {} within {slowest:?}, of {noise:?} noise; the slowest {few:?}",
            of.len()
        );
    }
    let is_late = |each: &&Seen| each.was_in_flight() && each.ended > fault_began + in_time;
    let late: Vec<_> = seen.iter().filter(is_late).collect();
    assert!(late.is_empty(), "in flight when it began, of {noise:?} noise: {late:?}");
}

/// What was answered while the fault lasted.
fn check_answers(seen: &[Seen], local_capacity: usize) {
    let within = |each: &&Seen| each.phases == (1, 1);
    for (policy, name) in POLICIES.iter().enumerate() {
        let of = |status: u16| {
            seen.iter().filter(within).filter(|each| each.policy == policy && each.status == status).count()
        };
        let (admitted, denied) = (of(201), of(503));
        let began = |each: &&Seen| each.policy == policy && each.began_within();
        let refused = seen.iter().filter(began).filter(|each| each.status == 503).count();
        let all = seen.iter().filter(within).filter(|each| each.policy == policy).count();
        let degraded = seen.iter().filter(|each| each.policy == policy && each.degraded);
        let by_itself = degraded.filter(|each| each.status == 201).count();
        assert_eq!(admitted + denied, all, "{name}");
        assert!(all > 10, "{name}: {all}");
        let is_as_said = match *name {
            "deny" => admitted == 0,
            "emergency" => (CAP..=2 * CAP).contains(&by_itself) && refused > 0,
            // On a slow machine the shares may outlast the fault.
            "local" => admitted > 0 && (refused > 0 || admitted < local_capacity),
            _ => denied == 0,
        };
        assert!(is_as_said, "{name}: {admitted} admitted, {by_itself} in all, {refused} refused");
        let of_share = seen.iter().filter(|each| each.policy == policy && each.phases.0 < 2);
        let so_far = of_share.filter(|each| each.status == 201).count();
        assert!(*name != "local" || so_far <= local_capacity, "{so_far} under a limit of {local_capacity}");
    }
    assert!(seen.iter().filter(within).filter(|each| each.status == 201).all(|each| each.degraded));
}

/// Repeats what was not decided, then compares the books with what was answered.
async fn check_books(
    app: &TestApp,
    instances: &[App; 2],
    fault: Fault,
    seen: Vec<Seen>,
    local_capacity: usize,
) {
    let caller = app.caller().at(instances[1].url());
    let decided = stream::iter(seen).map(async |each| {
        if each.status != 503 {
            return each;
        }
        let status = wait_for("it is decided", PATIENCE, async || {
            let answer = caller.post_keyed(USAGE, &each.key, work(each.policy)).await;
            (answer.status != 503).then_some(answer.status)
        })
        .await;
        Seen { status, ..each }
    });
    let seen: Vec<_> = decided.buffer_unordered(AT_ONCE).collect().await;
    app.drained().await;
    for (policy, name) in POLICIES.iter().enumerate() {
        let of = seen.iter().filter(|each| each.policy == policy);
        let admitted = of.clone().filter(|each| matches!(each.status, 200 | 201)).count();
        assert_eq!(consumed(app, name).await, admitted, "{fault:?}: {name}");
        assert!(*name == "local" || admitted == of.count(), "{fault:?}: {name}");
        assert!(*name != "local" || fault == Fault::Stopped || admitted <= local_capacity, "{admitted}");
    }
}
