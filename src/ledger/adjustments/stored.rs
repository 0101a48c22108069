//! The rows of adjustments.

use diesel::pg::Pg;
use diesel::prelude::*;
use rust_decimal::Decimal;

use super::AdjustmentGrant;
use crate::domain::adjustment::{AdjustmentEffect, AdjustmentId, AdjustmentState, AdjustmentTerms};
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::money::Currency;
use crate::domain::signed_amount::SignedAmount;
use crate::ledger::columns::{Milliseconds, MillisecondsIfAny};
use crate::ledger::schema::adjustments;
use crate::ledger::{LedgerError, number};

/// An adjustment as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAdjustment {
    /// Its id.
    pub id: AdjustmentId,
    /// What is to be corrected.
    pub terms: AdjustmentTerms,
    /// What became of it.
    pub state: AdjustmentState,
    /// When it was posted (service time, unix ms).
    pub posted_at_ms: i64,
    /// Who posted it.
    pub posted_by: String,
    /// When it was approved or declined (service time, unix ms).
    pub decided_at_ms: Option<i64>,
    /// Who did that.
    pub decided_by: Option<String>,
    /// When it was booked (service time, unix ms).
    pub booked_at_ms: Option<i64>,
    /// What was booked: less where less was left of the grants that it voids.
    pub booked_amount: Option<SignedAmount>,
    /// The start of the period that it corrects (unix ms).
    pub period_start_ms: Option<i64>,
    /// The start of the period in which it is booked (unix ms).
    pub booked_in_ms: Option<i64>,
    /// The number of the statement that has it, once that is issued: only of money.
    pub statement: Option<u64>,
    /// The grants that it makes and voids, in order.
    pub grants: Vec<AdjustmentGrant>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = adjustments, check_for_backend(Pg))]
pub(super) struct Row {
    tenant: TenantId,
    id: uuid::Uuid,
    meter: Option<MeterId>,
    effect: String,
    amount: Decimal,
    #[diesel(deserialize_as = Milliseconds)]
    happened_at: i64,
    corrects: Option<uuid::Uuid>,
    reason: String,
    reference: String,
    state: String,
    #[diesel(deserialize_as = Milliseconds)]
    posted_at: i64,
    posted_by: String,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    decided_at: Option<i64>,
    decided_by: Option<String>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    booked_at: Option<i64>,
    booked_amount: Option<Decimal>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    period_start: Option<i64>,
    #[diesel(deserialize_as = MillisecondsIfAny)]
    booked_in: Option<i64>,
    currency: Option<String>,
    statement: Option<i64>,
}

impl Row {
    /// Reads it, without its grants.
    pub(super) fn read(self) -> Result<StoredAdjustment, LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("the {what} of the adjustment {}", self.id));
        let effect = AdjustmentEffect::from_word(&self.effect).ok_or_else(|| damaged("effect"))?;
        let state = AdjustmentState::from_word(&self.state).ok_or_else(|| damaged("state"))?;
        let currency = self.currency.as_deref().map(Currency::parse).transpose();
        Ok(StoredAdjustment {
            id: AdjustmentId::from_uuid(self.id),
            terms: AdjustmentTerms {
                tenant: self.tenant,
                meter: self.meter,
                effect,
                amount: SignedAmount::from_decimal(self.amount),
                currency: currency.map_err(|_| damaged("currency"))?,
                happened_at_ms: self.happened_at,
                corrects: self.corrects,
                reason: self.reason,
                reference: self.reference,
            },
            state,
            posted_at_ms: self.posted_at,
            posted_by: self.posted_by,
            decided_at_ms: self.decided_at,
            decided_by: self.decided_by,
            booked_at_ms: self.booked_at,
            booked_amount: self.booked_amount.map(SignedAmount::from_decimal),
            period_start_ms: self.period_start,
            booked_in_ms: self.booked_in,
            statement: self.statement.map(number::unsigned).transpose()?,
            grants: Vec::new(),
        })
    }
}
