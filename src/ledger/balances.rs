//! Balances per tenant, meter and period: derived from entries, moved with them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::pg::Pg;
use diesel::serialize::{self, Output, ToSql, WriteTuple};
use diesel::sql_types::{Array, Nullable, Numeric, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::prepared::{self, sql_query};
use super::{Ledger, LedgerError, instant};
use crate::domain::entry::Posting;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::movements::{Account, Accounts};
use crate::domain::period::Window;

/// A meter's accounts in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterBalance {
    /// Its meter.
    pub meter: MeterId,
    /// The period, as start and end (unix ms).
    pub period_ms: (i64, i64),
    /// By [`Account::index`]; only `available` and `adjusted` can be negative.
    pub accounts: Accounts,
    /// The included amount that the quota's period was opened with; none where it was not.
    pub included: Option<Decimal>,
    /// How far below zero it may go; none where no quota's period was opened.
    pub overdraft: Option<Decimal>,
    /// What no counter of the gate has.
    pub beside_gate: BesideGate,
}

/// What is held and was consumed in a period that no counter of the gate has: of holds that were carried into it, and
/// by facts that came after their own period was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BesideGate {
    /// What is held.
    pub reserved: Decimal,
    /// What was consumed.
    pub consumed: Decimal,
    /// What of that was consumed of carried holds.
    pub of_carried: Decimal,
}

impl MeterBalance {
    /// The amount of an account.
    pub fn of(&self, account: Account) -> Decimal {
        self.accounts[account.index()]
    }

    /// What was consumed of this period's quota that no counter of the gate has. The period before has paid for the
    /// holds that came from it, and what is adjusted has burnt nothing of it.
    pub fn consumed_beside_gate(&self) -> Decimal {
        let of_carried = self.beside_gate.of_carried.min(self.of(Account::CarriedIn));
        self.beside_gate.consumed - of_carried - self.of(Account::Adjusted)
    }
}

/// A tenant, a meter and the start of a period (unix ms).
type Key = (TenantId, MeterId, i64);
type Changes = BTreeMap<Key, BalanceChange>;

/// Changes of balances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BalanceChanges(Changes);

#[derive(Debug, Clone, PartialEq, Eq)]
struct BalanceChange {
    period_end_ms: i64,
    accounts: Accounts,
    /// What of it the gate did not do.
    beside_gate: Accounts,
    /// What was consumed of holds that were carried into the period.
    consumed_of_carried: Decimal,
}

impl BalanceChanges {
    /// Adds what a posting moves, in any periods.
    pub(crate) fn add(&mut self, posting: &Posting) {
        for line in &posting.lines {
            for movement in line.movements.iter().filter(|movement| movement.is_of_units()) {
                let period = movement.period();
                let key = (posting.tenant.clone(), line.meter.clone(), period.start_ms);
                let change = self.0.entry(key).or_insert_with(|| BalanceChange::in_period(period));
                movement.apply(&mut change.accounts);
                change.consumed_of_carried += movement.consumed_of_carried();
                if !movement.is_by_gate() {
                    movement.apply(&mut change.beside_gate);
                }
            }
        }
    }
}

/// The accounts that events of the gate move; only jobs move the others.
const OF_EVENTS: [Account; 3] = [Account::Available, Account::Reserved, Account::Consumed];
/// The accounts of which the balance keeps apart what the gate did not do: its counters leave that out.
const COUNTED_BY_GATE: [Account; 2] = [Account::Reserved, Account::Consumed];

impl BalanceChange {
    fn in_period(period: Window) -> Self {
        let (accounts, beside_gate) = (Accounts::default(), Accounts::default());
        Self { period_end_ms: period.end_ms, accounts, beside_gate, consumed_of_carried: Decimal::ZERO }
    }

