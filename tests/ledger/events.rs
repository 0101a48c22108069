//! Hand-made events, packed as the scripts pack them.

use tollgate::domain::amount::{Decimals, Units};
use tollgate::domain::ids::{
    Epoch, IdempotencyKey, MeterId, OperationId, OutboxId, Partition, ReservationId, ReservationIds, Subject,
    SubjectId, SubjectKind, TenantId,
};
use tollgate::domain::plan::PeriodTerms;
use tollgate::domain::reservation::{
    Body, BodyDetails, Head, LineRule, LineUnits, OnExcess, OnLate, Record, ReservationState, SubjectHash,
};

/// Partitions of the tests' installations.
pub const PARTITIONS: u16 = 4;
/// 2025-12-01T00:00Z, the start of the tests' period.
pub const PERIOD_START_MS: i64 = 1_764_547_200_000;
/// 2026-01-01T00:00Z, its end.
pub const PERIOD_END_MS: i64 = 1_767_225_600_000;
/// 2025-12-15T10:00Z, the hour in which everything happens.
pub const HOUR_MS: i64 = 1_765_792_800_000;

/// A tenant.
pub fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// A meter.
pub fn meter(name: &str) -> MeterId {
    MeterId::parse(name).unwrap()
}

/// Units.
pub fn units(value: i64) -> Units {
    Units::new(value).unwrap()
}

/// A quota's period that includes so much and rolls nothing over.
pub fn including(included: i64) -> PeriodTerms {
    PeriodTerms { included: units(included), ..PeriodTerms::default() }
}

/// A subject of kind `user`.
pub fn user(id: &str) -> Subject {
    Subject { kind: SubjectKind::parse("user").unwrap(), id: SubjectId::parse(id).unwrap() }
}

/// The partition of a tenant.
pub fn partition(tenant: &TenantId) -> Partition {
    Partition::of(tenant, PARTITIONS)
}

/// A reservation as its caller sees it go: each call returns the event's bytes.
#[derive(Clone)]
pub struct Work {
    /// Which reservation.
    pub id: ReservationId,
    /// Its record after the last event.
    pub record: Record,
}

impl Work {
    /// Work named `key` on lines of (meter, held); meters have two decimals.
    pub fn new(tenant: &TenantId, key: &str, lines: &[(&str, i64)]) -> Self {
        let ids = ReservationIds::new(&[7; 32]);
        let id = ids.derive(partition(tenant), tenant, "reserve", &IdempotencyKey::parse(key).unwrap());
        let rule = |(name, _): &(&str, i64)| LineRule {
            meter: meter(name),
            decimals: Decimals::new(2).unwrap(),
            on_excess: OnExcess::Record,
            on_late: OnLate::Charge,
            late_within_seconds: 604_800,
            estimated: false,
            booked: true,
        };
        let head = Head {
            state: ReservationState::Reserved,
            late: false,
            degraded: false,
            step: 1,
            epoch: Epoch(1),
            expires_at_ms: HOUR_MS + 60_000,
            born_at_ms: HOUR_MS,
            latest_expiry_ms: HOUR_MS + 86_400_000,
            last_sequence: 0,
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        };
        let rest = BodyDetails {
            subjects: Vec::new(),
            counters: Vec::new(),
            keyed: true,
            operation: Some(OperationId::parse("ocr.submit").unwrap()),
            policy_version: 3,
            period_ms: (PERIOD_START_MS, PERIOD_END_MS),
            hour_start_ms: HOUR_MS,
            metadata: String::new(),
        };
        let record = Record {
            head,
            units: lines.iter().map(|(_, held)| LineUnits::new(units(*held), Units::ZERO)).collect(),
            body: Body {
                fingerprint: tollgate::domain::fingerprint::Fingerprint([9; 16]),
                tenant: tenant.clone(),
                lines: lines.iter().map(rule).collect(),
                rest: Some(rest),
            },
        };
        Self { id, record }
    }

    /// In the name of these subjects.
    pub fn named(mut self, subjects: &[Subject]) -> Self {
        let hash = SubjectHash(*b"=abcdefghijkl");
        self.rest().subjects = subjects.iter().map(|subject| (subject.clone(), hash)).collect();
        self
    }

    /// What never changes.
    pub fn rest(&mut self) -> &mut BodyDetails {
        self.record.body.rest.as_mut().unwrap()
    }

    /// Its last event is of this epoch.
    pub fn in_epoch(mut self, epoch: u64) -> Self {
        self.record.head.epoch = Epoch(epoch);
        self
    }

    /// The hold begins.
    pub fn reserve(&self) -> Vec<u8> {
        [self.frame(1, 0), self.record.encode()].concat()
    }

    /// Usage without a hold: the lines' amounts are consumed.
    pub fn usage(&mut self) -> Vec<u8> {
        self.record.head.state = ReservationState::Consumed;
        for line in &mut self.record.units {
            *line = LineUnits::new(Units::ZERO, line.held);
        }
        [self.frame(2, 0), self.record.encode()].concat()
    }

    /// Totals so far, one per line.
    pub fn consume(&mut self, totals: &[i64], is_final: bool) -> Vec<u8> {
        self.record.head.late = self.record.head.state == ReservationState::Expired;
        let state = if is_final { ReservationState::Consumed } else { self.record.head.state };
        self.change(state, totals);
        [self.frame(3, u8::from(is_final)), self.head()].concat()
    }

    /// A final consume of which a `cap` kept some.
    pub fn consume_capped(&mut self, totals: &[i64], uncharged: &[i64]) -> Vec<u8> {
        self.change(ReservationState::Consumed, totals);
        let kept = uncharged.iter().flat_map(|units| units.to_le_bytes()).collect();
        [self.frame(3, 3), self.head(), kept].concat()
    }

    /// What was incurred is consumed, the rest returned.
    pub fn release(&mut self, incurred: &[i64]) -> Vec<u8> {
        self.change(ReservationState::Released, incurred);
        [self.frame(4, 0), self.head()].concat()
    }

    /// The expiry moves by `ms`.
    pub fn extend(&mut self, ms: i64) -> Vec<u8> {
        self.record.head.step += 1;
        self.record.head.expires_at_ms += ms;
        [self.frame(5, 0), self.head()].concat()
    }

    /// Time runs out.
    pub fn expire(&mut self) -> Vec<u8> {
        self.record.head.step += 1;
        self.record.head.state = ReservationState::Expired;
        [self.frame(6, 0), self.head()].concat()
    }

    fn change(&mut self, state: ReservationState, totals: &[i64]) {
        self.record.head.step += 1;
        self.record.head.state = state;
        for (line, total) in self.record.units.iter_mut().zip(totals) {
            line.consumed = units(*total);
        }
    }

    fn head(&self) -> Vec<u8> {
        self.record.head.encode(&self.record.units)
    }

    fn frame(&self, kind: u8, flags: u8) -> Vec<u8> {
        let mut frame = vec![1, kind];
        frame.extend(HOUR_MS.to_le_bytes());
        frame.extend(self.id.as_bytes());
        frame.push(flags);
        frame
    }
}

/// Events in order, as one partition's outbox has them from `first` on.
pub fn outbox(first: OutboxId, events: impl IntoIterator<Item = Vec<u8>>) -> Vec<(OutboxId, Vec<u8>)> {
    let place = |index: usize| OutboxId { sequence: first.sequence + index as u64, ..first };
    events.into_iter().enumerate().map(|(index, event)| (place(index), event)).collect()
}

/// A place in an outbox: `1-0`.
pub fn at(text: &str) -> OutboxId {
    text.parse().unwrap()
}
