//! A service in a process of its own, a second instance and a writer in this one, and the faults that hit them.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::task::{JoinHandle, block_in_place, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tollgate::app::{App, Role};

use super::account::Account;
use super::sequence::{Fault, MAX_LIFE_SECONDS, Sequence, Strike};
use super::tenant::{Journal, Tenant};
use crate::ledger::as_owner;
use crate::support::app::*;
use crate::support::caller::Callers;
use crate::support::process::{PATIENCE, Service};
use crate::support::wait::wait_for;

/// Early in a day and in a month, so that no window ends meanwhile.
const START: &str = "2026-03-10T00:30:00Z";
/// What runs in the process that is killed.
const ROLES: &str = "http,jobs";

pub(super) struct World {
    /// The servers, and an instance that answers calls and neither books nor sweeps.
    pub(super) app: TestApp,
    service: Service,
    writer: Option<App>,
    starting: Option<JoinHandle<Service>>,
    /// How many sequences it has seen.
    pub(super) sequences: u64,
    /// The tenants whose memory Redis was emptied of.
    pub(super) forgotten: BTreeSet<String>,
}

impl World {
    pub(super) async fn begin() -> Self {
        let app = an_app().at(START).without_writer().without_jobs().start().await;
        let writer = app.another_instance_with(&[Role::Writer]).await;
        let serving = app.serving(ROLES, "127.0.0.1:0".to_owned());
        let service = block_in_place(|| Service::start(serving));
        Self { app, service, writer: Some(writer), starting: None, sequences: 0, forgotten: BTreeSet::new() }
    }

    /// One that calls this instance first, and the other where it does not answer.
    fn caller(&self, first: usize) -> Callers {
        let mut addresses = self.addresses();
        addresses.rotate_left(first % 2);
        Callers::of(self.app.key(), addresses)
    }

    fn addresses(&self) -> [String; 2] {
        [self.service.address.clone(), self.app.url().trim_start_matches("http://").to_owned()]
    }

    /// Makes the policy of a sequence, and its tenants.
    pub(super) async fn prepare(&mut self, sequence: &Sequence, journal: &Journal) -> Vec<Tenant> {
        self.sequences += 1;
        let number = self.sequences;
        let meters = ["in", "out"].map(|meter| format!("{meter}.{number}"));
        for (meter, rule) in meters.iter().zip(sequence.rules) {
            let body = json!({
                "unit": "unit", "without_limit": "unlimited", "max_life_seconds": MAX_LIFE_SECONDS,
                "on_excess": rule.on_excess, "on_late": rule.on_late, "late_within_seconds": rule.late_within_ms / 1000,
            });
            self.put(&format!("meters/{meter}"), body).await;
        }
        let mut tenants = Vec::new();
        for (at, plan) in sequence.plans.iter().enumerate() {
            let name = format!("tenant-{number}-{at}");
            self.put(&format!("plans/{name}"), plan.policy(&meters)).await;
            self.put(&format!("tenants/{name}"), json!({ "plan": name })).await;
            if sequence.is_forgetful() {
                self.forgotten.insert(name.clone());
            }
            let account = Account::new(name, meters.clone(), sequence, plan);
            let (ledger, clock) = (self.app.app().ledger.clone(), self.app.clock.clone());
            tenants.push(Tenant::new(account, self.caller(at), ledger, clock, journal.clone()));
        }
        self.is_known(&tenants[tenants.len() - 1].account.name).await;
        tenants
    }

    async fn put(&self, path: &str, body: serde_json::Value) {
        self.caller(0).insist(Method::PUT, &format!("/v1/admin/{path}"), None, body).await;
    }

    /// Every instance has heard of the tenant.
    async fn is_known(&self, tenant: &str) {
        for address in self.addresses() {
            let caller = Callers::of(self.app.key(), [address]);
            wait_for("news of a tenant", PATIENCE, async || {
                let (status, _) = caller.get(&format!("/v1/tenants/{tenant}/quota")).await?;
                (status == 200).then_some(())
            })
            .await;
        }
    }

