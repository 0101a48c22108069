//! The policy as stored: objects by kind and id, every version of them, and the counters' generations.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Jsonb, Nullable, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::Value;

use super::{BEGIN_SNAPSHOT, CalendarChange, Ledger, LedgerError, number};
use crate::domain::codec::Write;
use crate::domain::ids::{MeterId, OperationId, TenantId};
use crate::domain::period::DatedCalendar;
use crate::domain::policy::diff::DefinitionKind;

/// A stored object of the policy that is not a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredObject {
    /// Which kind.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// Rises with every change of it.
    pub version: u64,
    /// Its definition, with the fields of the policy file.
    pub definition: Value,
    /// Whether it is archived.
    pub archived: bool,
}

/// A stored tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTenant {
    /// Its id.
    pub id: TenantId,
    /// Rises with every change of it.
    pub version: u64,
    /// Its definition, with the fields of the policy file.
    pub definition: Value,
    /// Which of its counters began anew, and when.
    pub counter_resets: Value,
    /// Its calendars by their dates; none where the definition's holds for ever.
    pub calendars: Vec<DatedCalendar>,
    /// Whether it is archived.
    pub archived: bool,
    /// When it was made (unix µs): its place in lists.
    pub created_at_us: i64,
}

/// A tenant that was changed while a change of the policy was being prepared: as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantSince {
    /// Which one.
    pub id: TenantId,
    /// What is stored now; none where it is gone.
    pub stored: Option<StoredTenant>,
}

/// How far the policy has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyVersions {
    /// The version: rises with every change of anything, tenants too.
    pub version: u64,
    /// The last change of something that is not a tenant.
    pub shared: SharedChange,
}

/// A change of something that is not a tenant. A ledger that was set back gives a number anew, but not with its instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedChange {
    /// The version that it made; 0 where there was none.
    pub version: u64,
    /// When it was made (unix µs).
    pub at_us: i64,
}

/// A counter's generation: bumped when a limit takes on a shape that was not defined before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The limit's id.
    pub limit_id: String,
    /// The shape, as a hash in text.
    pub shape: String,
    /// From 1.
    pub generation: u64,
    /// From when it counts (unix ms).
    pub since_ms: i64,
}

/// Everything but the tenants, as of one instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredPolicy {
    /// How far it has got.
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
        /// Tenants only: which of its counters began anew, and when; none where none did.
        counter_resets: Option<Value>,
    },
    /// Deletes. Refused for a meter and a tenant with something booked.
    Delete,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyChange {
    /// Which kind.
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
    /// Meters of which nothing may be booked: the changes alter what is fixed by the first use.
    pub unused_meters: Vec<MeterId>,
    /// Generations that the changes begin or raise.
    pub generations: Vec<Generation>,
    /// What the changes do to tenants' calendars.
    pub calendars: Vec<CalendarChange>,
    /// Who asks, for the audit log.
    pub actor: String,
}

/// An object after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenObject {
    /// Which kind.
    pub kind: DefinitionKind,
    /// Its id.
    pub id: String,
    /// Its new version.
    pub version: u64,
    /// Whether the change created it.
    pub created: bool,
}

/// What a write of the policy came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyWritten {
    /// The policy's new version.
    pub version: u64,
    /// The objects changed, in order.
    pub objects: Vec<WrittenObject>,
}

/// A place in the list of tenants, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPlace {
    /// When the tenant was made (unix µs).
    pub created_at_us: i64,
    /// Which one.
    pub id: TenantId,
}

#[derive(QueryableByName)]
struct ObjectRow {
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Jsonb)]
    definition: Value,
    #[diesel(sql_type = Bool)]
    archived: bool,
}

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Jsonb)]
    definition: Value,
    #[diesel(sql_type = Jsonb)]
    counter_resets: Value,
    #[diesel(sql_type = Jsonb)]
    calendars: Value,
    #[diesel(sql_type = Bool)]
    archived: bool,
    #[diesel(sql_type = Timestamptz)]
    created_at: DateTime<Utc>,
}

#[derive(QueryableByName)]
struct GenerationRow {
    #[diesel(sql_type = Text)]
    limit_id: String,
    #[diesel(sql_type = Text)]
    shape: String,
    #[diesel(sql_type = BigInt)]
    generation: i64,
    #[diesel(sql_type = BigInt)]
    since_ms: i64,
}

