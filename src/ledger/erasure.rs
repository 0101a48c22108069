//! Erasing a subject's name: the books keep its number, and nothing keeps the name.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::query_builder::SqlQuery;
use diesel::sql_query;
use diesel::sql_types::{self, Array, BigInt, Binary, SmallInt, Text, Timestamptz};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, TransactionManager};
use serde_json::json;
use uuid::Uuid;

use super::at_work::AtWork;
use super::schema::subjects;
use super::{Conflict, Ledger, LedgerError, audit, cursors, notices, number};
use crate::domain::codec::Write;
use crate::domain::ids::{Partition, Subject, SubjectId, TenantId};
use crate::domain::reservation::{Record, SubjectHash};

/// The kind of notice that announces an erasure; its id is the tenant.
pub const NOTICE: &str = "subject";

/// A subject with many reservations takes longer than a call may.
const BEGIN_ERASURE: &str =
    "BEGIN; SET LOCAL statement_timeout = '10min'; SET LOCAL idle_in_transaction_session_timeout = '10min'";
/// How many records are rewritten by one statement.
const AT_ONCE: usize = 1_000;

/// Whose name is erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// Its tenant's partition.
    pub partition: Partition,
    /// Its tenant.
    pub tenant: TenantId,
    /// The subject.
    pub subject: Subject,
    /// What it is called at the gate.
    pub hash: SubjectHash,
}

/// What the gate calls a subject.
pub type HashOf<'a> = &'a (dyn Fn(&Subject) -> SubjectHash + Sync);

#[derive(QueryableByName)]
struct NamedRow {
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = sql_types::Uuid)]
    id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    born_at: DateTime<Utc>,
    #[diesel(sql_type = Binary)]
    record: Vec<u8>,
}

#[derive(QueryableByName)]
struct Waiting {
    #[diesel(sql_type = BigInt)]
    waiting: i64,
}

impl Ledger {
    /// Checks that nothing stands in the way of an erasure.
    ///
    /// Errors: [`LedgerError::Conflict`] while something under the name waits to be booked, decided or resolved.
    pub async fn may_erase(&self, erasure: &Erasure) -> Result<(), LedgerError> {
        let free = self.connection().await?;
        let mut at_work = AtWork::default();
        let done = nothing_waits(at_work.begin(free), erasure).await;
        at_work.end();
        done
    }

    /// Erases a subject's name in one transaction, and audits that without the name. Nothing of the tenant's partition
    /// is booked meanwhile. Returns the name that stands in its place; none where the books do not know the subject.
    ///
    /// Errors: [`LedgerError::Conflict`] while something under this name waits to be booked, decided or
    /// resolved.
    pub async fn erase_subject(
        &self,
        erasure: &Erasure,
        hash_of: HashOf<'_>,
        actor: &str,
    ) -> Result<Option<SubjectId>, LedgerError> {
        let mut connection = self.connection().await?;
        let connection = &mut *connection;
        AnsiTransactionManager::begin_transaction_sql(connection, BEGIN_ERASURE).await?;
        match erase(connection, erasure, hash_of, actor).await {
            Ok(erased) => {
                AnsiTransactionManager::commit_transaction(connection).await?;
                self.forget_subjects();
                Ok(erased)
            }
            Err(error) => {
                AnsiTransactionManager::rollback_transaction(connection).await?;
                Err(error)
            }
        }
    }
}

