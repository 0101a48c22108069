//! Changes of the policy: in one transaction, with history, audit and notices.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Jsonb, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::{Value, json};

use super::policy::{has_booked, is_meter_booked, read_versions, tenants_since};
use super::prepared::sql_query;
use super::schema::{policy_objects, policy_version, tenants};
use super::{
    BEGIN, Conflict, Expected, Generation, Ledger, LedgerError, Notice, PlanChange, PolicyAction,
    PolicyChange, PolicyVersions, PolicyWrite, PolicyWritten, TenantSince, WrittenObject, billing, calendars,
    currencies, followed_periods, instant, notices, number, plan_changes, upgrades,
};
use crate::domain::ids::Partition;
use crate::domain::plan_change::PlanChangeId;
use crate::domain::policy::diff::DefinitionKind;

impl Ledger {
    /// Changes the policy in one transaction, with history, generations, audit and a notice for each object. Every
    /// other change waits meanwhile.
    ///
    /// The change was prepared on the policy of `base`: only tenants may have changed since then, and that policy must
    /// not be lost. `finish` says what is written. With `with_tenants` it also gets the tenants that did change. When
    /// it refuses, nothing changes.
    ///
    /// Errors: [`LedgerError::Conflict`] when something is not at the version it was prepared on, or a deletion meets
    /// something booked.
    pub async fn change_policy<T, E>(
        &self,
        base: PolicyVersions,
        with_tenants: bool,
        finish: impl FnOnce(Vec<TenantSince>) -> Result<(PolicyWrite, T), E> + Send + 'static,
    ) -> Result<Result<(PolicyWritten, T), E>, LedgerError>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let partitions = self.partitions().await?;
        self.transact(BEGIN, move |connection| {
            async move {
                lock(connection, base).await?;
                let since =
                    if with_tenants { tenants_since(connection, base.version).await? } else { Vec::new() };
                match finish(since) {
                    Ok((write, rest)) => Ok(Ok((put(connection, write, partitions).await?, rest))),
                    Err(refusal) => Ok(Err(refusal)),
                }
            }
            .boxed()
        })
        .await
    }
}

/// One statement writes at most this many objects.
const AT_ONCE: usize = 1_000;

#[derive(QueryableByName)]
struct VersionsRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    version: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    last: Option<i64>,
}

/// Locks the policy against every other change until the transaction ends.
async fn lock(connection: &mut AsyncPgConnection, base: PolicyVersions) -> Result<(), LedgerError> {
    policy_version::table.select(policy_version::version).for_update().execute(connection).await?;
    let found = read_versions(connection).await?;
    // A ledger that was set back has a lower version, or another last change.
    if found.shared != base.shared || found.version < base.version {
        return Err(LedgerError::Conflict(Conflict::PolicyMoved { found: found.version }));
    }
    Ok(())
}

async fn put(
    connection: &mut AsyncPgConnection,
    write: PolicyWrite,
    partitions: u16,
) -> Result<PolicyWritten, LedgerError> {
    let next = diesel::update(policy_version::table)
        .set(policy_version::version.eq(policy_version::version + 1))
        .returning(policy_version::version);
    let version = number::unsigned(next.get_result(connection).await?)?;
    for meter in &write.unused_meters {
        if is_meter_booked(connection, meter.as_str()).await? {
            return Err(used(DefinitionKind::Meter, meter.as_str()));
        }
    }
    let mut objects = Vec::with_capacity(write.changes.len());
    for changes in write.changes.chunks(AT_ONCE) {
        let written = check(changes, stored_versions(connection, changes).await?)?;
        for change in changes.iter().filter(|change| matches!(change.action, PolicyAction::Delete)) {
            delete(connection, change, &write).await?;
        }
        put_objects(connection, changes, &written).await?;
        put_tenants(connection, changes, &written, partitions).await?;
        billing::begin(connection, new_tenants(&written), write.at_ms).await?;
        note(connection, changes, &written, version, &write).await?;
        notices::tell_all(connection, written.iter().map(notice).collect()).await?;
        objects.extend(written);
    }
    for generations in write.generations.chunks(AT_ONCE) {
        raise(connection, generations).await?;
    }
    for change in &write.calendars {
        calendars::put(connection, change).await?;
    }
    for change in &write.currencies {
        currencies::put(connection, change).await?;
    }
    note_plans(connection, &write, &objects).await?;
    let may_follow = |object: &WrittenObject| {
        object.kind == DefinitionKind::Plan || object.kind == DefinitionKind::Tenant && !object.created
    };
    if objects.iter().any(may_follow) {
        followed_periods::ring(connection).await?;
    }
    Ok(PolicyWritten { version, objects })
}