#[derive(QueryableByName)]
struct VersionRow {
    #[diesel(sql_type = BigInt)]
    version: i64,
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
struct IdRow {
    #[diesel(sql_type = Text)]
    id: String,
}

#[derive(QueryableByName)]
struct DefinitionRow {
    #[diesel(sql_type = Nullable<Jsonb>)]
    definition: Option<Value>,
}

#[derive(QueryableByName)]
struct ExistsRow {
    #[diesel(sql_type = Bool)]
    found: bool,
}

impl ObjectRow {
    fn read(self) -> Result<StoredObject, LedgerError> {
        let kind = DefinitionKind::from_word(&self.kind);
        Ok(StoredObject {
            kind: kind
                .ok_or_else(|| LedgerError::Damaged(format!("{:?} is no kind of object", self.kind)))?,
            id: self.id,
            version: number::unsigned(self.version)?,
            definition: self.definition,
            archived: self.archived,
        })
    }
}

impl TenantRow {
    fn read(self) -> Result<StoredTenant, LedgerError> {
        let damaged = |error| LedgerError::Damaged(format!("the calendars of {}: {error}", self.id));
        Ok(StoredTenant {
            id: number::tenant(&self.id)?,
            calendars: serde_json::from_value(self.calendars).map_err(damaged)?,
            version: number::unsigned(self.version)?,
            definition: self.definition,
            counter_resets: self.counter_resets,
            archived: self.archived,
            created_at_us: self.created_at.timestamp_micros(),
        })
    }
}

impl GenerationRow {
    fn read(self) -> Result<Generation, LedgerError> {
        let generation = number::unsigned(self.generation)?;
        Ok(Generation { limit_id: self.limit_id, shape: self.shape, generation, since_ms: self.since_ms })
    }
}

const TENANT_COLUMNS: &str = "SELECT id, version, definition, counter_resets, archived, created_at, \
    coalesce((SELECT jsonb_agg(jsonb_build_object('from_ms', (extract(epoch FROM from_at) * 1000)::bigint, 'zone', zone, \
                                                  'anchor_day', anchor_day) ORDER BY from_at) \
              FROM calendars WHERE calendars.tenant = tenants.id), '[]') AS calendars FROM tenants";

const VERSIONS: &str = "SELECT version, shared_version, shared_at FROM policy_version LEFT JOIN LATERAL ( \
        SELECT policy_version AS shared_version, changed_at AS shared_at FROM policy_history WHERE kind <> 'tenant' \
        ORDER BY policy_version DESC LIMIT 1) shared ON true";

impl Ledger {
    /// Everything but the tenants, as of one instant.
    pub async fn read_policy(&self) -> Result<StoredPolicy, LedgerError> {
        self.transact(BEGIN_SNAPSHOT, |connection| read_policy(connection).boxed()).await
    }

    /// The policy's version.
    pub async fn policy_version(&self) -> Result<u64, LedgerError> {
        self.read(|connection| read_version(connection).boxed()).await
    }

    /// How far the policy has got.
    pub async fn policy_versions(&self) -> Result<PolicyVersions, LedgerError> {
        self.read(|connection| read_versions(connection).boxed()).await
    }

    /// Those of these tenants that there are.
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

