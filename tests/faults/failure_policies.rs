//! Redis stopped, frozen, slow and restarted under load over three instances: each limit's failure policy answers as it
//! says and in time, nothing is lost, and the books equal the gate afterwards.

mod answers;
mod load;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::block_in_place;
use tollgate::app::{App, Role};
use tollgate::gate::BreakerState;

use super::gate_away::PATIENCE;
use crate::ledger::rows;
use crate::support::app::*;
use crate::support::caller::Caller;
use crate::support::process::from_environment;
use crate::support::wait::wait_for;

use answers::{check_answers, check_in_flight, check_restore, check_times, print_answers};
use load::{AFTER, END, FAULT, Run, Seen, Stream, first_calls, load, noise};

const TIMEOUT: Duration = Duration::from_millis(250);
const SLACK: Duration = Duration::from_millis(100);
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// Later than any answer in time.
const SLOW_MS: u64 = 300;
/// How soon Redis is started again after a crash.
const STARTED_AFTER: Duration = Duration::from_secs(1);
const POLICIES: [&str; 4] = ["deny", "emergency", "local", "allow"];
const LOCAL: usize = 2;
const INSTANCES: usize = 3;
/// What each instance admits in an emergency.
const CAP: usize = 2;
/// Calls that are repeated or measured at once.
const AT_ONCE: usize = 32;
const CHECK: &str = "/v1/ratelimit/check";

/// A call that is made again and again, each by limits of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// A usage, under a calendar's day.
    Use,
    /// A reservation, under a fixed window.
    Hold,
    /// The end of a reservation: a consume or a release.
    End,
    /// A check of what is not booked, under a token bucket.
    Check,
}

impl Call {
    const ALL: [Self; 4] = [Self::Use, Self::Hold, Self::End, Self::Check];
    /// Those that begin at times of their own.
    const BEGUN: [Self; 3] = [Self::Use, Self::Hold, Self::Check];

    /// Its meter for limits of this policy: also the name of the limit, and of the operation that is checked.
    fn meter(self, policy: &str) -> String {
        match self {
            Self::Use => policy.to_owned(),
            Self::Hold | Self::End => format!("held-{policy}"),
            Self::Check => format!("checked-{policy}"),
        }
    }

    fn body(self, policy: &str) -> Value {
        let meter = self.meter(policy);
        match self {
            Self::Check => json!({ "tenant": "acme", "operation": meter }),
            Self::Use => json!({ "tenant": "acme", "meter": meter, "amount": "1" }),
            _ => json!({ "tenant": "acme", "meter": meter, "amount": "1" }).lasting(3_600),
        }
    }
}

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
                Self { fault, rate: 60, slack, noise_max: Duration::MAX }
            }
        }
    }

    /// The time between two calls of a stream: of each policy two usages, a reservation with its end, and a check.
    fn each(&self, call: Call) -> Duration {
        let round = Duration::from_secs(5 * POLICIES.len() as u64) / self.rate;
        if call == Call::Use { round / 2 } else { round }
    }

    /// So many that the shares of all instances, at most a half of it, are used up before the fault ends, and that each
    /// instance has one.
    fn local_capacity(&self, call: Call) -> usize {
        let calls = self.fault.as_nanos() / self.each(call).as_nanos();
        usize::try_from(calls).unwrap() + 2 * INSTANCES
    }
}

