//! A grant as it is stored, and how its row is read.

use diesel::pg::Pg;
use diesel::prelude::*;
use rust_decimal::Decimal;

use crate::domain::amount::Amount;
use crate::domain::grant::{GrantId, GrantKind, GrantPrice, GrantRollover, Priority, Recurrence};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::ledger::LedgerError;
use crate::ledger::columns::{Hash, Milliseconds, MillisecondsIfAny};
use crate::ledger::schema::grants;

/// A grant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredGrant {
    /// Its id.
    pub id: GrantId,
    /// Whose quota.
    pub tenant: TenantId,
    /// Of which meter.
    pub meter: MeterId,
    /// How much.
    pub amount: Amount,
    /// Who pays.
    pub kind: GrantKind,
    /// What it costs; one that recurs costs it in each period.
    pub price: Option<GrantPrice>,
    /// Which grants burn first.
    pub priority: Priority,
    /// From when on (unix ms).
    pub effective_at_ms: i64,
    /// Until when (unix ms); `NO_END_MS` where it has no end.
    pub expires_at_ms: i64,
    /// How often it is given.
    pub recurrence: Recurrence,
    /// The recurring grant of which it is what a later period gets.
    pub repeats: Option<GrantId>,
    /// Whether it lasts longer than the period in which it has begun: what is left of it goes on then.
    pub goes_on: bool,
    /// How much of it goes on.
    pub rollover: GrantRollover,
    /// Why, for people.
    pub reason: String,
    /// The hash of what was asked for.
    pub fingerprint: [u8; 32],
    /// When it was made (service time, unix ms).
    pub created_at_ms: i64,
    /// Who made it.
    pub created_by: String,
    /// The start of the period in whose books it is (unix ms); none before it begins.
    pub period_start_ms: Option<i64>,
    /// When it was voided (unix ms).
    pub voided_at_ms: Option<i64>,
    /// When it ended, once what was unburnt of it is booked (unix ms).
    pub settled_at_ms: Option<i64>,
    /// What was unburnt of it then.
    pub settled_amount: Option<Amount>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = grants, check_for_backend(Pg))]
pub(crate) struct Row {
    tenant: TenantId,
    id: uuid::Uuid,
    meter: MeterId,
    amount: Decimal,
    kind: String,
    priority: i16,
    #[diesel(deserialize_as = Milliseconds)]
    effective_at: i64,
    #[diesel(deserialize_as = Milliseconds)]
    expires_at: i64,
    reason: String,
    #[diesel(deserialize_as = Hash)]
    fingerprint: [u8; 32],
    #[diesel(deserialize_as = Milliseconds)]
    created_at: i64,
    created_by: String,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    period_start: Option<i64>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    voided_at: Option<i64>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    settled_at: Option<i64>,
    settled_amount: Option<Decimal>,
    recurrence: String,
    repeats: Option<uuid::Uuid>,
    paid_amount: Option<Decimal>,
    currency: Option<String>,
    goes_on: bool,
    max_rollover: Option<Decimal>,
    min_rollover: Decimal,
}

impl Row {
    pub(crate) fn id(&self) -> uuid::Uuid {
        self.id
    }

    pub(crate) fn read(self) -> Result<StoredGrant, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the grant {}", self.id));
        Ok(StoredGrant {
            id: GrantId::from_uuid(self.id),
            amount: Amount::from_decimal(self.amount).map_err(|_| damaged("amount"))?,
            kind: GrantKind::from_word(&self.kind).ok_or_else(|| damaged("kind"))?,
            price: match (self.paid_amount, &self.currency) {
                (Some(amount), Some(code)) => Some(price(amount, code).ok_or_else(|| damaged("price"))?),
                _ => None,
            },
            priority: u8::try_from(self.priority)
                .ok()
                .and_then(Priority::new)
                .ok_or_else(|| damaged("priority"))?,
            tenant: self.tenant,
            meter: self.meter,
            effective_at_ms: self.effective_at,
            expires_at_ms: self.expires_at,
            recurrence: Recurrence::from_word(&self.recurrence).ok_or_else(|| damaged("recurrence"))?,
            repeats: self.repeats.map(GrantId::from_uuid),
            goes_on: self.goes_on,
            rollover: rollover(self.max_rollover, self.min_rollover).ok_or_else(|| damaged("rollover"))?,
            reason: self.reason,
            fingerprint: self.fingerprint,
            created_at_ms: self.created_at,
            created_by: self.created_by,
            period_start_ms: self.period_start,
            voided_at_ms: self.voided_at,
            settled_at_ms: self.settled_at,
            settled_amount: match self.settled_amount {
                Some(amount) => Some(Amount::from_decimal(amount).map_err(|_| damaged("unburnt amount"))?),
                None => None,
            },
        })
    }
}

/// The terms on which it goes on, as they are stored.
pub(crate) fn rollover(max: Option<Decimal>, min: Decimal) -> Option<GrantRollover> {
    let max = max.map(Amount::from_decimal).transpose().ok()?;
    Some(GrantRollover { max, min: Amount::from_decimal(min).ok()? })
}

fn price(amount: Decimal, code: &str) -> Option<GrantPrice> {
    let currency = Currency::parse(code).ok()?;
    Some(GrantPrice { currency, amount: currency.signed_money(amount).ok()? })
}