    /// Tenants, newest first, at most `limit`, from behind `after`.
    pub async fn list_tenants(
        &self,
        after: Option<&TenantPlace>,
        limit: usize,
    ) -> Result<Vec<StoredTenant>, LedgerError> {
        let place_at = after.map(|place| place_instant(place.created_at_us)).transpose()?;
        let rows = self
            .read(|connection| {
                let query = sql_query(format!(
                    "{TENANT_COLUMNS} WHERE $1 IS NULL OR (created_at, id) < ($1, $2) \
                     ORDER BY created_at DESC, id DESC LIMIT $3"
                ))
                .bind::<Nullable<Timestamptz>, _>(place_at)
                .bind::<Nullable<Text>, _>(after.map(|place| place.id.to_string()))
                .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<TenantRow>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(TenantRow::read).collect()
    }

    /// An operation's definition as it stood at a version of the policy; none when there was none.
    pub async fn operation_at_version(
        &self,
        operation: &OperationId,
        policy_version: u64,
    ) -> Result<Option<Value>, LedgerError> {
        let rows = self
            .read(|connection| {
                let query = sql_query(
                    "SELECT definition FROM policy_history WHERE kind = 'operation' AND id = $1 AND policy_version <= $2 \
                     ORDER BY version DESC LIMIT 1",
                )
                .bind::<Text, _>(operation.to_string())
                .bind::<BigInt, _>(number::signed(policy_version));
                async move { Ok(query.load::<DefinitionRow>(connection).await?) }.boxed()
            })
            .await?;
        Ok(rows.into_iter().next().and_then(|row| row.definition))
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
    let objects: Vec<ObjectRow> =
        sql_query("SELECT kind, id, version, definition, archived FROM policy_objects ORDER BY kind, id")
            .load(connection)
            .await?;
    let generations: Vec<GenerationRow> = sql_query(
        "SELECT limit_id, shape, generation, since_ms FROM counter_generations ORDER BY limit_id, shape",
    )
    .load(connection)
    .await?;
    Ok(StoredPolicy {
        versions: read_versions(connection).await?,
        objects: objects.into_iter().map(ObjectRow::read).collect::<Result<_, _>>()?,
        generations: generations.into_iter().map(GenerationRow::read).collect::<Result<_, _>>()?,
    })
}

async fn read_tenants(
    connection: &mut AsyncPgConnection,
    ids: Vec<String>,
) -> Result<Vec<StoredTenant>, LedgerError> {
    let query = sql_query(format!("{TENANT_COLUMNS} WHERE id = ANY($1)")).bind::<Array<Text>, _>(ids);
    let rows = query.load::<TenantRow>(connection).await?;
    rows.into_iter().map(TenantRow::read).collect()
}

/// The tenants that were changed, made or deleted after a version of the policy.
pub(super) async fn tenants_since(
    connection: &mut AsyncPgConnection,
    version: u64,
) -> Result<Vec<TenantSince>, LedgerError> {
    let query = "SELECT DISTINCT id FROM policy_history WHERE policy_version > $1 AND kind = 'tenant'";
    let changed: Vec<IdRow> =
        sql_query(query).bind::<BigInt, _>(number::signed(version)).load(connection).await?;
    let ids: Vec<String> = changed.into_iter().map(|row| row.id).collect();
    let mut stored: BTreeMap<TenantId, StoredTenant> =
        read_tenants(connection, ids.clone()).await?.into_iter().map(|row| (row.id.clone(), row)).collect();
    ids.iter()
        .map(|id| {
            let id = number::tenant(id)?;
            Ok(TenantSince { stored: stored.remove(&id), id })
        })
        .collect()
}

/// How far the policy has got.
pub(super) async fn read_versions(connection: &mut AsyncPgConnection) -> Result<PolicyVersions, LedgerError> {
    let row: VersionsRow = sql_query(VERSIONS).get_result(connection).await?;
    let version = row.shared_version.map(number::unsigned).transpose()?.unwrap_or_default();
    let at_us = row.shared_at.map(|at| at.timestamp_micros()).unwrap_or_default();
    Ok(PolicyVersions { version: number::unsigned(row.version)?, shared: SharedChange { version, at_us } })
}

async fn read_version(connection: &mut AsyncPgConnection) -> Result<u64, LedgerError> {
    let row: VersionRow = sql_query("SELECT version FROM policy_version").get_result(connection).await?;
    number::unsigned(row.version)
}

/// `$1` is the meter, `$2` its name as events and parked calls have it. What waits may be taken for a use by accident.
pub const METER_IS_BOOKED: &str = "SELECT EXISTS (SELECT FROM balances WHERE meter = $1) \
    OR EXISTS (SELECT FROM quarantine WHERE status = 'open' AND position($2 IN event) > 0) \
    OR EXISTS (SELECT FROM parked WHERE state = 'waiting' AND position($2 IN payload) > 0) \
    OR EXISTS (SELECT FROM parked WHERE state = 'conflict' AND position($2 IN payload) > 0) AS found";

pub(super) async fn is_meter_booked(
    connection: &mut AsyncPgConnection,
    meter: &str,
) -> Result<bool, LedgerError> {
    let mut named = Vec::new();
    named.put_text(meter);
    let query = sql_query(METER_IS_BOOKED).bind::<Text, _>(meter).bind::<Binary, _>(named);
    let row: ExistsRow = query.get_result(connection).await?;
    Ok(row.found)
}

/// Whether anything is booked for the tenant, or waits to be.
pub(super) async fn has_booked(
    connection: &mut AsyncPgConnection,
    tenant: &str,
) -> Result<bool, LedgerError> {
    let query = "SELECT EXISTS (SELECT FROM (SELECT FROM reservations WHERE tenant = $1 ORDER BY born_at DESC LIMIT 1) newest) \
                 OR EXISTS (SELECT FROM balances WHERE tenant = $1) \
                 OR EXISTS (SELECT FROM quota_periods WHERE tenant = $1) \
                 OR EXISTS (SELECT FROM parked WHERE tenant = $1 AND state <> 'done') \
                 OR EXISTS (SELECT FROM quarantine WHERE tenant = $1 AND status = 'open') AS found";
    let row: ExistsRow = sql_query(query).bind::<Text, _>(tenant).get_result(connection).await?;
    Ok(row.found)
}
