//! Policy in memory: one immutable snapshot for all tenants, and tenants resolved at their first use. The ledger's
//! notices keep both fresh.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use moka::future::Cache;

use crate::domain::counter::Counter;
use crate::domain::ids::{MeterId, OperationId, Partition, PlanId, Subject, TenantId};
use crate::domain::operation::Operation;
use crate::domain::period::{Calendars, Windows};
use crate::domain::plan::PlanDefinition;
use crate::domain::policy::counter::{self, GenerationRow, Resets};
use crate::domain::policy::diff::DefinitionKind;
use crate::domain::policy::document::Definitions;
use crate::domain::policy::resolve::TooManyCounters;
use crate::domain::policy::{Policy, Resolved, TenantPolicy};
use crate::domain::tenant::TenantDefinition;
use crate::ledger::{Conflict, Generation, Ledger, LedgerError, PolicyVersions, StoredTenant};
use crate::operations::error::{Answer, OperationError};
use crate::telemetry::Metrics;
use crate::telemetry::labels::Alarm;

const TENANTS_MAX: u64 = 1_000_000;
const UNKNOWN_MAX: u64 = 100_000;
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// Longer than a tenant takes to be read.
const CHANGED_FOR: Duration = Duration::from_secs(120);

/// A tenant in this instance's memory: its definition, its policy under one snapshot, its current windows.
pub(super) struct TenantEntry {
    /// As it is stored.
    pub(super) definition: Arc<TenantDefinition>,
    /// The version of the tenant's row.
    pub(super) version: u64,
    /// The partition of its keys.
    pub(super) partition: Partition,
    /// Its limits and quotas.
    pub(super) policy: TenantPolicy,
    /// Where its windows begin.
    pub(super) calendars: Calendars,
    resets: Resets,
    snapshot: Arc<Policy>,
    windows: ArcSwap<Windows>,
}

impl TenantEntry {
    fn new(
        snapshot: Arc<Policy>,
        definition: Arc<TenantDefinition>,
        calendars: Calendars,
        resets: Resets,
        version: u64,
        partition: Partition,
        now_ms: i64,
    ) -> Answer<Self> {
        let policy = TenantPolicy::new(&snapshot, &definition, &resets)
            .map_err(|dangling| OperationError::Internal(dangling.to_string()))?;
        let windows = ArcSwap::from_pointee(calendars.windows(now_ms));
        Ok(Self { definition, version, partition, policy, calendars, resets, snapshot, windows })
    }

    /// The tenant's windows around `at_ms`; computed again only when one of them has turned.
    pub(super) fn windows(&self, at_ms: i64) -> Windows {
        let cached = self.windows.load();
        if cached.valid().contains(at_ms) {
            return **cached;
        }
        let fresh = self.calendars.windows(at_ms);
        if at_ms >= cached.valid().end_ms {
            self.windows.store(Arc::new(fresh));
        }
        fresh
    }

    /// The tenant as it would be on another plan of the same snapshot.
    pub(super) fn on_plan(&self, plan: &PlanId, now_ms: i64) -> Answer<Self> {
        let definition = TenantDefinition { plan: Some(plan.clone()), ..(*self.definition).clone() };
        Self::new(
            self.snapshot.clone(),
            Arc::new(definition),
            self.calendars.clone(),
            self.resets.clone(),
            self.version,
            self.partition,
            now_ms,
        )
    }

    /// The plan that it is on.
    pub(super) fn plan(&self) -> Option<&PlanDefinition> {
        let plan = self.definition.plan.as_ref().and_then(|plan| self.snapshot.plan(plan));
        plan.map(AsRef::as_ref)
    }

