//! The audit log: who changed what, in the transaction that changed it.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde_json::{Value, json};

use super::columns::{Milliseconds, Unsigned};
use super::functions::split_part;
use super::prepared::sql_query;
use super::schema::audit_log;
use super::{BEGIN, Ledger, LedgerError, instant, number};
use crate::domain::ids::TenantId;

/// Records a change; `object` is its kind and id.
pub(crate) async fn note(
    connection: &mut AsyncPgConnection,
    actor: &str,
    action: &str,
    object: &str,
    detail: Value,
) -> Result<(), LedgerError> {
    let values = (
        audit_log::actor.eq(actor),
        audit_log::action.eq(action),
        audit_log::object.eq(object),
        audit_log::detail.eq(detail),
    );
    diesel::insert_into(audit_log::table).values(values).execute(connection).await?;
    Ok(())
}

/// Which changes to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Only of objects of this kind, such as `limit`.
    pub kind: Option<String>,
    /// Only of the object with this id; together with its kind.
    pub id: Option<String>,
    /// Only by this actor.
    pub actor: Option<String>,
    /// Only these actions, such as `put`.
    pub action: Option<String>,
    /// From this instant on (unix ms).
    pub from_ms: Option<i64>,
    /// Before this instant (unix ms).
    pub to_ms: Option<i64>,
}

/// A change in the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its place in the log: later changes have higher numbers.
    pub number: u64,
    /// When it was made (the database's clock, unix ms).
    pub at_ms: i64,
    /// Who made it: the id of a key, or the operator's command.
    pub actor: String,
    /// What was done: `put`, `delete`, `create`, `erase`, `revoke`, `accept`, `discard`, `replay`, `resolve`, `run`;
    /// `refuse`: what was not done.
    pub action: String,
    /// What kind of object was changed.
    pub kind: String,
    /// Its id, where a kind has many objects.
    pub id: Option<String>,
    /// The version that a change of policy made.
    pub version: Option<u64>,
    /// The definition before a change of policy; none where the change created it.
    pub before: Option<Value>,
    /// The definition after it; none where the change deleted it.
    pub after: Option<Value>,
    /// Further facts, such as a reason.
    pub detail: Value,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = audit_log, check_for_backend(Pg))]
struct Row {
    #[diesel(deserialize_as = Unsigned)]
    number: u64,
    #[diesel(column_name = at, deserialize_as = Milliseconds)]
    at_ms: i64,
    actor: String,
    action: String,
    object: String,
    detail: Value,
}

#[derive(QueryableByName)]
struct Definitions {
    #[diesel(sql_type = Nullable<Jsonb>)]
    after: Option<Value>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    before: Option<Value>,
}

impl Row {
    fn record(mut self) -> AuditRecord {
        let (kind, id) = match self.object.split_once(' ') {
            Some((kind, id)) => (kind.to_owned(), Some(id.to_owned())),
            None => (self.object, None),
        };
        let version = self.detail.as_object_mut().and_then(|detail| detail.remove("version"));
        AuditRecord {
            number: self.number,
            at_ms: self.at_ms,
            actor: self.actor,
            action: self.action,
            kind,
            id,
            version: version.and_then(|version| version.as_u64()),
            before: None,
            after: None,
            detail: self.detail,
        }
    }
}

impl Ledger {
    /// Records who lifts a ban that a limit has placed; the gate alone has it.
    pub async fn note_ban_lifted(
        &self,
        actor: &str,
        tenant: &TenantId,
        ban: &str,
    ) -> Result<(), LedgerError> {
        let (actor, object, tenant) = (actor.to_owned(), format!("ban {ban}"), tenant.to_string());
        self.transact(BEGIN, move |connection| {
            async move { note(connection, &actor, "delete", &object, json!({ "tenant": tenant })).await }
                .boxed()
        })
        .await
    }

    /// Changes before the number `after`, newest first, at most `limit`. Changes of policy come with the definitions
    /// before and after them.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<AuditRecord>, LedgerError> {
        let from = filter.from_ms.map(instant::from_ms).transpose()?;
        let to = filter.to_ms.map(instant::from_ms).transpose()?;
        let object = filter.kind.as_ref().zip(filter.id.as_ref()).map(|(kind, id)| format!("{kind} {id}"));
        let query = || {
            let mut found = audit_log::table.select(Row::as_select()).into_boxed();
            if let Some(object) = &object {
                found = found.filter(audit_log::object.eq(object));
            } else if let Some(kind) = &filter.kind {
                found = found.filter(split_part(audit_log::object, " ", 1).eq(kind));
            }
            if let Some(actor) = &filter.actor {
                found = found.filter(audit_log::actor.eq(actor));
            }
            if let Some(action) = &filter.action {
                found = found.filter(audit_log::action.eq(action));
            }
            if let Some(from) = from {
                found = found.filter(audit_log::at.ge(from));
            }
            if let Some(to) = to {
                found = found.filter(audit_log::at.lt(to));
            }
            if let Some(after) = after {
                found = found.filter(audit_log::number.lt(number::signed(after)));
            }
            found.order(audit_log::number.desc()).limit(number::limit(limit))
        };
        let rows: Vec<Row> = self.load(query).await?;
        let mut records: Vec<_> = rows.into_iter().map(Row::record).collect();
        self.add_definitions(&mut records).await?;
        Ok(records)
    }

    async fn add_definitions(&self, records: &mut [AuditRecord]) -> Result<(), LedgerError> {
        let versioned = |record: &AuditRecord| {
            let version = number::signed(record.version?);
            Some((record.kind.clone(), record.id.clone()?, version))
        };
        let (mut kinds, mut ids, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, id, version) in records.iter().filter_map(versioned) {
            kinds.push(kind);
            ids.push(id);
            versions.push(version);
        }
        let query = || {
            sql_query(include_str!("sql/audited_definitions.sql"))
                .bind::<Array<Text>, _>(kinds.clone())
                .bind::<Array<Text>, _>(ids.clone())
                .bind::<Array<BigInt>, _>(versions.clone())
        };
        let definitions: Vec<Definitions> = self.load(query).await?;
        let of_policy = records.iter_mut().filter(|record| record.version.is_some() && record.id.is_some());
        for (record, found) in of_policy.zip(definitions) {
            (record.before, record.after) = (found.before, found.after);
        }
        Ok(())
    }
}
