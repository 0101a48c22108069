//! What is unburnt of a grant where it has ended, and what becomes of it.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use crate::domain::amount::Amount;
use crate::domain::burn::{BurnPlace, Burnable, burnt_at_ends};
use crate::domain::ids::OutboxId;
use crate::domain::movements::Movement;
use crate::domain::movements::grants::{expire, void};
use crate::domain::period::Window;
use crate::domain::rollover::RolledAmount;
use crate::ledger::burnables::{self, Unwound};
use crate::ledger::continued_grants::Standing;
use crate::ledger::grant_sales::PriceLeft;
use crate::ledger::grants::StoredGrant;
use crate::ledger::schema::{balances, cuts};
use crate::ledger::{LedgerError, instant, rolled_amounts};

/// How a grant has ended.
pub(in crate::ledger) struct EndOf {
    pub(in crate::ledger) is_void: bool,
    /// When (unix ms).
    pub(in crate::ledger) at_ms: i64,
    pub(in crate::ledger) left: PriceLeft,
}

impl EndOf {
    pub(in crate::ledger) fn of(stored: &StoredGrant) -> Self {
        let is_void = stored.voided_at_ms.is_some();
        let left = if is_void { PriceLeft::GivenBack } else { PriceLeft::Forfeited };
        Self { is_void, at_ms: stored.voided_at_ms.unwrap_or(stored.expires_at_ms), left }
    }

    /// What becomes of what is unburnt.
    pub(in crate::ledger) fn movements(&self, period: Window, unburnt: Amount) -> Vec<Movement> {
        if self.is_void { void(period, unburnt) } else { expire(period, unburnt) }
    }
}

/// Where a grant's end cut was made; none while there is none.
pub(super) async fn end_cut(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
) -> Result<Option<OutboxId>, LedgerError> {
    let cut = cuts::table.find((&stored.tenant, stored.id.uuid(), true));
    let place: Option<(i64, i64)> =
        cut.select((cuts::epoch, cuts::sequence)).first(connection).await.optional()?;
    place.map(|(epoch, sequence)| burnables::place(epoch, sequence)).transpose()
}

/// What is unburnt of a grant at its end cut, in the period in which it stands; none while there is no such cut.
pub(in crate::ledger) async fn unburnt(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
    standing: &Standing,
    unwound: Unwound,
) -> Result<Option<Amount>, LedgerError> {
    let burnt = burnt_at_ends_of(connection, stored, standing, unwound).await?;
    left_of(stored, standing, &burnt)
}

/// What had burnt of each grant of this one's quota, in the period in which it stands, where it has ended.
pub(super) async fn burnt_at_ends_of(
    connection: &mut AsyncPgConnection,
    stored: &StoredGrant,
    &Standing { period: window, included, .. }: &Standing,
    unwound: Unwound,
) -> Result<BTreeMap<BurnPlace, Decimal>, LedgerError> {
    let key = (&stored.tenant, &stored.meter, instant::from_ms(window.start_ms)?);
    let rolled_in: Option<Decimal> =
        balances::table.find(key).select(balances::rolled_in).first(connection).await.optional()?;
    let found = burnables::read(connection, &[(&stored.tenant, &stored.meter, window)], unwound).await?;
    let of_period = [(&stored.tenant, &stored.meter, window, rolled_in.unwrap_or_default())];
    let rolled = rolled_amounts::read(connection, &of_period).await?;
    let rolled = rolled.values().flat_map(|rolled| RolledAmount::burnables(window, rolled));
    let all: Vec<Burnable> = found.into_values().flatten().chain(rolled).collect();
    Ok(burnt_at_ends(window, included, &all))
}

/// What is left of a grant where so much had burnt of each; none where it has not ended there.
pub(super) fn left_of(
    stored: &StoredGrant,
    standing: &Standing,
    burnt: &BTreeMap<BurnPlace, Decimal>,
) -> Result<Option<Amount>, LedgerError> {
    let Some(burnt) = burnt.get(&burnables::place_of(stored, standing.period)) else { return Ok(None) };
    let left = Amount::from_decimal(standing.amount.decimal() - burnt);
    let damaged = |_| LedgerError::Damaged(format!("the cuts of the grant {}", stored.id));
    Ok(Some(left.map_err(damaged)?))
}