    fn is_of_events(&self) -> bool {
        let mut others = Account::OF_UNITS.into_iter().filter(|account| !OF_EVENTS.contains(account));
        others.all(|account| self.accounts[account.index()].is_zero())
            && COUNTED_BY_GATE.iter().all(|account| self.beside_gate[account.index()].is_zero())
            && self.consumed_of_carried.is_zero()
    }
}

/// A row of the type `moved_balance`.
#[derive(Debug)]
struct MovedBalance<'a> {
    tenant: &'a str,
    meter: &'a str,
    period: (DateTime<Utc>, DateTime<Utc>),
    accounts: &'a Accounts,
}

impl<'a> MovedBalance<'a> {
    fn of(((tenant, meter, start_ms), change): (&'a Key, &'a BalanceChange)) -> Result<Self, LedgerError> {
        Ok(Self {
            tenant: tenant.as_str(),
            meter: meter.as_str(),
            period: (instant::from_ms(*start_ms)?, instant::from_ms(change.period_end_ms)?),
            accounts: &change.accounts,
        })
    }
}

impl ToSql<prepared::Row, Pg> for MovedBalance<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        let [available, reserved, consumed] = OF_EVENTS.map(|account| self.accounts[account.index()]);
        let row = (self.tenant, self.meter, self.period.0, self.period.1, available, reserved, consumed);
        WriteTuple::<(Text, Text, Timestamptz, Timestamptz, Numeric, Numeric, Numeric)>::write_tuple(
            &row,
            &mut out.reborrow(),
        )
    }
}

/// Adds the changes, in order of their keys.
pub(crate) async fn add(connection: &AsyncPgConnection, changes: &BalanceChanges) -> Result<(), LedgerError> {
    match &changes.0 {
        none if none.is_empty() => Ok(()),
        moved if moved.values().all(BalanceChange::is_of_events) => add_of_events(connection, moved).await,
        moved => add_to_all_accounts(connection, moved).await,
    }
}

async fn add_of_events(mut connection: &AsyncPgConnection, changes: &Changes) -> Result<(), LedgerError> {
    let rows = changes.iter().map(MovedBalance::of).collect::<Result<Vec<_>, _>>()?;
    let add = sql_query(include_str!("sql/add_to_balances.sql")).bind::<Array<prepared::Row>, _>(rows);
    add.execute(&mut connection).await?;
    Ok(())
}

