//! One tenant's side of a sequence, without a service: the calls of its steps, and the model's answers to them.

use std::fmt;

use serde_json::{Value, json};
use tollgate::domain::reservation::ReservationState;

use super::sequence::{Call, MAX_LIFE_SECONDS, Plan, Sequence};
use crate::support::model::{Answer, Counter, Hold, Mode, Model};

/// Every reservation names this user.
pub(super) const USER: &str = "ada";

/// A reserve or usage, as it is repeated.
#[derive(Debug, Clone)]
struct Admission {
    mode: Mode,
    amounts: [i64; 2],
    ttl_seconds: u32,
}

/// What is asked about a reservation.
#[derive(Debug, Clone)]
enum Action {
    Admit { admission: Admission, meaning: u8 },
    Consume { totals: Option<[i64; 2]>, is_final: bool },
    Release { incurred: Option<[i64; 2]> },
    Extend { ttl_seconds: u32 },
}

/// A call of the API about one of the tenant's reservations, numbered in the order in which they were asked for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) number: u8,
    action: Action,
    pub(super) body: Value,
}

/// An answer of the API, as far as the model determines it: further fields do not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// A tenant with its model.
pub(super) struct Account {
    pub(super) name: String,
    pub(super) meters: [String; 2],
    /// The names of the model's counters.
    counters: Vec<String>,
    pub(super) plan: Plan,
    pub(super) model: Model,
    admissions: Vec<Admission>,
}

impl Account {
    pub(super) fn new(name: String, meters: [String; 2], sequence: &Sequence, plan: &Plan) -> Self {
        let (counters, of_model) = plan.counters(&meters).into_iter().unzip();
        let model = Model::new(sequence.rules.to_vec(), of_model, super::BUCKET_MS);
        Self { name, meters, counters, plan: plan.clone(), model, admissions: Vec::new() }
    }

    /// What a step calls; nothing where there is no reservation to be about.
    pub(super) fn request(&mut self, call: &Call, from_ledger: bool) -> Option<Request> {
        let (number, action) = match *call {
            Call::Reserve { mode, amounts, ttl_seconds } => {
                let admission = Admission { mode, amounts, ttl_seconds };
                self.admissions.push(admission.clone());
                (self.admissions.len() - 1, Action::Admit { admission, meaning: 0 })
            }
            Call::Again { back, otherwise } => {
                let number = self.admissions.len().checked_sub(back + 1)?;
                let mut admission = self.admissions[number].clone();
                admission.amounts[0] += i64::from(otherwise);
                (number, Action::Admit { admission, meaning: u8::from(otherwise) })
            }
            Call::Consume { back, totals, is_final } => {
                (self.reserved(back)?, Action::Consume { totals, is_final })
            }
            Call::Release { back, incurred } => (self.reserved(back)?, Action::Release { incurred }),
            Call::Extend { back, ttl_seconds } => (self.reserved(back)?, Action::Extend { ttl_seconds }),
        };
        let body = self.body(&action, from_ledger);
        Some(Request { number: u8::try_from(number).unwrap(), action, body })
    }

    /// The number of the reservation so far back, if it was admitted.
    fn reserved(&self, back: usize) -> Option<usize> {
        let number = self.admissions.len().checked_sub(back + 1)?;
        self.model.hold(u8::try_from(number).unwrap()).map(|_| number)
    }

    fn lines(&self, amounts: [i64; 2]) -> Value {
        let line = |(meter, amount): (&String, i64)| json!({ "meter": meter, "amount": amount.to_string() });
        self.meters.iter().zip(amounts).map(line).collect()
    }

    fn body(&self, action: &Action, from_ledger: bool) -> Value {
        let ack = if from_ledger { "ledger" } else { "gate" };
        match action {
            Action::Admit { admission, .. } => {
                let lines = self.lines(admission.amounts);
                let mut body = json!({ "tenant": self.name, "subject": USER, "lines": lines });
                match admission.mode {
                    Mode::Usage => body["ack"] = json!(ack),
                    mode => {
                        body["ttl_seconds"] = json!(admission.ttl_seconds);
                        body["mode"] =
                            json!(if mode == Mode::Best { "best_effort" } else { "all_or_nothing" });
                    }
                }
                body
            }
            Action::Consume { totals: Some(totals), is_final } => {
                json!({ "lines": self.lines(*totals), "final": is_final, "ack": ack })
            }
            Action::Consume { totals: None, is_final } => json!({ "final": is_final, "ack": ack }),
            Action::Release { incurred: Some(incurred) } => json!({ "lines": self.lines(*incurred) }),
            Action::Release { incurred: None } => json!({}),
            Action::Extend { ttl_seconds } => json!({ "ttl_seconds": ttl_seconds }),
        }
    }