/// Checks that nothing under the subject's name waits to be booked, decided or resolved.
async fn nothing_waits(connection: &mut AsyncPgConnection, erasure: &Erasure) -> Result<(), LedgerError> {
    let Erasure { tenant, subject, .. } = erasure;
    let waiting: Waiting = sql_query(include_str!("sql/waiting_names.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Binary, _>(packed(subject))
        .bind::<Text, _>(&subject.kind)
        .bind::<Text, _>(&subject.id)
        .get_result(connection)
        .await?;
    match waiting.waiting {
        0 => Ok(()),
        waiting => Err(LedgerError::Conflict(Conflict::NameWaits(number::unsigned(waiting)?))),
    }
}

async fn erase(
    connection: &mut AsyncPgConnection,
    erasure: &Erasure,
    hash_of: HashOf<'_>,
    actor: &str,
) -> Result<Option<SubjectId>, LedgerError> {
    let Erasure { partition, tenant, subject, hash } = erasure;
    cursors::lock(connection, &[*partition]).await?;
    nothing_waits(connection, erasure).await?;
    cursors::count_erasure(connection, *partition).await?;
    let packed = packed(subject);
    let find = subjects::table
        .filter(subjects::tenant.eq(tenant))
        .filter(subjects::kind.eq(&subject.kind))
        .filter(subjects::id.eq(&subject.id));
    let found: Option<i64> = find.select(subjects::number).first(connection).await.optional()?;
    let text = found.map_or_else(|| "erased".to_owned(), |number| format!("erased-{number}"));
    let pseudonym = SubjectId::parse(&text).map_err(|error| LedgerError::Damaged(error.to_string()))?;
    if let Some(number) = found {
        let renamed = Subject { kind: subject.kind.clone(), id: pseudonym.clone() };
        let renamed = (renamed.clone(), hash_of(&renamed));
        for of in [OPEN_AND_RESOLVED, ARCHIVED] {
            rename(connection, erasure, number, &renamed, of).await?;
        }
        let row = subjects::table.find((tenant, number));
        diesel::update(row).set(subjects::id.eq(&pseudonym)).execute(connection).await?;
    }
    sql_query(include_str!("sql/drop_named_events.sql"))
        .bind::<Text, _>(tenant)
        .bind::<Binary, _>(&packed)
        .bind::<Text, _>(&subject.kind)
        .bind::<Text, _>(hash.digits())
        .execute(connection)
        .await?;
    for statement in [
        sql_query(include_str!("sql/rename_compared.sql")),
        sql_query(include_str!("sql/rename_in_history.sql")),
    ] {
        statement
            .bind::<Text, _>(tenant)
            .bind::<Text, _>(&subject.kind)
            .bind::<Text, _>(&subject.id)
            .bind::<Text, _>(&pseudonym)
            .execute(connection)
            .await?;
    }
    let detail = json!({ "subject_kind": subject.kind.as_str(), "subject_number": found });
    audit::note(connection, actor, "erase", &format!("tenant {tenant}"), detail).await?;
    notices::tell(connection, NOTICE, tenant.as_str(), 0).await?;
    Ok(found.map(|_| pseudonym))
}

/// The name as records and events pack it.
fn packed(subject: &Subject) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_text(subject.kind.as_str());
    out.put_text(subject.id.as_str());
    out
}

/// How the records of a table are found and rewritten.
type OfTable = (fn() -> SqlQuery, fn() -> SqlQuery);

const OPEN_AND_RESOLVED: OfTable = (
    || sql_query(include_str!("sql/named_reservations.sql")),
    || sql_query(include_str!("sql/rename_reservations.sql")),
);
const ARCHIVED: OfTable = (
    || sql_query(include_str!("sql/named_archived.sql")),
    || sql_query(include_str!("sql/rename_archived.sql")),
);

/// Rewrites the records that name the subject, newest first.
async fn rename(
    connection: &mut AsyncPgConnection,
    erasure: &Erasure,
    number: i64,
    other: &(Subject, SubjectHash),
    (find, rewrite): OfTable,
) -> Result<(), LedgerError> {
    let mut before = (DateTime::<Utc>::MAX_UTC, Uuid::max());
    loop {
        let named: Vec<NamedRow> = found(find(), erasure, number, before).load(connection).await?;
        let Some(last) = named.last() else { return Ok(()) };
        before = (last.born_at, last.id);
        let records: Result<Vec<_>, _> =
            named.iter().map(|row| renamed(row, &erasure.subject, other)).collect();
        rewrite()
            .bind::<Text, _>(&erasure.tenant)
            .bind::<Array<SmallInt>, _>(named.iter().map(|row| row.partition).collect::<Vec<_>>())
            .bind::<Array<sql_types::Uuid>, _>(named.iter().map(|row| row.id).collect::<Vec<_>>())
            .bind::<Array<Timestamptz>, _>(named.iter().map(|row| row.born_at).collect::<Vec<_>>())
            .bind::<Array<Binary>, _>(records?)
            .execute(connection)
            .await?;
    }
}

fn found(
    find: SqlQuery,
    erasure: &Erasure,
    number: i64,
    before: (DateTime<Utc>, Uuid),
) -> diesel::query_builder::BoxedSqlQuery<'static, diesel::pg::Pg, SqlQuery> {
    find.into_boxed()
        .bind::<Text, _>(erasure.tenant.clone())
        .bind::<BigInt, _>(number)
        .bind::<Timestamptz, _>(before.0)
        .bind::<sql_types::Uuid, _>(before.1)
        .bind::<BigInt, _>(number::limit(AT_ONCE))
}

/// The record with the other name. Metadata that has the name in it goes whole.
fn renamed(
    row: &NamedRow,
    subject: &Subject,
    other: &(Subject, SubjectHash),
) -> Result<Vec<u8>, LedgerError> {
    let mut record = Record::decode(&row.record)
        .map_err(|error| LedgerError::Damaged(format!("reservation {}: {error}", row.id)))?;
    if let Some(rest) = &mut record.body.rest {
        for named in rest.subjects.iter_mut().filter(|(named, _)| named == subject) {
            *named = other.clone();
        }
        if rest.metadata.contains(subject.id.as_str()) {
            rest.metadata.clear();
        }
    }
    Ok(record.encode())
}
