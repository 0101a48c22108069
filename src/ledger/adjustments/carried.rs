//! Use of a hold that was carried on when its period was closed. No counter of the gate has it, so the ledger alone
//! corrects it: in the period where it stands, whose statement bills it.

use diesel::prelude::*;
use diesel::sql_types::{self, Bool, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::AdjustmentTerms;
use crate::domain::carried_use::CarriedUse;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::period::Window;
use crate::ledger::columns::Milliseconds;
use crate::ledger::prepared::sql_query;
use crate::ledger::schema::adjustments;
use crate::ledger::{Ledger, LedgerError};

/// What was consumed of a carried hold in one period.
pub(super) struct CarriedHold {
    /// Its reservation.
    pub(super) id: uuid::Uuid,
    /// The period to which it was carried.
    pub(super) period: Window,
    pub(super) used: CarriedUse,
}

/// What an adjustment corrects of a carried hold.
pub(super) struct OfCarried {
    /// Its reservation.
    pub(super) hold: uuid::Uuid,
    /// How much of it was held.
    pub(super) of_held: Decimal,
}

impl OfCarried {
    pub(super) fn of(hold: &CarriedHold, amount: Decimal) -> Self {
        Self { hold: hold.id, of_held: hold.used.held_part(amount) }
    }
}

impl Ledger {
    /// The reservation that an adjustment means by what it `corrects`: that itself, or, of another adjustment, the
    /// carried hold that it corrects.
    pub async fn reservation_named(
        &self,
        tenant: &TenantId,
        corrects: uuid::Uuid,
    ) -> Result<uuid::Uuid, LedgerError> {
        let query = || {
            adjustments::table
                .filter(adjustments::tenant.eq(tenant).and(adjustments::id.eq(corrects)))
                .select(adjustments::carried_hold)
        };
        let of_other: Option<Option<uuid::Uuid>> = self.first(query).await?;
        Ok(of_other.flatten().unwrap_or(corrects))
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = sql_types::Uuid)]
    hold: uuid::Uuid,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Bool)]
    carried: bool,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = Numeric)]
    excess: Decimal,
    #[diesel(sql_type = Numeric)]
    corrected: Decimal,
    #[diesel(sql_type = Numeric)]
    corrected_of_held: Decimal,
}

/// The carried hold that an adjustment dated in the period `dated` corrects: it names it in `corrects`. Of several
/// periods in which use of it stands that is the one of the date, else the last one. None where it names none, or use
/// of it from before it was carried on.
pub(super) async fn find(
    connection: &mut AsyncPgConnection,
    terms: &AdjustmentTerms,
    meter: &MeterId,
    dated: Window,
) -> Result<Option<CarriedHold>, LedgerError> {
    let Some(corrects) = terms.corrects else { return Ok(None) };
    let read = sql_query(include_str!("../sql/use_of_carried_hold.sql"))
        .bind::<Text, _>(&terms.tenant)
        .bind::<Text, _>(meter)
        .bind::<sql_types::Uuid, _>(corrects);
    let mut rows: Vec<Row> = read.load(connection).await?;
    let of_date = rows.iter().position(|row| row.period_start.0 == dated.start_ms);
    let Some(row) = of_date.map(|place| rows.swap_remove(place)).or_else(|| rows.pop()) else {
        return Ok(None);
    };
    Ok(row.carried.then_some(CarriedHold {
        id: row.hold,
        period: Window { start_ms: row.period_start.0, end_ms: row.period_end.0 },
        used: CarriedUse {
            consumed: row.consumed,
            excess: row.excess,
            corrected: row.corrected,
            corrected_of_held: row.corrected_of_held,
        },
    }))
}