    /// Whether a limit that counts all tenants may ever count one of these meters.
    pub(super) fn may_count_globally<'a>(&self, meters: impl IntoIterator<Item = &'a MeterId>) -> bool {
        self.snapshot.globals().may_count(meters)
    }

    /// The counters of limits that count all tenants, for work of this one at `at_ms`.
    pub(super) fn global_counters<'a>(
        &self,
        meters: impl IntoIterator<Item = &'a MeterId>,
        operation: Option<&OperationId>,
        at_ms: i64,
    ) -> Result<Vec<Counter>, TooManyCounters> {
        self.snapshot.globals().counters(&self.definition.id, meters, operation, at_ms)
    }

    /// Every tenant-scoped limit and quota in force.
    pub(super) fn tenant_counters(&self, at_ms: i64) -> Resolved {
        self.policy.overview(&[], at_ms, &self.windows(at_ms))
    }

    /// Whether the gate alone counts this meter.
    pub(super) fn is_light(&self, meter: &MeterId) -> bool {
        self.snapshot.meter(meter).is_some_and(|meter| !meter.booked)
    }

    /// Every limit in force for one subject.
    pub(super) fn subject_counters(&self, subject: &Subject, at_ms: i64) -> Resolved {
        let subjects = std::slice::from_ref(subject);
        let mut resolved = self.policy.overview(subjects, at_ms, &self.windows(at_ms));
        resolved.counters.retain(|counter| counter.scope_index > 0);
        resolved
    }
}

/// The policy of this instance. Reads take no lock; an unknown tenant is looked up in the ledger once.
pub(super) struct PolicyStore {
    ledger: Ledger,
    partitions: u16,
    current: ArcSwap<Policy>,
    tenants: Cache<TenantId, Arc<TenantEntry>>,
    unknown: Cache<TenantId, ()>,
    refreshing: tokio::sync::Mutex<()>,
    changing: tokio::sync::Mutex<()>,
    /// Why tenants could not be resolved lately: a repeat within a second gets the same answer.
    unresolved: Cache<TenantId, Arc<str>>,
    metrics: Arc<Metrics>,
    /// The versions of tenants that were changed lately: a tenant read before its change must not be stored after it
    /// ...
    changed: Cache<TenantId, u64>,
    /// ... nor one read before all tenants were forgotten: counts how often they were.
    forgotten: AtomicU64,
    /// The versions as of which `current` was last known to be right, even if nothing in it had changed.
    seen: Mutex<PolicyVersions>,
    clock: crate::clock::Clock,
}

impl PolicyStore {
    /// Loads the snapshot. Errors: the ledger does not answer or holds definitions this version cannot read.
    pub(super) async fn load(
        ledger: Ledger,
        partitions: u16,
        clock: crate::clock::Clock,
        metrics: Arc<Metrics>,
    ) -> Answer<Self> {
        let (seen, policy) = read_policy(&ledger).await?;
        Ok(Self {
            seen: Mutex::new(seen),
            ledger,
            partitions,
            current: ArcSwap::from_pointee(policy),
            tenants: Cache::new(TENANTS_MAX),
            unknown: Cache::builder().max_capacity(UNKNOWN_MAX).time_to_live(UNKNOWN_FOR).build(),
            refreshing: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            unresolved: Cache::builder().max_capacity(UNKNOWN_MAX).time_to_live(UNKNOWN_FOR).build(),
            metrics,
            changed: Cache::builder().max_capacity(TENANTS_MAX).time_to_live(CHANGED_FOR).build(),
            forgotten: AtomicU64::new(0),
            clock,
        })
    }

    /// The snapshot in force.
    pub(super) fn current(&self) -> Arc<Policy> {
        self.current.load_full()
    }

    /// The policy version as of which the snapshot in force is known to be right.
    pub(super) fn seen_version(&self) -> u64 {
        self.seen().version
    }

    fn seen(&self) -> MutexGuard<'_, PolicyVersions> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot in force, with the versions as of which it is right: a change of a tenant is prepared on it.
    pub(super) fn as_of_now(&self) -> (PolicyVersions, Policy) {
        // Reads the versions first: the snapshot may then be newer than they say, never older.
        let seen = *self.seen();
        let current = self.current.load();
        (seen, Policy::new(seen.version, current.definitions().clone(), current.generations().clone()))
    }