    /// The answer of the API that corresponds to the model's, which is like this after the call.
    pub(super) fn expected(&self, request: &Request, answer: &Answer, after: &Model) -> Expected {
        let hold = after.hold(request.number);
        let refusal = |status, body| Expected { status, body };
        match (answer, hold) {
            (Answer::Done(..), Some(hold)) => self.done(request, hold, false),
            (Answer::Replayed(..), Some(hold)) => self.done(request, hold, true),
            (Answer::Expired, Some(hold)) if matches!(request.action, Action::Release { incurred: None }) => {
                self.done(request, hold, false)
            }
            (Answer::Refused(refusing), _) => self.refused(request, refusing),
            (Answer::KeyReused, _) => refusal(422, json!({ "code": "idempotency_key_reused" })),
            (Answer::AmountDecreased(_), _) => refusal(422, json!({ "code": "amount_decreased" })),
            (Answer::ExcessRejected(line), _) => {
                let errors = json!([{ "pointer": format!("/lines/{line}/amount") }]);
                refusal(422, json!({ "code": "validation_failed", "errors": errors }))
            }
            (Answer::AlreadyResolved, Some(hold)) => refusal(
                409,
                json!({ "code": "already_resolved", "reservation": self.shown(request.number, hold) }),
            ),
            (Answer::Expired, Some(hold)) => refusal(
                410,
                json!({ "code": "reservation_expired", "reservation": self.shown(request.number, hold) }),
            ),
            other => panic!("no call is answered so: {other:?}"),
        }
    }

    fn done(&self, request: &Request, hold: &Hold, replayed: bool) -> Expected {
        let mut body = self.shown(request.number, hold);
        body["replayed"] = json!(replayed);
        let status = match &request.action {
            Action::Admit { admission, .. } => {
                if admission.mode != Mode::Usage {
                    let held = [hold.lines[0].held.get(), hold.lines[1].held.get()];
                    body = json!({ "status": body["status"], "expires_at": body["expires_at"], "lines": self.lines(held), "replayed": replayed });
                }
                if replayed { 200 } else { 201 }
            }
            _ => 200,
        };
        if request.body["ack"] == "ledger" {
            body["ack"] = json!("ledger");
        }
        Expected { status, body }
    }

    /// A reservation as every call about it answers it.
    pub(super) fn shown(&self, number: u8, hold: &Hold) -> Value {
        let resolved = hold.state != ReservationState::Reserved;
        let takes_more = hold.state == ReservationState::Expired && hold.late;
        let is_usage = self.admissions[usize::from(number)].mode == Mode::Usage;
        let line = |at: usize| {
            let (held, consumed) = (hold.lines[at].held.get(), hold.lines[at].consumed.get());
            let returned = if resolved { (held - consumed).max(0) } else { 0 };
            let excess = if is_usage { 0 } else { (consumed - held).max(0) };
            let uncharged = hold.lines[at].uncharged.get();
            let uncharged = (uncharged > 0).then(|| uncharged.to_string());
            json!({
                "meter": self.meters[at], "reserved": held.to_string(), "consumed": consumed.to_string(),
                "returned": returned.to_string(), "excess": excess.to_string(), "uncharged": uncharged,
            })
        };
        let expires_at = jiff::Timestamp::from_millisecond(hold.expires_at_ms).unwrap();
        json!({
            "status": hold.state.as_str(), "final": resolved && !takes_more, "late": hold.late,
            "expires_at": expires_at.to_string(), "lines": [line(0), line(1)],
        })
    }

    fn refused(&self, request: &Request, refusing: &[usize]) -> Expected {
        let Action::Admit { admission, .. } = &request.action else { panic!("only admissions are refused") };
        // A part of a best effort would have been granted: only what has nothing left refuses it.
        let is_best = admission.mode == Mode::Best;
        let counter = |at: &usize| &self.model.counters[*at];
        let least = |counter: &Counter| counter.weights.iter().copied().filter(|weight| *weight > 0).min();
        let lacks = |counter: &Counter| least(counter).is_some_and(|least| counter.room(0) < least);
        let refusing: Vec<usize> =
            refusing.iter().copied().filter(|at| !is_best || lacks(counter(at))).collect();
        let needed = |counter: &Counter| -> i64 {
            let weighted = counter.weights.iter().zip(admission.amounts);
            let all: i64 = weighted.map(|(weight, amount)| weight * amount).sum();
            if is_best { least(counter).unwrap_or_default() } else { all }
        };
        let exceeds = refusing.iter().map(counter).any(|counter| needed(counter) > counter.capacity);
        let (status, code) = if exceeds { (402, "exceeds_plan") } else { (429, "quota_exceeded") };
        let by: Vec<_> = refusing.iter().map(|at| json!({ "id": self.counters[*at] })).collect();
        Expected { status, body: json!({ "code": code, "refused_by": by }) }
    }