/// Notes what quotas have to follow, each change once.
async fn note_plans(
    connection: &mut AsyncPgConnection,
    write: &PolicyWrite,
    written: &[WrittenObject],
) -> Result<(), LedgerError> {
    let of_tenants = written.iter().filter(|object| object.kind == DefinitionKind::Tenant);
    let versions: BTreeMap<_, _> = of_tenants.map(|object| (object.id.as_str(), object.version)).collect();
    for new in &write.plans {
        let Some(version) = versions.get(new.tenant.as_str()) else { continue };
        let change = PlanChange {
            id: PlanChangeId::of(&new.tenant, *version),
            tenant: new.tenant.clone(),
            plan: new.plan.clone(),
            plan_from: new.plan_from,
            changed_at_ms: write.at_ms,
            changed_by: write.actor.clone(),
        };
        plan_changes::note(connection, &change).await?;
    }
    Ok(())
}

fn new_tenants(written: &[WrittenObject]) -> impl Iterator<Item = &str> {
    let is_new = |object: &&WrittenObject| object.created && object.kind == DefinitionKind::Tenant;
    written.iter().filter(is_new).map(|object| object.id.as_str())
}

fn notice(object: &WrittenObject) -> Notice {
    Notice { kind: object.kind.as_str().into(), id: object.id.clone(), version: object.version }
}

/// The version of each object, and the highest that it ever had. That one goes on rising over a deletion, so that a
/// version never names two definitions.
async fn stored_versions(
    connection: &mut AsyncPgConnection,
    changes: &[PolicyChange],
) -> Result<Vec<VersionsRow>, LedgerError> {
    let rows = sql_query(include_str!("sql/object_versions.sql"))
        .bind::<Array<Text>, _>(kinds(changes))
        .bind::<Array<Text>, _>(ids(changes));
    Ok(rows.load(connection).await?)
}

fn kinds(changes: &[PolicyChange]) -> Vec<&'static str> {
    changes.iter().map(|change| change.kind.as_str()).collect()
}

fn ids(changes: &[PolicyChange]) -> Vec<&str> {
    changes.iter().map(|change| change.id.as_str()).collect()
}

/// The objects after the change, if each is at the version that is expected.
fn check(changes: &[PolicyChange], found: Vec<VersionsRow>) -> Result<Vec<WrittenObject>, LedgerError> {
    let written = changes.iter().zip(found).map(|(change, found)| {
        let (kind, id) = (change.kind, change.id.clone());
        let last = found.last.map(number::unsigned).transpose()?.unwrap_or_default();
        let found = found.version.map(number::unsigned).transpose()?;
        let as_expected = match change.expected {
            Expected::Any => true,
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found == Some(version),
        };
        if !as_expected {
            return Err(LedgerError::Conflict(Conflict::Version { kind: kind.as_str(), id, found }));
        }
        if found.is_none() && matches!(change.action, PolicyAction::Delete) {
            return Err(LedgerError::Conflict(Conflict::Missing { kind: kind.as_str(), id }));
        }
        Ok(WrittenObject { kind, id, version: last + 1, created: found.is_none() })
    });
    written.collect()
}