async fn add_to_all_accounts(
    mut connection: &AsyncPgConnection,
    changes: &Changes,
) -> Result<(), LedgerError> {
    let ends_ms = changes.values().map(|change| change.period_end_ms);
    let mut add = sql_query(include_str!("sql/add_to_all_accounts.sql"))
        .bind::<Array<Text>, _>(changes.keys().map(|key| key.0.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(changes.keys().map(|key| key.1.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(changes.keys().map(|key| key.2))?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(ends_ms)?);
    for account in Account::OF_UNITS {
        let column: Vec<Decimal> = changes.values().map(|change| change.accounts[account.index()]).collect();
        add = add.bind::<Array<Numeric>, _>(column);
    }
    for account in COUNTED_BY_GATE {
        let beside = changes.values().map(|change| change.beside_gate[account.index()]);
        add = add.bind::<Array<Numeric>, _>(beside.collect::<Vec<Decimal>>());
    }
    let of_carried = changes.values().map(|change| change.consumed_of_carried);
    add = add.bind::<Array<Numeric>, _>(of_carried.collect::<Vec<Decimal>>());
    add.execute(&mut connection).await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    period_end: DateTime<Utc>,
    #[diesel(sql_type = Array<Numeric>)]
    accounts: Vec<Decimal>,
    #[diesel(sql_type = Nullable<Numeric>)]
    included: Option<Decimal>,
    #[diesel(sql_type = Nullable<Numeric>)]
    overdraft: Option<Decimal>,
    #[diesel(sql_type = Numeric)]
    reserved_beside_gate: Decimal,
    #[diesel(sql_type = Numeric)]
    consumed_beside_gate: Decimal,
    #[diesel(sql_type = Numeric)]
    consumed_of_carried: Decimal,
}

impl Row {
    fn read(self) -> Result<MeterBalance, LedgerError> {
        let damaged = || LedgerError::Damaged(format!("the balance of {}", self.meter));
        Ok(MeterBalance {
            meter: MeterId::parse(&self.meter).map_err(|_| damaged())?,
            period_ms: (self.period_start.timestamp_millis(), self.period_end.timestamp_millis()),
            accounts: self.accounts.try_into().map_err(|_| LedgerError::Damaged("a balance".into()))?,
            included: self.included,
            overdraft: self.overdraft,
            beside_gate: BesideGate {
                reserved: self.reserved_beside_gate,
                consumed: self.consumed_beside_gate,
                of_carried: self.consumed_of_carried,
            },
        })
    }
}

impl Ledger {
    /// A tenant's balances of the periods that contain the instant `at_ms` (unix ms), by meter.
    pub async fn balances_of(&self, tenant: &TenantId, at_ms: i64) -> Result<Vec<MeterBalance>, LedgerError> {
        let at = instant::from_ms(at_ms)?;
        let query = || {
            sql_query(include_str!("sql/balances_at.sql"))
                .bind::<Text, _>(tenant.as_str())
                .bind::<Timestamptz, _>(at)
        };
        let rows: Vec<Row> = self.load(query).await?;
        rows.into_iter().map(Row::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::amount::Amount;
    use crate::domain::entry::PostedLine;
    use crate::domain::movements::{Movement, close, gate};

    const PERIOD: Window = Window { start_ms: 0, end_ms: 1_000 };
    const NEXT: Window = Window { start_ms: 1_000, end_ms: 2_000 };

    fn changed_by(movements: Vec<Movement>) -> Vec<BalanceChange> {
        let meter = MeterId::parse("page").unwrap();
        let posting = Posting {
            tenant: TenantId::parse("acme").unwrap(),
            operation_id: uuid::Uuid::nil(),
            step: 1,
            happened_at_ms: 1_000,
            operation: String::new(),
            hour_start_ms: 0,
            subjects: Vec::new(),
            lines: vec![PostedLine { meter, movements, first_leg: 0, begins_to_consume: false }],
        };
        let mut changes = BalanceChanges::default();
        changes.add(&posting);
        changes.0.into_values().collect()
    }

    fn figures(accounts: &Accounts) -> [Decimal; 2] {
        COUNTED_BY_GATE.map(|account| accounts[account.index()])
    }

    #[test]
    fn a_posting_moves_the_balances_of_every_period_that_it_names() {
        let changes = changed_by(close::carry_holds(PERIOD, NEXT, Amount::from_integer(5), Decimal::ZERO));
        let moved: Vec<_> = changes.iter().map(|c| (c.period_end_ms, figures(&c.accounts)[0])).collect();
        assert_eq!(moved, [(1_000, Decimal::from(-5)), (2_000, Decimal::from(5))]);
    }

    #[test]
    fn what_is_carried_or_corrected_stands_beside_what_the_gate_did() {
        let five = Amount::from_integer(5);
        let of_gate = [gate::reserve(PERIOD, five), gate::change(PERIOD, five, five)].concat();
        let (carried, _) = gate::carried(of_gate.clone(), NEXT);
        let (corrected, _) = gate::corrected(gate::usage(PERIOD, five), NEXT);
        let beside = |movements| changed_by(movements).iter().map(|c| figures(&c.beside_gate)).next();
        let [none, five] = [0, 5].map(Decimal::from);
        assert_eq!(beside(of_gate.clone()), Some([none, none]));
        assert_eq!(beside(carried), Some([none, five]));
        assert_eq!(beside(corrected), Some([none, five]));
        assert_eq!(
            beside(close::carry_holds(PERIOD, NEXT, Amount::from_integer(5), none)),
            Some([-five, none])
        );
        assert!(changed_by(of_gate)[0].is_of_events(), "the writer's own statement is enough");
    }
}