    /// Checks every counter that an answer shows.
    pub(super) fn check_counters(&self, answer: &Value) {
        for shown in ["limits", "refused_by"].iter().filter_map(|name| answer[name].as_array()).flatten() {
            let at = self.counters.iter().position(|name| shown["id"] == name.as_str()).unwrap();
            let counter = &self.model.counters[at];
            let figure = |value: i64| value.to_string();
            let expected = json!({
                "capacity": figure(counter.capacity), "consumed": figure(counter.at(0).consumed),
                "reserved": figure(counter.at(0).reserved), "remaining": figure(counter.room(0).max(0)),
            });
            assert!(has(shown, &expected), "{}: {shown} instead of {expected}", self.name);
        }
    }

    /// Checks a read of what the tenant and its user have left.
    pub(super) fn check_quota(&self, quota: &Value) {
        self.check_counters(quota);
        let counters = self.counters.iter().zip(&self.model.counters);
        let (quotas, limits): (Vec<_>, Vec<_>) = counters.partition(|(name, _)| name.starts_with("quota:"));
        let figures = |(_, counter): (&String, &Counter)| json!({ "consumed": counter.at(0).consumed.to_string(), "reserved": counter.at(0).reserved.to_string() });
        let expected =
            json!({ "source": "gate", "quotas": quotas.into_iter().map(figures).collect::<Vec<_>>() });
        assert!(has(quota, &expected), "{}: {quota} instead of {expected}", self.name);
        assert_eq!(quota["limits"].as_array().unwrap().len(), limits.len(), "{}: {quota}", self.name);
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.number, self.action)
    }
}

impl Request {
    /// What the model answers.
    pub(super) fn on(&self, model: &mut Model, now_ms: i64) -> Answer {
        let slice = |totals: &Option<[i64; 2]>| totals.map(Vec::from);
        let milliseconds = |seconds: u32| i64::from(seconds) * 1000;
        match &self.action {
            Action::Admit { admission: Admission { mode, amounts, ttl_seconds }, meaning } => {
                let (ttl_ms, most_ms) = (milliseconds(*ttl_seconds), milliseconds(MAX_LIFE_SECONDS));
                model.reserve(now_ms, self.number, *meaning, *mode, amounts, ttl_ms, most_ms)
            }
            Action::Consume { totals, is_final } => {
                model.consume(now_ms, self.number, slice(totals).as_deref(), *is_final)
            }
            Action::Release { incurred } => model.release(now_ms, self.number, slice(incurred).as_deref()),
            Action::Extend { ttl_seconds } => model.extend(now_ms, self.number, milliseconds(*ttl_seconds)),
        }
    }

    /// Whether it makes a reservation.
    pub(super) fn is_admission(&self) -> bool {
        matches!(self.action, Action::Admit { .. })
    }

    /// The idempotency key of calls that take one.
    pub(super) fn key(&self) -> Option<String> {
        self.is_admission().then(|| format!("job-{}", self.number))
    }

    /// Where it is called, given the reservation's id where it has one.
    pub(super) fn path(&self, id: Option<&String>) -> String {
        let about = |verb| format!("/v1/reservations/{}/{verb}", id.unwrap());
        match &self.action {
            Action::Admit { admission, .. } if admission.mode == Mode::Usage => "/v1/usage".to_owned(),
            Action::Admit { .. } => "/v1/reservations".to_owned(),
            Action::Consume { .. } => about("consume"),
            Action::Release { .. } => about("release"),
            Action::Extend { .. } => about("extend"),
        }
    }
}

/// Whether everything that is expected is in what was answered; lists are as long as they are expected to be.
pub(super) fn has(answered: &Value, expected: &Value) -> bool {
    match (expected, answered) {
        (Value::Object(fields), _) => fields.iter().all(|(name, value)| has(&answered[name], value)),
        (Value::Array(expected), Value::Array(answered)) => {
            expected.len() == answered.len()
                && expected.iter().zip(answered).all(|(expected, answered)| has(answered, expected))
        }
        _ => expected == answered,
    }
}