/// Answered calls a second, each sent when an earlier one is answered.
async fn peak(app: &TestApp, instances: &[App]) -> u32 {
    const SECONDS: u32 = 3;
    let end = Instant::now() + Duration::from_secs(SECONDS.into());
    let callers = (0..AT_ONCE).map(|number| {
        let caller = app.caller().at(instances[number % instances.len()].url());
        tokio::spawn(async move {
            let (mut answered, mut round) = (0, 0);
            while Instant::now() < end {
                for key in [format!("peak-{number}-{round}-a"), format!("peak-{number}-{round}-b")] {
                    caller.post_keyed(USAGE, &key, Call::Use.body("peak")).await.expect(201);
                }
                let held = caller.post(RESERVATIONS, Call::Hold.body("peak")).await.expect(201);
                let consume = reservation(held.text("/id"), "consume");
                caller.post(&consume, json!({ "amount": "1" })).await.expect(200);
                caller.post(CHECK, Call::Check.body("peak")).await.expect(200);
                answered += 5;
                round += 1;
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
    /// It is killed and started again at once. What begins until each instance decides again is judged too.
    Restarted,
}

impl Fault {
    fn lasts(self, size: Size) -> Duration {
        if self == Self::Restarted { STARTED_AFTER } else { size.fault }
    }

    /// After it each counter of class rate begins again, and no share is known any more.
    fn loses_memory(self) -> bool {
        matches!(self, Self::Stopped | Self::Restarted)
    }

    /// How long a call waits for what is restored: as long as by default where that is measured.
    fn restore_wait(self) -> Duration {
        let is_measured = from_environment("TOLLGATE_OUTAGE_SECONDS").is_some() && self == Self::Restarted;
        Duration::from_secs(if is_measured { 2 } else { 8 })
    }
}

/// The limit of a call under this policy.
fn limit_of(call: Call, policy: &str, local_capacity: usize) -> Value {
    let meter = call.meter(policy);
    let capacity = if policy == "local" { local_capacity } else { 1_000_000 };
    let limit = json!({
        "id": meter, "meter": meter, "capacity": capacity.to_string(), "on_gate_failure": policy
    });
    let limit = match call {
        Call::Use => limit.with("window", "day"),
        // Instances have shares of what counts by windows only.
        Call::Check if policy != "local" => {
            limit.with("algorithm", "token_bucket").with("refill", "1000000").with("per_seconds", 86_400)
        }
        _ => limit.with("algorithm", "fixed_window").with("window_seconds", 86_400),
    };
    match policy {
        "emergency" => limit.with("emergency_capacity", CAP.to_string()),
        "local" => limit.with("class", "rate"),
        _ => limit,
    }
}

async fn with_limits(app: &TestApp, local_capacity: impl Fn(Call) -> usize) {
    for (call, policy) in Call::BEGUN.into_iter().flat_map(|call| POLICIES.map(|policy| (call, policy))) {
        define_meter(app, call, policy, "deny").await;
    }
    for call in Call::BEGUN {
        define_meter(app, call, "peak", "unlimited").await;
    }
    let limits: Vec<_> = Call::BEGUN
        .into_iter()
        .flat_map(|call| POLICIES.map(|policy| limit_of(call, policy, local_capacity(call))))
        .collect();
    app.define("plans/plan", json!({ "limits": limits })).await;
    app.define("tenants/acme", json!({ "plan": "plan" })).await;
}

async fn define_meter(app: &TestApp, call: Call, policy: &str, without_limit: &str) {
    let (meter, booked) = (call.meter(policy), call != Call::Check);
    let definition = json!({ "unit": "page", "booked": booked, "without_limit": without_limit });
    app.define(&format!("meters/{meter}"), definition).await;
    if !booked {
        let costs = json!({ "costs": [{ "meter": meter, "base": "1" }] });
        app.define(&format!("operations/{meter}"), costs).await;
    }
}

/// Waits until each instance has the last policy.
async fn known_to(callers: &[Caller; INSTANCES], local_capacity: usize) {
    let capacity = local_capacity.to_string();
    for caller in callers {
        wait_for("the instance has the policy", PATIENCE, async || {
            let quota = caller.get("/v1/tenants/acme/quota").await.body;
            let mut limits = quota["limits"].as_array()?.iter();
            limits.find(|limit| limit["id"] == "local" && limit["capacity"] == capacity.as_str()).map(|_| ())
        })
        .await;
    }
}

async fn consumed(app: &TestApp, meter: &str) -> usize {
    let sum = format!(
        "SELECT coalesce(sum(consumed), 0)::bigint FROM usage_hourly WHERE subject = 0 AND meter = '{meter}'"
    );
    rows(&app.database, &sum).await[0].parse().unwrap()
}

async fn breakers_close(instances: &[App]) -> Duration {
    let began = Instant::now();
    wait_for("the breakers close", PATIENCE, async || {
        instances.iter().all(|each| each.gate.breaker_state() == BreakerState::Closed).then_some(())
    })
    .await;
    began.elapsed()
}

/// Waits until each instance decides by the gate again.
async fn decided_again(callers: &[Caller; INSTANCES]) {
    for caller in callers {
        wait_for("the gate decides again", PATIENCE, async || {
            let dry = caller.post(RESERVATIONS, Call::Use.body("deny").with("dry_run", true)).await;
            (dry.status == 200).then_some(())
        })
        .await;
    }
}

/// Waits until all instances have their shares.
async fn shared_out(app: &TestApp, instances: &[App; INSTANCES]) {
    let renewed = async || {
        for instance in instances {
            instance.operations.outage.renew_shares().await;
        }
    };
    wait_for("all have shares", PATIENCE, async || {
        renewed().await;
        let quota = app.get("/v1/tenants/acme/quota").await.body;
        let limits = quota["limits"].as_array()?;
        let is_shared = |id: &str| limits.iter().any(|limit| limit["id"] == id && limit["reserved"] != "0");
        (is_shared("local") && is_shared("held-local")).then_some(())
    })
    .await;
    // Who came first has had more: each comes down to an equal share.
    renewed().await;
    renewed().await;
}

/// Redis fails while calls go on, and is there again. Returns all answers, when the fault began, and after how long the
/// breakers were closed again.
async fn under_load(
    app: &mut TestApp,
    instances: &[App; INSTANCES],
    (fault, size): (Fault, Size),
    delay_ms: &AtomicU64,
) -> (Vec<Seen>, Instant, Duration, [Duration; 2]) {
    let callers: [Caller; INSTANCES] = std::array::from_fn(|number| app.caller().at(instances[number].url()));
    known_to(&callers, size.local_capacity(Call::Use)).await;
    let run = Arc::new(Run::default());
    let first = first_calls(&callers, &run).await;
    let loads: Vec<_> = Stream::all()
        .map(|stream| tokio::spawn(load(callers.clone(), stream, size.each(stream.call), run.clone())))
        .collect();
    shared_out(app, instances).await;
    let noise = tokio::spawn(noise(app.caller(), run.clone()));
    run.is_under_way().await;

    let frozen = match fault {
        Fault::Stopped => block_in_place(|| app.redis.stop()).map(|()| None).unwrap(),
        Fault::Restarted => block_in_place(|| app.redis.kill9()).map(|()| None).unwrap(),
        Fault::Frozen => Some(app.redis.freeze()),
        Fault::Slow => {
            delay_ms.store(SLOW_MS, Ordering::SeqCst);
            None
        }
    };
    let fault_began = Instant::now();
    run.enter(FAULT);
    tokio::time::sleep(fault.lasts(size)).await;
    run.enter(AFTER);
    delay_ms.store(0, Ordering::SeqCst);
    drop(frozen);
    if fault.loses_memory() {
        block_in_place(|| app.redis.restart()).unwrap();
    }
    let closed_after = breakers_close(instances).await;
    decided_again(&callers).await;
    run.enter(END);
    let mut seen = try_join_all(loads).await.unwrap().concat();
    seen.extend(first);
    (seen, fault_began, closed_after, noise.await.unwrap())
}

#[rstest::rstest]
#[case::stopped(Fault::Stopped)]
#[case::frozen(Fault::Frozen)]
#[case::slow(Fault::Slow)]
#[case::restarted(Fault::Restarted)]
#[tokio::test(flavor = "multi_thread")]
async fn each_policy_answers_in_time_and_nothing_is_lost(#[case] fault: Fault) {
    let mut app = an_app().with("redis.response_timeout_ms", TIMEOUT.as_millis()).start().await;
    with_limits(&app, |_| 1).await;
    let (delay_ms, url) = slow_way(&app).await;
    let settings = [
        ("redis.url", url),
        ("redis.response_timeout_ms", TIMEOUT.as_millis().to_string()),
        ("ledger.restore_wait_ms", fault.restore_wait().as_millis().to_string()),
    ];
    let one_more = async || app.another_with(&[Role::Http], &settings).await;
    let instances = [one_more().await, one_more().await, one_more().await];
    let size = Size::of(&app, &instances).await;
    with_limits(&app, |call| size.local_capacity(call)).await;

    let (seen, fault_began, closed_after, noise) =
        under_load(&mut app, &instances, (fault, size), &delay_ms).await;
    print_answers(fault, &seen, closed_after, noise);
    let [noise, noise_after] = noise;
    assert!(noise <= size.noise_max, "the machine is too busy to be measured: {noise:?} of noise");
    // Four steps follow one another: it waits for Redis, then for what is being parked, is parked, and is answered.
    let in_time = TIMEOUT + size.slack + 4 * noise;
    check_times(&seen, Seen::began_within, in_time);
    check_in_flight(&seen, fault_began + in_time);
    if fault == Fault::Restarted {
        // Then it may wait for the restore too, as long as the settings say.
        check_times(&seen, Seen::began_after, in_time + 4 * noise_after + fault.restore_wait());
        check_restore(&seen);
    }
    check_answers(&seen, fault, size);
    assert!(closed_after <= BACK_WITHIN + noise, "{fault:?}: the breakers closed after {closed_after:?}");
    check_books(&app, &instances, fault, seen, size).await;
    for instance in instances {
        instance.stop().await;
    }
    app.finish().await;
}

/// Repeats what was not decided until it is, and ends what it holds. Returns whether it was admitted.
async fn admitted_in_the_end(caller: &Caller, each: &Seen) -> bool {
    let (mut is_admitted, mut id) = (each.admitted, each.id.clone());
    if each.status == 503 {
        let answer = wait_for("it is decided", PATIENCE, async || {
            let answer = each.stream.ask(caller, each.number).await;
            (answer.status != 503).then_some(answer)
        })
        .await;
        is_admitted = matches!(answer.status, 200 | 201);
        id = answer.text("/id").to_owned();
    }
    if is_admitted && each.stream.call == Call::Hold {
        wait_for("it ends", PATIENCE, async || {
            let answer = each.stream.end(caller, each.number, &id).await;
            (answer.status != 503).then(|| answer.expect(200))
        })
        .await;
    }
    is_admitted
}

/// Repeats what was not decided, then compares the books with what was answered.
async fn check_books(app: &TestApp, instances: &[App; INSTANCES], fault: Fault, seen: Vec<Seen>, size: Size) {
    let caller = app.caller().at(instances[1].url());
    let (checks, calls): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|each| each.stream.call == Call::Check);
    let begun = calls.into_iter().filter(|each| each.stream.call != Call::End);
    let decided = stream::iter(begun).map(async |each| {
        let admitted = admitted_in_the_end(&caller, &each).await;
        Seen { admitted, ..each }
    });
    let mut seen: Vec<_> = decided.buffer_unordered(AT_ONCE).collect().await;
    seen.extend(checks);
    app.drained_within(PATIENCE).await;
    for stream in Stream::all() {
        let of: Vec<_> = seen.iter().filter(|each| each.stream == stream).collect();
        let admitted = of.iter().filter(|each| each.admitted);
        let count = admitted.clone().count();
        let is_local = stream.policy == LOCAL;
        let most = size.local_capacity(stream.call);
        assert!(!is_local || fault.loses_memory() || count <= most, "{stream:?}: {count} of {most}");
        if stream.call == Call::Check {
            continue;
        }
        assert!(is_local || count == of.len(), "{fault:?}: {stream:?}");
        let used = admitted.filter(|each| stream.call == Call::Use || stream.consumes(each.number)).count();
        let meter = stream.call.meter(POLICIES[stream.policy]);
        assert_eq!(consumed(app, &meter).await, used, "{fault:?}: {stream:?}");
    }
}
