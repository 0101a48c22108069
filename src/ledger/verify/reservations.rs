//! Compares every reservation's rows with its own entries: what it holds and has consumed, line by line. A key that was
//! used again after its first reservation was archived has several rows, and the entries of all of them.

use diesel::QueryableByName;
use diesel::sql_types::{self, Array, Binary, Nullable, Numeric, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::TryStreamExt;
use rust_decimal::Decimal;

use super::part::Part;
use super::{Check, Fault};
use crate::domain::amount::Units;
use crate::domain::ids::MeterId;
use crate::domain::reservation::{Record, ReservationState};
use crate::ledger::LedgerError;
use crate::ledger::prepared::sql_query;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = sql_types::Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    states: Option<Vec<String>>,
    #[diesel(sql_type = Nullable<Array<Binary>>)]
    records: Option<Vec<Vec<u8>>>,
    #[diesel(sql_type = Nullable<Array<SmallInt>>)]
    lines: Option<Vec<i16>>,
    #[diesel(sql_type = Nullable<Array<Numeric>>)]
    reserved: Option<Vec<Decimal>>,
    #[diesel(sql_type = Nullable<Array<Numeric>>)]
    consumed: Option<Vec<Decimal>>,
}

pub(super) async fn check(connection: &mut AsyncPgConnection, part: &Part) -> Result<Check, LedgerError> {
    let mut check = Check::of("reservations agree with their entries");
    let query =
        sql_query(include_str!("../sql/reservations_with_entries.sql")).bind::<Array<Text>, _>(&part.tenants);
    let mut rows = query.load_stream::<Row>(connection).await?;
    while let Some(row) = rows.try_next().await? {
        check.checked += 1;
        if let Err(detail) = judge(&row) {
            check.fault(Fault::new(format!("reservation {} of {}", row.id, row.tenant), detail));
        }
    }
    Ok(check)
}

fn judge(row: &Row) -> Result<(), String> {
    let (states, records) = row.states.as_ref().zip(row.records.as_ref()).ok_or("has entries but no row")?;
    let mut lines: Vec<Line> = Vec::new();
    for (state, record) in states.iter().zip(records) {
        let record = Record::decode(record).map_err(|error| error.to_string())?;
        if state != record.head.state.as_str() || record.body.tenant.as_str() != row.tenant {
            return Err("the row and its record differ".into());
        }
        add(&mut lines, &record);
    }
    for (index, line) in lines.iter().enumerate() {
        let says = line.figures.map(|sum| sum.normalize());
        let booked = booked(row, index);
        if says != booked {
            return Err(format!(
                "line {index} ({}) holds {} and consumed {}, by its entries {} and {}",
                line.meter, says[0], says[1], booked[0], booked[1]
            ));
        }
    }
    Ok(())
}

/// What the rows say about a line, summed over them: held and consumed.
struct Line {
    meter: MeterId,
    figures: [Decimal; 2],
}

fn add(lines: &mut Vec<Line>, record: &Record) {
    let is_open = record.head.state == ReservationState::Reserved;
    for (index, (units, rule)) in record.units.iter().zip(&record.body.lines).enumerate() {
        let held = if is_open { units.outstanding() } else { Units::ZERO };
        let mut amounts = [held, units.consumed].map(|units| units.to_amount(rule.decimals).decimal());
        // What is not booked has no entries.
        if !rule.booked {
            amounts = [Decimal::ZERO; 2];
        }
        if record.head.takes_back() {
            amounts[1] = -amounts[1];
        }
        match lines.get_mut(index) {
            Some(line) => line.figures.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount),
            None => lines.push(Line { meter: rule.meter.clone(), figures: amounts }),
        }
    }
}

/// The sums of a line's entries: reserved and consumed.
fn booked(row: &Row, line: usize) -> [Decimal; 2] {
    let lines = row.lines.as_deref().unwrap_or_default();
    let place = lines.iter().position(|number| usize::try_from(*number) == Ok(line));
    [&row.reserved, &row.consumed].map(|sums| {
        let sums = sums.as_deref().unwrap_or_default();
        place.and_then(|place| sums.get(place)).copied().unwrap_or_default().normalize()
    })
}
