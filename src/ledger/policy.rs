//! The policy as stored: objects by kind and id, every version of them, and the counters' generations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::deserialize::FromSqlRow;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Jsonb, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::Value;

use super::columns::{Microseconds, Unsigned, reads};
use super::prepared::sql_query;
use super::schema::{counter_generations, policy_history, policy_objects, policy_version};
use super::{BEGIN_SNAPSHOT, CalendarChange, CurrencyChange, Ledger, LedgerError, NewPlan, number};
use crate::domain::codec::Write;
use crate::domain::currencies::DatedCurrency;
use crate::domain::ids::{LimitId, MeterId, OperationId, TenantId};
use crate::domain::period::DatedCalendar;
use crate::domain::policy::diff::DefinitionKind;

/// A stored object of the policy that is not a tenant.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable)]
#[diesel(table_name = policy_objects, check_for_backend(Pg))]
pub struct StoredObject {
    /// Its kind.
    #[diesel(deserialize_as = StoredKind)]
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// Rises with every change of it.
    #[diesel(deserialize_as = Unsigned)]
    pub version: u64,
    /// Its definition, with the fields of the policy file.
    pub definition: Value,
    /// Whether it is archived.
    pub archived: bool,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// A list of a tenant's own that stands in its definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnList<'a> {
    /// Its overrides, those of one limit if one is named.
    Overrides(Option<&'a LimitId>),
    /// Its bans.
    Bans,
}

/// A kind, stored as its word.
#[derive(Debug, FromSqlRow)]
pub struct StoredKind(DefinitionKind);

reads!(Text => StoredKind, |word: String| {
    Self(DefinitionKind::from_word(&word).ok_or_else(|| format!("{word:?} is no kind of object"))?)
});

impl From<StoredKind> for DefinitionKind {
    fn from(stored: StoredKind) -> Self {
        stored.0
    }
}

/// A stored tenant.
#[derive(Debug, Clone, PartialEq, QueryableByName)]
pub struct StoredTenant {
    /// Its id.
    #[diesel(sql_type = Text)]
    pub id: TenantId,
    /// Rises with every change of it.
    #[diesel(sql_type = BigInt, deserialize_as = Unsigned)]
    pub version: u64,
    /// Its definition, with the fields of the policy file.
    #[diesel(sql_type = Jsonb)]
    pub definition: Value,
    /// Which of its counters were reset, and when.
    #[diesel(sql_type = Jsonb)]
    pub counter_resets: Value,
    /// Its calendars by their dates; none where the definition's calendar always holds.
    #[diesel(sql_type = Jsonb, deserialize_as = StoredCalendars)]
    pub calendars: Vec<DatedCalendar>,
    /// The currencies that it pays in by their dates; none where its definition's always holds.
    #[diesel(sql_type = Jsonb, deserialize_as = StoredCurrencies)]
    pub currencies: Vec<DatedCurrency>,
    /// Whether it is archived.
    #[diesel(sql_type = Bool)]
    pub archived: bool,
    /// When it was created (unix µs): its place in lists.
    #[diesel(sql_type = Timestamptz, column_name = created_at, deserialize_as = Microseconds)]
    pub created_at_us: i64,
}

/// A tenant's calendars as the query gathers them.
#[derive(Debug, FromSqlRow)]
pub struct StoredCalendars(Vec<DatedCalendar>);

reads!(Jsonb => StoredCalendars, |all: Value| Self(serde_json::from_value(all)?));

impl From<StoredCalendars> for Vec<DatedCalendar> {
    fn from(stored: StoredCalendars) -> Self {
        stored.0
    }
}

/// A tenant's currencies as the query gathers them.
#[derive(Debug, FromSqlRow)]
pub struct StoredCurrencies(Vec<DatedCurrency>);

reads!(Jsonb => StoredCurrencies, |all: Value| Self(serde_json::from_value(all)?));

impl From<StoredCurrencies> for Vec<DatedCurrency> {
    fn from(stored: StoredCurrencies) -> Self {
        stored.0
    }
}

/// A tenant that was changed while a change of the policy was being prepared, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantSince {
    /// Its id.
    pub id: TenantId,
    /// What is stored now; none where it is gone.
    pub stored: Option<StoredTenant>,
}

