//! Decisions of sampled tenants, by day. They are copied in bulk over a connection of their own, and go day by day.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use diesel::prelude::*;
use diesel::select;
use diesel_async::RunQueryDsl;
use futures::{FutureExt, SinkExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use super::at_work::OwnClient;
use super::functions::drop_decisions_before;
use super::schema::decisions;
use super::{BEGIN, Ledger, LedgerError, instant, number};
use crate::domain::decision::{DecidedCall, DecidedReservation, Decision};
use crate::domain::ids::{OperationId, TenantId};
use crate::domain::reservation::ReservationState;

/// Rows are copied beside the table first, because COPY fails as a whole at a row that is there already.
const BEGIN_COPY: &str = "BEGIN; \
    CREATE TEMP TABLE IF NOT EXISTS copied_decisions (LIKE decisions) ON COMMIT DELETE ROWS";
const COPY: &str = "COPY copied_decisions (id, tenant, at, call, operation, outcome, dry_run, degraded, \
    policy_version, subjects, lines, limits, number, reservation, state, expires_at, code) FROM STDIN";
const END_COPY: &str = "INSERT INTO decisions SELECT * FROM copied_decisions ON CONFLICT DO NOTHING; COMMIT";
const ADMITTED: &str = "admitted";
const REFUSED: &str = "refused";

/// The connection over which decisions are copied, and the days that it knows to have a partition.
#[derive(Default)]
pub(super) struct Copier {
    client: Option<OwnClient>,
    days: BTreeSet<NaiveDate>,
}

#[derive(Queryable)]
struct Row {
    tenant: TenantId,
    id: Uuid,
    at: DateTime<Utc>,
    call: String,
    operation: Option<OperationId>,
    outcome: String,
    dry_run: bool,
    degraded: bool,
    policy_version: i64,
    subjects: Value,
    lines: Value,
    limits: Value,
    number: i64,
    reservation: Option<Uuid>,
    state: Option<String>,
    expires_at: Option<DateTime<Utc>>,
    code: Option<String>,
}

/// A place among a tenant's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionCursor {
    /// When it was made (unix ms).
    pub at_ms: i64,
    /// Its place among those that one instance kept.
    pub number: u64,
    /// Its id.
    pub id: Uuid,
}

impl Ledger {
    /// Stores decisions, all or none. Those that are stored already stay as they are.
    pub async fn copy_decisions(&self, decisions: &[Arc<Decision>]) -> Result<(), LedgerError> {
        let (mut text, mut days) = (String::new(), BTreeSet::new());
        for decision in decisions {
            let at = instant::from_ms(decision.at_ms)?;
            days.insert(at.date_naive());
            write_row(decision, at, &mut text)?;
        }
        let mut copier = self.shared.decisions.lock().await;
        let client = match copier.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => {
                copier.days.clear();
                self.client_of_its_own().await?
            }
        };
        let missing: Vec<_> = days.difference(&copier.days).copied().collect();
        match self.in_time(copy(&client, &missing, text).boxed()).await? {
            Ok(()) => {
                copier.days.extend(missing);
                copier.client = Some(client);
                Ok(())
            }
            // The days are asked for again over the next connection: one may have been dropped.
            Err(error) => Err(error),
        }
    }

    /// The latest decision with this id.
    pub async fn decision(&self, id: Uuid) -> Result<Option<Decision>, LedgerError> {
        let query = || decisions::table.filter(decisions::id.eq(id)).order(decisions::at.desc()).limit(1);
        self.first::<Row, _>(query).await?.map(Decision::try_from).transpose()
    }

    /// A page of a tenant's decisions in the order in which they were made, those before `until_ms` (unix ms).
    pub async fn decisions_of(
        &self,
        tenant: &TenantId,
        after: Option<DecisionCursor>,
        until_ms: i64,
        limit: i64,
    ) -> Result<Vec<Decision>, LedgerError> {
        let until = instant::from_ms(until_ms)?;
        let after = match after {
            Some(after) => Some((instant::from_ms(after.at_ms)?, number::signed(after.number), after.id)),
            None => None,
        };
        let query = || {
            let mut page = decisions::table
                .filter(decisions::tenant.eq(tenant.clone()).and(decisions::at.lt(until)))
                .order((decisions::at, decisions::number, decisions::id))
                .limit(limit)
                .into_boxed();
            if let Some((at, number, id)) = after {
                let is_later = decisions::at.gt(at);
                let is_of_then = decisions::at.eq(at);
                let is_next = decisions::number.eq(number);
                let follows = decisions::number.gt(number).or(is_next.and(decisions::id.gt(id)));
                page = page.filter(decisions::at.ge(at)).filter(is_later.or(is_of_then.and(follows)));
            }
            page
        };
        self.load::<Row, _>(query).await?.into_iter().map(Decision::try_from).collect()
    }

    /// The next tenant by id, after `after`, of whom a decision is stored that was made within these instants (unix
    /// ms).
    pub async fn next_tenant_with_decisions(
        &self,
        after: Option<&TenantId>,
        from_ms: i64,
        until_ms: i64,
    ) -> Result<Option<TenantId>, LedgerError> {
        let (from, until) = (instant::from_ms(from_ms)?, instant::from_ms(until_ms)?);
        let after = after.map_or(String::new(), ToString::to_string);
        let query = || {
            decisions::table
                .filter(decisions::at.ge(from).and(decisions::at.lt(until)))
                .filter(decisions::tenant.gt(after.clone()))
                .select(decisions::tenant)
                .order((decisions::tenant, decisions::at))
                .limit(1)
        };
        self.first(query).await
    }

    /// Drops the decisions of all UTC days before that of this instant (unix ms). Returns how many days.
    pub async fn drop_decisions(&self, before_ms: i64) -> Result<usize, LedgerError> {
        let before = instant::from_ms(before_ms)?.date_naive();
        let dropped: i32 = self
            .transact(BEGIN, move |connection| {
                let drop = select(drop_decisions_before(before));
                async move { Ok(drop.get_result(connection).await?) }.boxed()
            })
            .await?;
        Ok(usize::try_from(dropped).unwrap_or_default())
    }
}