    /// Held while a change is made that reads all tenants.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// The tenant, or an error naming `/tenant` when there is none.
    pub(super) async fn tenant(&self, id: &TenantId) -> Answer<Arc<TenantEntry>> {
        self.find_tenant(id)
            .await?
            .ok_or_else(|| OperationError::field("/tenant", format!("there is no tenant {id}")))
    }

    /// The tenant that a path or a filter names: without one, nothing is found.
    pub(super) async fn named_tenant(&self, id: &TenantId) -> Answer<Arc<TenantEntry>> {
        self.find_tenant(id)
            .await?
            .ok_or_else(|| OperationError::NotFound(format!("there is no tenant {id}")))
    }

    /// The same where a filter may name one.
    pub(super) async fn named_if_any(&self, id: Option<&TenantId>) -> Answer<()> {
        match id {
            Some(id) => self.named_tenant(id).await.map(drop),
            None => Ok(()),
        }
    }

    /// The tenant, if there is one.
    pub(super) async fn find_tenant(&self, id: &TenantId) -> Answer<Option<Arc<TenantEntry>>> {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        let found = self.find_or_ask(id).await;
        if self.forgotten.load(Ordering::Acquire) != forgotten {
            self.tenants.invalidate(id).await;
        }
        found
    }

    async fn find_or_ask(&self, id: &TenantId) -> Answer<Option<Arc<TenantEntry>>> {
        let snapshot = self.current.load_full();
        match self.tenants.get(id).await {
            Some(entry) if Arc::ptr_eq(&entry.snapshot, &snapshot) => Ok(Some(entry)),
            None if self.unknown.contains_key(id) => Ok(None),
            stale => Box::pin(self.resolve(id, stale, snapshot)).await,
        }
    }

    /// Resolves a tenant under this snapshot. One that cannot be resolved raises an alarm, and is tried once a second
    /// at most, however often it is asked for.
    async fn resolve(
        &self,
        id: &TenantId,
        stale: Option<Arc<TenantEntry>>,
        snapshot: Arc<Policy>,
    ) -> Answer<Option<Arc<TenantEntry>>> {
        if let Some(why) = self.unresolved.get(id).await {
            return Err(OperationError::Internal(why.to_string()));
        }
        let resolved = match stale {
            Some(stale) => self
                .keep(
                    snapshot,
                    stale.definition.clone(),
                    stale.calendars.clone(),
                    stale.resets.clone(),
                    stale.version,
                )
                .await
                .map(Some),
            None => self.ask_ledger(id, snapshot).await,
        };
        if let Err(OperationError::Internal(why)) = &resolved {
            tracing::error!(tenant = %id, why, "a tenant cannot be resolved: put it again, or what it refers to");
            self.metrics.alarm(Alarm::Policy);
            self.unresolved.insert(id.clone(), why.as_str().into()).await;
        }
        resolved
    }

    async fn ask_ledger(&self, id: &TenantId, snapshot: Arc<Policy>) -> Answer<Option<Arc<TenantEntry>>> {
        match self.ledger.read_tenant_definition(id).await? {
            None => {
                self.unknown.insert(id.clone(), ()).await;
                Ok(None)
            }
            Some(stored) => self.take_in(stored, snapshot).await.map(Some),
        }
    }

