//! A tenant at work: its calls go out until they are answered, and every answer is held against the model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;
use tollgate::clock::Clock;
use tollgate::domain::ids::ReservationId;
use tollgate::ledger::Ledger;

use super::account::{Account, Expected, Request, USER, has};
use super::sequence::{Step, Stretch, Twice};
use crate::support::caller::Callers;
use crate::support::model::{Hold, Model};
use crate::support::process::PATIENCE;
use crate::support::wait::wait_for;

/// How long a caller pauses after no answer, or after one that asks to retry.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the books may take before a call that may be lost is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(300);

/// The log of the sequence, printed when it fails.
#[derive(Clone)]
pub(super) struct Journal(Arc<Mutex<Vec<String>>>, Instant);

impl Journal {
    pub(super) fn begin() -> Self {
        Self(Arc::default(), Instant::now())
    }

    pub(super) fn note(&self, what: &str) {
        self.0.lock().unwrap().push(format!("{:>9.3?} {what}", self.1.elapsed()));
    }

    pub(super) fn told(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

/// A tenant with its ways to the services.
pub(super) struct Tenant {
    pub(super) account: Account,
    /// The ids of its reservations that it has received.
    ids: BTreeMap<u8, String>,
    caller: Callers,
    ledger: Ledger,
    clock: Clock,
    journal: Journal,
}

/// What a call may be answered.
struct Choices {
    first: Expected,
    /// Where an attempt of the same call may have been taken before.
    again: Expected,
    /// By the ledger, while the gate is away: for the first time, again, and where the gate had it before.
    away: Vec<Expected>,
}

/// An answer, and whether it was to the first attempt.
struct Answered {
    status: u16,
    body: Value,
    at_once: bool,
}

impl Answered {
    /// Whether the answer says that the call is booked; a parked call is not booked yet.
    fn is_of_the_books(&self) -> bool {
        self.status < 300 && self.body["ack"] == "ledger" && self.body["degraded"] == false
    }
}

impl Tenant {
    pub(super) fn new(
        account: Account,
        caller: Callers,
        ledger: Ledger,
        clock: Clock,
        journal: Journal,
    ) -> Self {
        Self { account, ids: BTreeMap::new(), caller, ledger, clock, journal }
    }

    /// Does its steps of a stretch, one after the other.
    pub(super) async fn work(mut self, steps: Vec<Step>, stretch: Arc<Stretch>) -> Self {
        for step in steps {
            if let Some(request) = self.account.request(&step.call, step.from_ledger) {
                self.step(&step, &request, &stretch).await;
            }
        }
        self
    }

    async fn step(&mut self, step: &Step, request: &Request, stretch: &Stretch) {
        let choices = self.decide(request);
        let answers = match step.twice {
            Twice::AtOnce => {
                let (one, other) = tokio::join!(self.call(request), self.call(request));
                vec![one, other]
            }
            Twice::Never | Twice::Afterwards => vec![self.call(request).await],
        };
        for answered in &answers {
            self.check(request, &choices, answered, answers.len() == 1 && answered.at_once);
        }
        if answers.iter().any(Answered::is_of_the_books) {
            self.check_booked(request.number).await;
        }
        if stretch.is_careful {
            self.until_booked(request, &choices, stretch.is_forgetful()).await;
        }
        if step.twice == Twice::Afterwards {
            let answered = self.call(request).await;
            let choices = Choices { first: choices.again.clone(), ..choices };
            self.check(request, &choices, &answered, answered.at_once);
        }
    }

    /// Lets the model take the step, once.
    fn decide(&mut self, request: &Request) -> Choices {
        let now_ms = self.clock.now_ms();
        let on = |account: &Account, model: &mut Model| {
            let answer = request.on(model, now_ms);
            account.expected(request, &answer, model)
        };
        let mut without_gate = self.account.model.without_counters();
        let mut model = self.account.model.clone();
        let first = on(&self.account, &mut model);
        let again = on(&self.account, &mut model.clone());
        let mut away = Vec::new();
        if !request.is_admission() {
            away.extend((0..2).map(|_| on(&self.account, &mut without_gate)));
            away.push(on(&self.account, &mut model.without_counters()));
        }
        self.account.model = model;
        Choices { first, again, away }
    }

    /// Calls until there is a definite answer.
    async fn call(&self, request: &Request) -> Answered {
        let path = request.path(self.ids.get(&request.number));
        let key = request.key();
        let (mut at_once, began) = (true, Instant::now());
        loop {
            let answer = self.caller.call(Method::POST, &path, key.as_deref(), request.body.clone()).await;
            if let Some((status, body)) = answer.filter(|(status, _)| *status != 503) {
                return Answered { status, body, at_once };
            }
            assert!(began.elapsed() < PATIENCE, "{request:?} is not answered");
            at_once = false;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn check(&mut self, request: &Request, choices: &Choices, answered: &Answered, is_first: bool) {
        let Answered { status, body, .. } = answered;
        self.journal.note(&format!("{} {request} -> {status} {}", self.account.name, brief(body)));
        let mut allowed = vec![&choices.first];
        if !is_first {
            allowed.push(&choices.again);
        }
        if body["degraded"] == true {
            allowed.extend(&choices.away);
        }
        let is_allowed = |expected: &&Expected| expected.status == *status && has(body, &expected.body);
        assert!(allowed.iter().any(is_allowed), "{request:?}: {status} {body}\ninstead of {allowed:#?}");
        self.account.check_counters(body);
        if let (200 | 201, Some(id)) = (status, body["id"].as_str()) {
            let known = self.ids.entry(request.number).or_insert_with(|| id.to_owned());
            assert_eq!(known, id, "{request:?}: another reservation");
        }
    }

    /// Waits until what the model has of the reservation is booked. Where it may be lost, the call is repeated, as
    /// its caller would.
    async fn until_booked(&mut self, request: &Request, choices: &Choices, may_be_lost: bool) {
        let began = Instant::now();
        while self.account.model.hold(request.number).is_some() {
            let waited = tokio::time::timeout(REPEAT_AFTER, self.booked(request.number)).await;
            if waited.is_ok() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{request:?} is not booked");
            if may_be_lost {
                let answered = self.call(request).await;
                self.check(request, choices, &answered, false);
            }
        }
    }

    /// Resolves when a reservation is booked as the model has it.
    pub(super) async fn booked(&self, number: u8) {
        while !self.is_booked(number).await {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether a reservation is booked as the model has it, now.
    async fn check_booked(&self, number: u8) {
        assert!(self.is_booked(number).await, "{number} of {} is not in the books", self.account.name);
    }

    /// Whether a reservation is booked as the model has it, once the books can be read.
    async fn is_booked(&self, number: u8) -> bool {
        let id = ReservationId::from_bytes(self.ids[&number].parse::<uuid::Uuid>().unwrap().into_bytes());
        let hold = self.account.model.hold(number).unwrap();
        loop {
            match self.ledger.reservation(id).await {
                Ok(row) => return row.is_some_and(|row| is_as(&row.record, hold)),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The gate has the tenant and its user.
    pub(super) async fn warm(&self) {
        wait_for("the gate knows the tenant", PATIENCE, async || {
            let (status, quota) = self.quota().await?;
            (status == 200 && quota["source"] == "gate").then_some(())
        })
        .await;
    }

    async fn quota(&self) -> Option<(u16, Value)> {
        self.caller.get(&format!("/v1/tenants/{}/quota?subject={USER}&kind=user", self.account.name)).await
    }

    async fn read(&self, number: u8) -> Option<(u16, Value)> {
        self.caller.get(&format!("/v1/reservations/{}", self.ids[&number])).await
    }

    /// Holds that are due by now expire.
    pub(super) async fn expire(&mut self) {
        for number in self.account.model.sweep(self.clock.now_ms()) {
            wait_for("a hold expires", PATIENCE, async || {
                let (status, read) = self.read(number).await?;
                (status == 200 && read["status"] == "expired").then_some(())
            })
            .await;
        }
    }

    /// Checks that every read equals the model.
    pub(super) async fn check_reads(&self) {
        let (status, quota) = self.quota().await.unwrap();
        assert_eq!(status, 200, "{quota}");
        self.account.check_quota(&quota);
        for (number, hold) in self.account.model.holds() {
            let (status, read) = self.read(number).await.unwrap();
            let expected = self.account.shown(number, hold);
            assert!(status == 200 && has(&read, &expected), "{status} {read}\ninstead of {expected}");
        }
    }
}

/// What matters most of an answer.
fn brief(body: &Value) -> String {
    let line = |line: &Value| {
        let figure = |name: &str| line[name].as_str().map(|figure| format!(" {name} {figure}"));
        ["amount", "reserved", "consumed", "uncharged"].into_iter().filter_map(figure).collect::<String>()
    };
    let lines = body["lines"].as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join(",");
    let word = |name: &str| body[name].as_str().map(|word| format!("{word} "));
    let flag = |name: &str| (body[name] == true).then(|| format!("{name} "));
    let words = ["code", "status", "ack"].into_iter().filter_map(word);
    words.chain(["replayed", "late", "degraded"].into_iter().filter_map(flag)).chain([lines]).collect()
}

fn is_as(record: &tollgate::domain::reservation::Record, hold: &Hold) -> bool {
    let head = &record.head;
    (head.state, head.late, head.expires_at_ms) == (hold.state, hold.late, hold.expires_at_ms)
        && record.units == hold.lines
}
