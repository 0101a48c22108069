//! Subjects' numbers: one table has the names, the books use the numbers.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use moka::sync::Cache;

use super::prepared::{Statement, sql_query};
use super::{Ledger, LedgerError};
use crate::domain::ids::{Partition, Subject, SubjectId, SubjectKind, TenantId};

/// A subject of a tenant.
pub(crate) type TenantSubject = (TenantId, Subject);
/// Numbers by subject.
pub(crate) type SubjectNumbers = HashMap<TenantSubject, i64>;

const KNOWN_MAX: u64 = 100_000;
/// An instance that books nothing and hears nothing of an erasure forgets the name within this time.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Numbers read from committed rows: they stay until a name is erased.
pub(super) struct KnownSubjects {
    numbers: Cache<TenantSubject, i64>,
    /// How many names were erased in each partition when it was last booked.
    erasures: Mutex<HashMap<Partition, i64>>,
}

impl Default for KnownSubjects {
    fn default() -> Self {
        let numbers = Cache::builder().max_capacity(KNOWN_MAX).time_to_live(KNOWN_FOR).build();
        Self { numbers, erasures: Mutex::default() }
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Text)]
    kind: SubjectKind,
    #[diesel(sql_type = Text)]
    id: SubjectId,
}

impl Ledger {
    /// The numbers of these subjects; new ones get a number in this transaction.
    pub(crate) async fn number_subjects(
        &self,
        connection: &mut AsyncPgConnection,
        wanted: BTreeSet<TenantSubject>,
    ) -> Result<SubjectNumbers, LedgerError> {
        let (mut numbers, unknown) = self.known_subjects(wanted);
        if unknown.is_empty() {
            return Ok(numbers);
        }
        for (subject, number) in find(connection, &unknown).await? {
            self.shared.subjects.numbers.insert(subject.clone(), number);
            numbers.insert(subject, number);
        }
        let new: Vec<_> = unknown.into_iter().filter(|subject| !numbers.contains_key(subject)).collect();
        if !new.is_empty() {
            numbers.extend(insert(connection, &new).await?);
        }
        Ok(numbers)
    }

    /// Forgets all numbers, because a name was erased: the table is asked again.
    pub fn forget_subjects(&self) {
        self.shared.subjects.numbers.invalidate_all();
    }

    /// Forgets all numbers if names were erased in these partitions since they were last booked here. Their cursors are
    /// locked, so that no name of theirs is erased before the transaction ends.
    pub(crate) fn heed_erasures(&self, counts: impl IntoIterator<Item = (Partition, i64)>) {
        let mut seen = self.shared.subjects.erasures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = false;
        for (partition, count) in counts {
            is_new |= seen.insert(partition, count).unwrap_or_default() != count;
        }
        if is_new {
            self.forget_subjects();
        }
    }

    fn known_subjects(&self, wanted: BTreeSet<TenantSubject>) -> (SubjectNumbers, Vec<TenantSubject>) {
        let mut numbers = SubjectNumbers::with_capacity(wanted.len());
        let mut unknown = Vec::new();
        for subject in wanted {
            match self.shared.subjects.numbers.get(&subject) {
                Some(number) => {
                    numbers.insert(subject, number);
                }
                None => unknown.push(subject),
            }
        }
        (numbers, unknown)
    }
}

/// The numbers of those subjects that have one.
pub(crate) async fn find(
    connection: &mut AsyncPgConnection,
    subjects: &[TenantSubject],
) -> Result<Vec<(TenantSubject, i64)>, LedgerError> {
    run(connection, sql_query(include_str!("sql/find_subjects.sql")), subjects).await
}

/// Numbers subjects that had none. Where a concurrent transaction gave a number meanwhile, that one stays.
async fn insert(
    connection: &mut AsyncPgConnection,
    subjects: &[TenantSubject],
) -> Result<Vec<(TenantSubject, i64)>, LedgerError> {
    run(connection, sql_query(include_str!("sql/number_subjects.sql")), subjects).await
}

async fn run(
    connection: &mut AsyncPgConnection,
    query: Statement<'_>,
    subjects: &[TenantSubject],
) -> Result<Vec<(TenantSubject, i64)>, LedgerError> {
    let column = |pick: fn(&TenantSubject) -> &str| subjects.iter().map(pick).collect::<Vec<_>>();
    let rows: Vec<Row> = query
        .bind::<Array<Text>, _>(column(|(tenant, _)| tenant.as_str()))
        .bind::<Array<Text>, _>(column(|(_, subject)| subject.kind.as_str()))
        .bind::<Array<Text>, _>(column(|(_, subject)| subject.id.as_str()))
        .load(connection)
        .await?;
    let read = |row: Row| ((row.tenant, Subject { kind: row.kind, id: row.id }), row.number);
    Ok(rows.into_iter().map(read).collect())
}