    /// Reads those of these tenants that are not in memory, all at once, for a job that is about to ask for each. What
    /// cannot be read is left to that.
    pub(super) async fn read_ahead<'a>(&self, ids: impl IntoIterator<Item = &'a TenantId>) {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        let snapshot = self.current.load_full();
        let absent = ids.into_iter().filter(|id| !self.tenants.contains_key(*id));
        let absent: Vec<TenantId> = absent.cloned().collect();
        if absent.is_empty() {
            return;
        }
        let read = self.ledger.read_tenants(absent.clone()).await;
        for stored in read.unwrap_or_default() {
            let id = stored.id.clone();
            if let Err(error) = self.take_in(stored, snapshot.clone()).await {
                tracing::debug!(tenant = %id, %error, "a tenant is not read ahead");
            }
        }
        if self.forgotten.load(Ordering::Acquire) != forgotten {
            for id in &absent {
                self.tenants.invalidate(id).await;
            }
        }
    }

    async fn take_in(&self, stored: StoredTenant, snapshot: Arc<Policy>) -> Answer<Arc<TenantEntry>> {
        let definition: Arc<TenantDefinition> = Arc::new(stored_json(&stored.definition)?);
        let calendars = Calendars::of(stored.calendars, definition.calendar());
        let resets = stored_json(&stored.counter_resets)?;
        self.keep(snapshot, definition, calendars, resets, stored.version).await
    }

    async fn keep(
        &self,
        snapshot: Arc<Policy>,
        definition: Arc<TenantDefinition>,
        calendars: Calendars,
        resets: Resets,
        version: u64,
    ) -> Answer<Arc<TenantEntry>> {
        let id = definition.id.clone();
        let partition = Partition::of(&id, self.partitions);
        let now_ms = self.clock.now_ms();
        let entry =
            Arc::new(TenantEntry::new(snapshot, definition, calendars, resets, version, partition, now_ms)?);
        self.tenants.insert(id.clone(), entry.clone()).await;
        if self.changed.get(&id).await.is_some_and(|changed| changed > version) {
            self.tenants.invalidate(&id).await;
        }
        Ok(entry)
    }

    /// Reads the snapshot again if anything but tenants has changed; the old one stays when its contents are the same.
    /// It also goes back with a ledger that was set back. Returns the version.
    pub(super) async fn refresh(&self) -> Answer<u64> {
        // A slow reading must not replace a later one, because no further notice would correct it.
        let _one_at_a_time = self.refreshing.lock().await;
        // Read first: every later reading contains what was seen by now, unless the ledger was set back.
        let seen = *self.seen();
        let stored = self.ledger.policy_versions().await?;
        if stored.shared == seen.shared && stored.version >= seen.version {
            return Ok(self.note_version(stored.version));
        }
        let (versions, fresh) = read_policy(&self.ledger).await?;
        let current = self.current.load();
        if !fresh.says_the_same_as(&current) {
            self.current.store(Arc::new(fresh));
        }
        if versions.version < seen.version || versions.shared.version <= seen.version {
            let (now, before) = (versions.version, seen.version);
            tracing::warn!(now, before, "the ledger was set back: its policy is followed");
            *self.seen() = versions;
            self.forget_tenants();
            return Ok(versions.version);
        }
        self.seen().shared = versions.shared;
        Ok(self.note_version(versions.version))
    }

    /// Shows the version in the metrics.
    pub(super) fn show_version(&self, version: u64) {
        self.metrics.policy_version(i64::try_from(version).unwrap_or(i64::MAX));
    }

    fn note_version(&self, version: u64) -> u64 {
        let mut seen = self.seen();
        seen.version = seen.version.max(version);
        seen.version
    }

    /// Records that only tenants have changed between `base`, which was seen, and `version`.
    pub(super) fn only_tenants_changed(&self, base: u64, version: u64) -> u64 {
        let seen = self.seen_version();
        if seen >= base { self.note_version(version) } else { seen.max(version) }
    }

    /// Records that a tenant has this version now. An older one is forgotten, so that its next use asks the ledger; one
    /// that was read since stays.
    pub(super) async fn tenant_changed(&self, id: &TenantId, version: u64) {
        // First, so that a reading under way sees it.
        self.changed.insert(id.clone(), version).await;
        self.unknown.invalidate(id).await;
        self.unresolved.invalidate(id).await;
        if self.tenants.get(id).await.is_some_and(|entry| entry.version < version) {
            self.tenants.invalidate(id).await;
        }
    }

    /// The tenant as it is now, where the ledger has refused what was prepared by an older version of it: this instance
    /// has not heard of the change yet. Any other error stays one.
    pub(super) async fn tenant_moved(&self, refused: LedgerError) -> Answer<Arc<TenantEntry>> {
        let LedgerError::Conflict(Conflict::TenantMoved { tenant, found }) = refused else {
            return Err(refused.into());
        };
        // First, so that the plan is known that the tenant is on by now.
        self.refresh().await?;
        self.tenant_changed(&tenant, found).await;
        self.tenant(&tenant).await
    }

    /// Forgets all tenants, because notices may have been missed.
    pub(super) fn forget_tenants(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.unknown.invalidate_all();
        self.unresolved.invalidate_all();
        self.tenants.invalidate_all();
    }

    /// The rule of an operation at a policy version.
    pub(super) async fn operation_at(&self, id: &OperationId, version: u64) -> Answer<Arc<Operation>> {
        match self.ledger.operation_at_version(id, version).await? {
            Some(definition) => Ok(Arc::new(stored_json(&definition)?)),
            None => Err(OperationError::field(
                "/attributes",
                format!("the operation {id} is not known any more; give `lines`"),
            )),
        }
    }
}