async fn put_objects(
    connection: &mut AsyncPgConnection,
    changes: &[PolicyChange],
    written: &[WrittenObject],
) -> Result<(), LedgerError> {
    let (mut kinds, mut ids, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut definitions, mut archived) = (Vec::new(), Vec::new());
    for (change, object) in changes.iter().zip(written) {
        let PolicyAction::Put { definition, archived: is_archived, .. } = &change.action else { continue };
        if change.kind != DefinitionKind::Tenant {
            kinds.push(change.kind.as_str());
            ids.push(change.id.as_str());
            versions.push(number::signed(object.version));
            definitions.push(definition);
            archived.push(*is_archived);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/put_policy_objects.sql"))
        .bind::<Array<Text>, _>(kinds)
        .bind::<Array<Text>, _>(ids)
        .bind::<Array<BigInt>, _>(versions)
        .bind::<Array<Jsonb>, _>(definitions)
        .bind::<Array<Bool>, _>(archived)
        .execute(connection)
        .await?;
    Ok(())
}

async fn put_tenants(
    connection: &mut AsyncPgConnection,
    changes: &[PolicyChange],
    written: &[WrittenObject],
    partitions: u16,
) -> Result<(), LedgerError> {
    let (mut ids, mut in_partitions, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut definitions, mut archived, mut resets) = (Vec::new(), Vec::new(), Vec::new());
    let none = json!([]);
    for (change, object) in changes.iter().zip(written) {
        let PolicyAction::Put { definition, archived: is_archived, counter_resets } = &change.action else {
            continue;
        };
        if change.kind == DefinitionKind::Tenant {
            let partition = Partition::of(&number::tenant(&change.id)?, partitions);
            ids.push(change.id.as_str());
            in_partitions.push(number::of_partition(partition));
            versions.push(number::signed(object.version));
            definitions.push(definition);
            archived.push(*is_archived);
            resets.push(counter_resets.as_ref().unwrap_or(&none));
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sql_query(include_str!("sql/put_tenants.sql"))
        .bind::<Array<Text>, _>(ids)
        .bind::<Array<SmallInt>, _>(in_partitions)
        .bind::<Array<BigInt>, _>(versions)
        .bind::<Array<Jsonb>, _>(definitions)
        .bind::<Array<Bool>, _>(archived)
        .bind::<Array<Jsonb>, _>(resets)
        .execute(connection)
        .await?;
    Ok(())
}

/// Records every change in the history and in the audit log.
async fn note(
    connection: &mut AsyncPgConnection,
    changes: &[PolicyChange],
    written: &[WrittenObject],
    policy_version: u64,
    write: &PolicyWrite,
) -> Result<(), LedgerError> {
    let definitions: Vec<Option<&Value>> = changes
        .iter()
        .map(|change| match &change.action {
            PolicyAction::Put { definition, .. } => Some(definition),
            PolicyAction::Delete => None,
        })
        .collect();
    let versions: Vec<i64> = written.iter().map(|object| number::signed(object.version)).collect();
    sql_query(include_str!("sql/note_policy_changes.sql"))
        .bind::<Array<Text>, _>(kinds(changes))
        .bind::<Array<Text>, _>(ids(changes))
        .bind::<Array<BigInt>, _>(versions)
        .bind::<Array<Nullable<Jsonb>>, _>(definitions)
        .bind::<BigInt, _>(number::signed(policy_version))
        .bind::<Text, _>(&write.actor)
        .bind::<Timestamptz, _>(instant::from_ms(write.at_ms)?)
        .execute(connection)
        .await?;
    Ok(())
}

async fn delete(
    connection: &mut AsyncPgConnection,
    change: &PolicyChange,
    write: &PolicyWrite,
) -> Result<(), LedgerError> {
    if change.kind == DefinitionKind::Tenant {
        // Whatever is being booked for it is seen below, or finds no tenant.
        let named = tenants::table.select(tenants::id).filter(tenants::id.eq(&change.id));
        named.for_update().execute(connection).await?;
    }
    let in_use = match change.kind {
        DefinitionKind::Meter => is_meter_booked(connection, &change.id).await?,
        DefinitionKind::Tenant => has_booked(connection, &change.id).await?,
        _ => false,
    };
    if in_use {
        return Err(used(change.kind, &change.id));
    }
    if change.kind == DefinitionKind::Tenant {
        calendars::delete(connection, &change.id).await?;
        currencies::delete(connection, &change.id).await?;
        billing::delete(connection, &change.id).await?;
        upgrades::decline_all(connection, &change.id, write.at_ms, &write.actor).await?;
        diesel::delete(tenants::table.filter(tenants::id.eq(&change.id))).execute(connection).await?;
    } else {
        let object = policy_objects::table.find((change.kind.as_str(), &change.id));
        diesel::delete(object).execute(connection).await?;
    }
    Ok(())
}

fn used(kind: DefinitionKind, id: &str) -> LedgerError {
    LedgerError::Conflict(Conflict::InUse { kind: kind.as_str(), id: id.to_owned() })
}

/// A generation only rises.
async fn raise(connection: &mut AsyncPgConnection, generations: &[Generation]) -> Result<(), LedgerError> {
    let limits: Vec<&str> = generations.iter().map(|each| each.limit_id.as_str()).collect();
    let shapes: Vec<&str> = generations.iter().map(|each| each.shape.as_str()).collect();
    let numbers: Vec<i64> = generations.iter().map(|each| number::signed(each.generation)).collect();
    let since: Vec<i64> = generations.iter().map(|each| each.since_ms).collect();
    sql_query(include_str!("sql/raise_generations.sql"))
        .bind::<Array<Text>, _>(limits)
        .bind::<Array<Text>, _>(shapes)
        .bind::<Array<BigInt>, _>(numbers)
        .bind::<Array<BigInt>, _>(since)
        .execute(connection)
        .await?;
    Ok(())
}