async fn copy(client: &Client, missing: &[NaiveDate], text: String) -> Result<(), LedgerError> {
    let stored = async {
        for day in missing {
            client.batch_execute(&format!("SELECT ensure_decisions_day('{day}')")).await?;
        }
        client.batch_execute(BEGIN_COPY).await?;
        let mut sink = pin!(client.copy_in::<_, Bytes>(COPY).await?);
        sink.send(Bytes::from(text)).await?;
        sink.finish().await?;
        client.batch_execute(END_COPY).await
    };
    Ok(stored.await?)
}

/// A line of the text format of COPY.
fn write_row(decision: &Decision, at: DateTime<Utc>, text: &mut String) -> Result<(), LedgerError> {
    let of_reservation = |field: fn(&DecidedReservation) -> String| {
        decision.reservation.as_ref().map_or_else(String::new, field)
    };
    let outcome = if decision.is_admitted { ADMITTED } else { REFUSED };
    let columns = [
        decision.id.to_string(),
        decision.tenant.to_string(),
        written(at),
        decision.call.as_str().to_owned(),
        decision.operation.as_ref().map_or_else(String::new, ToString::to_string),
        outcome.to_owned(),
        decision.is_dry_run.to_string(),
        decision.is_degraded.to_string(),
        decision.policy_version.to_string(),
        json(&decision.subjects)?,
        json(&decision.lines)?,
        json(&decision.limits)?,
        decision.number.to_string(),
        of_reservation(|it| it.id.to_string()),
        of_reservation(|it| it.state.to_string()),
        match &decision.reservation {
            Some(it) => written(instant::from_ms(it.expires_at_ms)?),
            None => String::new(),
        },
        decision.code.clone().unwrap_or_default(),
    ];
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            text.push('\t');
        }
        // An operation, what belongs to a reservation, and a code can be absent.
        if column.is_empty() { text.push_str("\\N") } else { escape(column, text) }
    }
    text.push('\n');
    Ok(())
}

fn written(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn json(value: &impl Serialize) -> Result<String, LedgerError> {
    serde_json::to_string(value).map_err(|error| LedgerError::Damaged(error.to_string()))
}

/// Writes what separates rows and columns in the text format of COPY as what a column may have.
pub(super) fn escape(column: &str, text: &mut String) {
    for character in column.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            other => text.push(other),
        }
    }
}

impl TryFrom<Row> for Decision {
    type Error = LedgerError;

    fn try_from(row: Row) -> Result<Self, LedgerError> {
        let id = row.id;
        let unreadable = |what: &str| LedgerError::Damaged(format!("the {what} of decision {id}"));
        Ok(Self {
            id,
            at_ms: row.at.timestamp_millis(),
            tenant: row.tenant,
            call: DecidedCall::parse(&row.call).ok_or_else(|| unreadable("call"))?,
            operation: row.operation,
            is_admitted: row.outcome == ADMITTED,
            code: row.code,
            is_dry_run: row.dry_run,
            is_degraded: row.degraded,
            policy_version: number::unsigned(row.policy_version).map_err(|_| unreadable("policy version"))?,
            subjects: list(row.subjects).ok_or_else(|| unreadable("subjects"))?,
            lines: list(row.lines).ok_or_else(|| unreadable("lines"))?,
            limits: list(row.limits).ok_or_else(|| unreadable("limits"))?,
            number: number::unsigned(row.number).map_err(|_| unreadable("number"))?,
            reservation: match (row.reservation, row.state, row.expires_at) {
                (Some(id), Some(state), Some(expires_at)) => Some(DecidedReservation {
                    id,
                    state: ReservationState::parse(&state).ok_or_else(|| unreadable("state"))?,
                    expires_at_ms: expires_at.timestamp_millis(),
                }),
                _ => None,
            },
        })
    }
}

fn list<T: DeserializeOwned>(stored: Value) -> Option<Vec<T>> {
    serde_json::from_value(stored).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_separates_rows_and_columns_is_escaped_within_them() {
        let mut text = String::new();
        escape("a\tb\nc\rd\\N \"é\"", &mut text);
        assert_eq!(text, "a\\tb\\nc\\rd\\\\N \"é\"");
    }
}