/// The versions of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyVersions {
    /// The version: rises with every change of anything, tenants too.
    pub version: u64,
    /// The last change of something that is not a tenant.
    pub shared: SharedChange,
}

/// A change of something that is not a tenant. After a restored backup the ledger uses a number again, but with another
/// instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedChange {
    /// The version that it made; 0 where there was none.
    pub version: u64,
    /// When it was made (unix µs).
    pub at_us: i64,
}

/// A counter's generation: raised when a limit takes on a signature that it did not have before.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = counter_generations, check_for_backend(Pg))]
pub struct Generation {
    /// The limit's id.
    pub limit_id: String,
    /// The signature, as a hash in text.
    pub shape: String,
    /// From 1.
    #[diesel(deserialize_as = Unsigned)]
    pub generation: u64,
    /// From when it counts (unix ms).
    pub since_ms: i64,
}

/// Everything but the tenants, as of one instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredPolicy {
    /// Its versions.
    pub versions: PolicyVersions,
    /// All objects that are not tenants, by kind and id.
    pub objects: Vec<StoredObject>,
    /// All generations.
    pub generations: Vec<Generation>,
}

/// Which version of an object a change expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever there is, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// This one.
    Version(u64),
}

/// What a change does.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyAction {
    /// Creates or replaces.
    Put {
        /// The whole definition.
        definition: Value,
        /// Whether it is archived.
        archived: bool,
        /// Tenants only: which of its counters were reset, and when; none where none was.
        counter_resets: Option<Value>,
    },
    /// Deletes. A meter or a tenant with something booked is refused.
    Delete,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyChange {
    /// Its kind.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// The version it must have.
    pub expected: Expected,
    /// What to do.
    pub action: PolicyAction,
}

/// Changes that are made together or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyWrite {
    /// In order.
    pub changes: Vec<PolicyChange>,
    /// Meters on which nothing may be booked: the changes alter what the first use fixes.
    pub unused_meters: Vec<MeterId>,
    /// Generations that the changes begin or raise.
    pub generations: Vec<Generation>,
    /// What the changes do to tenants' calendars.
    pub calendars: Vec<CalendarChange>,
    /// What they do to the currencies that tenants pay in.
    pub currencies: Vec<CurrencyChange>,
    /// The other plans that they put tenants on.
    pub plans: Vec<NewPlan>,
    /// Who asks, for the audit log.
    pub actor: String,
    /// By the service's clock (unix ms): from when on the new versions hold.
    pub at_ms: i64,
}

/// An object after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenObject {
    /// Its kind.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// Its new version.
    pub version: u64,
    /// Whether the change created it.
    pub created: bool,
}

/// The result of a write of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyWritten {
    /// The policy's new version.
    pub version: u64,
    /// The objects changed, in order.
    pub objects: Vec<WrittenObject>,
}

/// A place in the list of tenants, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantCursor {
    /// When the tenant was made (unix µs).
    pub created_at_us: i64,
    /// Its id.
    pub id: TenantId,
}

#[derive(QueryableByName)]
struct DefinitionRow {
    #[diesel(sql_type = Jsonb)]
    definition: Value,
}

#[derive(QueryableByName)]
struct VersionsRow {
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    shared_version: Option<i64>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    shared_at: Option<DateTime<Utc>>,
}

#[derive(QueryableByName)]
struct ExistsRow {
    #[diesel(sql_type = Bool)]
    found: bool,
}

impl Ledger {
    /// Everything but the tenants, as of one instant.
    pub async fn read_policy(&self) -> Result<StoredPolicy, LedgerError> {
        self.transact(BEGIN_SNAPSHOT, |connection| read_policy(connection).boxed()).await
    }