    /// Lets each fault begin and end in its time; then everything runs again.
    pub(super) async fn strike(&mut self, strikes: &[Strike], journal: &Journal) {
        let began = Instant::now();
        let moment = |us| began + Duration::from_micros(us);
        let begins = strikes.iter().map(|strike| (strike.after_us, true, strike.fault));
        let ends = strikes.iter().map(|strike| (strike.after_us + strike.lasting_us, false, strike.fault));
        let mut moments: Vec<_> = begins.chain(ends).collect();
        moments.sort_by_key(|(at_us, ..)| *at_us);
        for (at_us, begins, fault) in moments {
            // The moment is random: there is no condition to wait for.
            sleep_until(moment(at_us)).await;
            journal.note(&format!("{fault:?} {}", if begins { "begins" } else { "ends" }));
            if begins { self.begin_fault(fault).await } else { self.end_fault(fault).await }
        }
        self.all_run(strikes).await;
        journal.note("everything runs");
    }

    async fn begin_fault(&mut self, fault: Fault) {
        match fault {
            Fault::RedisKilled => block_in_place(|| self.app.redis.kill9()).unwrap(),
            Fault::RedisEmptied => {
                let client = redis::Client::open(self.app.redis.url()).unwrap();
                // One that is killed cannot be emptied.
                let _ = block_in_place(|| redis::cmd("FLUSHALL").exec(&mut client.get_connection()?));
            }
            Fault::PostgresCut => self.app.database.close().await,
            Fault::ServiceKilled => self.service.kill(),
            Fault::WriterKilled(point) => self.writer.as_ref().unwrap().writer_fail_points().set(point),
        }
    }

    async fn end_fault(&mut self, fault: Fault) {
        match fault {
            Fault::RedisKilled => block_in_place(|| self.app.redis.restart()).unwrap(),
            Fault::RedisEmptied | Fault::WriterKilled(_) => {}
            Fault::PostgresCut => self.app.database.open().await,
            Fault::ServiceKilled => self.starting = Some(self.next_service()),
        }
    }

    /// The same service again, at the same address.
    fn next_service(&self) -> JoinHandle<Service> {
        let serving = self.app.serving(ROLES, self.service.address.clone());
        spawn_blocking(move || Service::start(serving))
    }

    /// Another writer, once this one has stopped at its fail point, or has nothing left to book there.
    async fn next_writer(&mut self) {
        let killed = self.writer.take().unwrap();
        let fail_points = killed.writer_fail_points();
        let stopped = wait_for("the writer stops", PATIENCE, async || fail_points.is_met().then_some(()));
        tokio::select! {
            () = stopped => {}
            () = self.app.drained() => {}
        }
        killed.stop().await;
        self.writer = Some(self.app.another_instance_with(&[Role::Writer]).await);
    }

    async fn all_run(&mut self, strikes: &[Strike]) {
        if strikes.iter().any(|strike| matches!(strike.fault, Fault::WriterKilled(_))) {
            self.next_writer().await;
        }
        if let Some(starting) = self.starting.take() {
            self.service = starting.await.unwrap();
        }
        // Leases of killed owners would end by themselves, but the test need not wait for that. Locked, because others
        // take them.
        let free = "LOCK TABLE leases IN EXCLUSIVE MODE; DELETE FROM leases";
        as_owner(&self.app.database, free).await.unwrap();
    }

    /// Moves every instance's clock, also while the service is killed: it starts again with the time that is then.
    pub(super) fn move_clock(&self, by_ms: i64) -> impl Future<Output = ()> + use<> {
        let (clock, caller) =
            (self.app.clock.clone(), Callers::of(self.app.key(), [self.service.address.clone()]));
        async move {
            let now_ms = clock.now_ms() + by_ms;
            clock.advance_to(now_ms).unwrap();
            let now = jiff::Timestamp::from_millisecond(now_ms).unwrap().to_string();
            caller.insist(Method::PUT, "/v1/admin/clock", None, json!({ "now": now })).await;
        }
    }

    /// Ends it in order.
    pub(super) async fn end(mut self) {
        if let Some(writer) = self.writer.take() {
            writer.stop().await;
        }
        self.app.stop().await;
        self.app.leave_unbalanced("its books were compared with the model after each sequence");
    }
}