async fn read_policy(ledger: &Ledger) -> Answer<(PolicyVersions, Policy)> {
    let stored = ledger.read_policy().await?;
    let mut definitions = Definitions::default();
    for object in stored.objects {
        add_object(&mut definitions, object.kind, &object.definition)?;
    }
    let generations = generations(stored.generations)?;
    Ok((stored.versions, Policy::new(stored.versions.version, definitions, generations)))
}

/// Adds one stored definition.
pub(super) fn add_object(
    definitions: &mut Definitions,
    kind: DefinitionKind,
    json: &serde_json::Value,
) -> Answer<()> {
    match kind {
        DefinitionKind::Meter => {
            let meter: crate::domain::meter::Meter = stored_json(json)?;
            definitions.meters.insert(meter.id.clone(), Arc::new(meter));
        }
        DefinitionKind::Operation => {
            let operation: Operation = stored_json(json)?;
            definitions.operations.insert(operation.id.clone(), Arc::new(operation));
        }
        DefinitionKind::CostDefaults => definitions.cost_defaults = Some(Arc::new(stored_json(json)?)),
        DefinitionKind::Limit => {
            let limit: crate::domain::limit::Limit = stored_json(json)?;
            definitions.limits.insert(limit.id.clone(), Arc::new(limit));
        }
        DefinitionKind::Plan => {
            let plan: crate::domain::plan::PlanDefinition = stored_json(json)?;
            definitions.plans.insert(plan.id.clone(), Arc::new(plan));
        }
        DefinitionKind::Tenant => {
            let tenant: TenantDefinition = stored_json(json)?;
            definitions.tenants.insert(tenant.id.clone(), Arc::new(tenant));
        }
    }
    Ok(())
}

/// Decodes a definition from the ledger. One that this version cannot decode is a fault, never ignored.
pub(super) fn stored_json<T: serde::de::DeserializeOwned>(json: &serde_json::Value) -> Answer<T> {
    crate::domain::field_error::read_json(json)
        .map_err(|error| OperationError::Internal(format!("a stored definition cannot be decoded: {error}")))
}

/// The stored table of generations as the domain reads it.
pub(super) fn generations(rows: Vec<Generation>) -> Answer<counter::Generations> {
    let read = |row: Generation| -> Result<GenerationRow, String> {
        Ok(GenerationRow {
            counter: counter::CounterName::try_from(row.limit_id).map_err(|error| error.to_string())?,
            shape: row.shape.parse().map_err(|error: counter::InvalidShape| error.to_string())?,
            generation: counter::Generation {
                number: u32::try_from(row.generation).map_err(|error| error.to_string())?,
                since_ms: row.since_ms,
            },
        })
    };
    rows.into_iter().map(read).collect::<Result<_, _>>().map_err(OperationError::Internal)
}