    /// The policy's version.
    pub async fn policy_version(&self) -> Result<u64, LedgerError> {
        let version = self.first(|| policy_version::table.select(policy_version::version)).await?;
        number::unsigned(version.unwrap_or_default())
    }

    /// The versions of the policy.
    pub async fn policy_versions(&self) -> Result<PolicyVersions, LedgerError> {
        self.read(|connection| read_versions(connection).boxed()).await
    }

    /// Those of these tenants that exist.
    pub async fn read_tenants(&self, ids: Vec<TenantId>) -> Result<Vec<StoredTenant>, LedgerError> {
        let ids: Vec<String> = ids.iter().map(TenantId::to_string).collect();
        self.read(|connection| {
            let ids = ids.clone();
            async move { read_tenants(connection, ids).await }.boxed()
        })
        .await
    }

    /// One tenant as stored.
    pub async fn read_tenant_definition(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<StoredTenant>, LedgerError> {
        Ok(self.read_tenants(vec![tenant.clone()]).await?.into_iter().next())
    }

    /// Tenants, newest first, at most `limit`, after `after`.
    pub async fn list_tenants(
        &self,
        after: Option<&TenantCursor>,
        limit: usize,
    ) -> Result<Vec<StoredTenant>, LedgerError> {
        let place_at = after.map(|place| place_instant(place.created_at_us)).transpose()?;
        self.load(|| {
            sql_query(include_str!("sql/tenants.sql"))
                .bind::<Nullable<Array<Text>>, _>(None::<Vec<String>>)
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<Nullable<Text>, _>(after.map(|place| place.id.as_str()))
                .bind::<BigInt, _>(number::limit(limit))
        })
        .await
    }

    /// Definitions of tenants that have prices of their own, of this meter if one is named, by id, at most `limit`,
    /// after `after`.
    pub async fn tenants_with_prices(
        &self,
        after: Option<&str>,
        meter: Option<&MeterId>,
        limit: usize,
    ) -> Result<Vec<Value>, LedgerError> {
        let query = || {
            sql_query(include_str!("sql/tenants_with_prices.sql"))
                .bind::<Nullable<Text>, _>(after.map(str::to_owned))
                .bind::<Nullable<Text>, _>(meter.map(MeterId::as_str).map(str::to_owned))
                .bind::<BigInt, _>(number::limit(limit))
        };
        let rows: Vec<DefinitionRow> = self.load(query).await?;
        Ok(rows.into_iter().map(|row| row.definition).collect())
    }

    /// Definitions of at most `limit` tenants that have something in this list, by id, after this id.
    pub async fn tenants_with_own(
        &self,
        list: OwnList<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Value>, LedgerError> {
        let query = || {
            let query = match list {
                OwnList::Overrides(_) => sql_query(include_str!("sql/tenants_with_overrides.sql")),
                OwnList::Bans => sql_query(include_str!("sql/tenants_with_bans.sql")),
            };
            let query = query
                .bind::<Nullable<Text>, _>(after.map(str::to_owned))
                .bind::<BigInt, _>(number::limit(limit));
            match list {
                OwnList::Overrides(of) => query.bind::<Nullable<Text>, _>(of.map(LimitId::to_string)),
                OwnList::Bans => query,
            }
        };
        let rows: Vec<DefinitionRow> = self.load(query).await?;
        Ok(rows.into_iter().map(|row| row.definition).collect())
    }

    /// An operation's definition at a version of the policy; none when there was none.
    pub async fn operation_at_version(
        &self,
        operation: &OperationId,
        policy_version: u64,
    ) -> Result<Option<Value>, LedgerError> {
        let query = || {
            policy_history::table
                .select(policy_history::definition)
                .filter(policy_history::kind.eq("operation"))
                .filter(policy_history::id.eq(operation.as_str()))
                .filter(policy_history::policy_version.le(number::signed(policy_version)))
                .order(policy_history::version.desc())
                .limit(1)
        };
        Ok(self.first(query).await?.flatten())
    }

    /// Whether anything was booked on the meter, or waits to be, so that its unit and decimals are fixed.
    pub async fn is_meter_booked(&self, meter: &MeterId) -> Result<bool, LedgerError> {
        let meter = meter.to_string();
        self.read(|connection| {
            let meter = meter.clone();
            async move { is_meter_booked(connection, &meter).await }.boxed()
        })
        .await
    }
}

fn place_instant(us: i64) -> Result<DateTime<Utc>, LedgerError> {
    DateTime::from_timestamp_micros(us).ok_or_else(|| LedgerError::Refused(format!("{us} is not an instant")))
}

async fn read_policy(connection: &mut AsyncPgConnection) -> Result<StoredPolicy, LedgerError> {
    let objects = policy_objects::table
        .select(StoredObject::as_select())
        .order((policy_objects::kind, policy_objects::id))
        .load(connection)
        .await?;
    let generations = counter_generations::table
        .select(Generation::as_select())
        .order((counter_generations::limit_id, counter_generations::shape))
        .load(connection)
        .await?;
    Ok(StoredPolicy { versions: read_versions(connection).await?, objects, generations })
}

pub(crate) async fn read_tenants(
    connection: &mut AsyncPgConnection,
    ids: Vec<String>,
) -> Result<Vec<StoredTenant>, LedgerError> {
    let query = sql_query(include_str!("sql/tenants.sql"))
        .bind::<Nullable<Array<Text>>, _>(Some(ids))
        .bind::<Nullable<Timestamptz>, _>(None::<DateTime<Utc>>)
        .bind::<Nullable<Text>, _>(None::<String>)
        .bind::<BigInt, _>(i64::MAX);
    Ok(query.load(connection).await?)
}

/// The tenants that were changed, made or deleted after a version of the policy.
pub(super) async fn tenants_since(
    connection: &mut AsyncPgConnection,
    version: u64,
) -> Result<Vec<TenantSince>, LedgerError> {
    let ids: Vec<String> = policy_history::table
        .select(policy_history::id)
        .distinct()
        .filter(policy_history::policy_version.gt(number::signed(version)))
        .filter(policy_history::kind.eq(DefinitionKind::Tenant.as_str()))
        .load(connection)
        .await?;
    let mut stored: BTreeMap<TenantId, StoredTenant> =
        read_tenants(connection, ids.clone()).await?.into_iter().map(|row| (row.id.clone(), row)).collect();
    ids.iter()
        .map(|id| {
            let id = number::tenant(id)?;
            Ok(TenantSince { stored: stored.remove(&id), id })
        })
        .collect()
}

/// Reads the versions of the policy.
pub(super) async fn read_versions(connection: &mut AsyncPgConnection) -> Result<PolicyVersions, LedgerError> {
    let row: VersionsRow = sql_query(include_str!("sql/policy_versions.sql")).get_result(connection).await?;
    let version = row.shared_version.map(number::unsigned).transpose()?.unwrap_or_default();
    let at_us = row.shared_at.map(|at| at.timestamp_micros()).unwrap_or_default();
    Ok(PolicyVersions { version: number::unsigned(row.version)?, shared: SharedChange { version, at_us } })
}

pub(super) async fn is_meter_booked(
    connection: &mut AsyncPgConnection,
    meter: &str,
) -> Result<bool, LedgerError> {
    let mut named = Vec::new();
    named.put_text(meter);
    let query =
        sql_query(include_str!("sql/meter_is_booked.sql")).bind::<Text, _>(meter).bind::<Binary, _>(named);
    let row: ExistsRow = query.get_result(connection).await?;
    Ok(row.found)
}

/// Whether anything is booked for the tenant, or waits to be.
pub(super) async fn has_booked(
    connection: &mut AsyncPgConnection,
    tenant: &str,
) -> Result<bool, LedgerError> {
    let row: ExistsRow =
        sql_query(include_str!("sql/has_booked.sql")).bind::<Text, _>(tenant).get_result(connection).await?;
    Ok(row.found)
}
