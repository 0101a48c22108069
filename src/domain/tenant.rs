//! A tenant: the customer account, its plan, its calendar, and what is different for it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::factor::Factor;
use super::ids::{LimitId, OverrideId, PlanId, Subject, SubjectId, SubjectKind, TenantId};
use super::instant::Instant;
use super::limit::Limit;
use super::period::{AnchorDay, Calendar, Zone};

/// A subject with a plan of its own, of which only the subject-scoped limits apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectPlan {
    /// What sort of subject.
    pub kind: SubjectKind,
    /// Which one.
    pub id: SubjectId,
    /// Its plan.
    pub plan: PlanId,
}

impl SubjectPlan {
    /// The subject by itself.
    pub fn subject(&self) -> Subject {
        Subject { kind: self.kind.clone(), id: self.id.clone() }
    }
}

/// A subject named in an override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectName {
    /// What sort of subject.
    pub kind: SubjectKind,
    /// Which one.
    pub id: SubjectId,
}

impl SubjectName {
    /// The subject.
    pub fn subject(&self) -> Subject {
        Subject { kind: self.kind.clone(), id: self.id.clone() }
    }
}

/// At which level an override stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideLevel {
    /// Before everything else.
    Emergency,
    /// For one subject.
    Subject,
    /// For the whole tenant.
    Tenant,
}

/// Another capacity for one limit of a tenant, or of one of its subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Its name, unique in the tenant.
    pub id: OverrideId,
    /// At which level it stands.
    pub level: OverrideLevel,
    /// Which limit it changes.
    pub limit: LimitId,
    /// For whom; given exactly when the level is `subject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectName>,
    /// The capacity instead; this or `factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// What multiplies the capacity that would win without it, rounded down; this or `capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Factor>,
    /// The first instant at which it no longer holds; absent: until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
    /// Why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Override {
    /// The subject it is for, if it is for one.
    pub fn for_subject(&self) -> Option<Subject> {
        self.subject.as_ref().map(SubjectName::subject)
    }
}

/// A tenant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantDefinition {
    /// Its name.
    pub id: TenantId,
    /// Its plan; absent: only default limits and its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// Where its days begin, as it was asked for last; its dated calendars say when it holds.
    #[serde(default)]
    pub time_zone: Zone,
    /// On which day of the month its billing periods begin, likewise.
    #[serde(default)]
    pub anchor_day: AnchorDay,
    /// Its own limits.
    #[serde(default)]
    pub limits: Vec<Arc<Limit>>,
    /// Subjects with a plan of their own.
    #[serde(default)]
    pub subjects: Vec<SubjectPlan>,
    /// Other capacities for its limits.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// Whether new work of it is refused while its books stay.
    #[serde(default)]
    pub archived: bool,
}

/// A tenant as a file or a PUT writes it: a list, a zone or an anchor day that is absent is left as it is, an empty list
/// empties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantDocument {
    /// Its name.
    pub id: TenantId,
    /// Its plan; absent: only default limits and its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// Where its days begin; absent: as it is, UTC for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<Zone>,
    /// On which day of the month its billing periods begin; absent: as it is, the 1st for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor_day: Option<AnchorDay>,
    /// Its own limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<Arc<Limit>>>,
    /// Subjects with a plan of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<SubjectPlan>>,
    /// Other capacities for its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Vec<Override>>,
    /// Whether new work of it is refused while its books stay.
    #[serde(default)]
    pub archived: bool,
}

impl TenantDocument {
    /// The tenant that is stored once this document has been written over `current`.
    pub fn merge(self, current: Option<&TenantDefinition>) -> TenantDefinition {
        TenantDefinition {
            id: self.id,
            plan: self.plan,
            time_zone: self
                .time_zone
                .or_else(|| current.map(|tenant| tenant.time_zone.clone()))
                .unwrap_or_default(),
            anchor_day: self.anchor_day.or(current.map(|tenant| tenant.anchor_day)).unwrap_or_default(),
            limits: self.limits.or_else(|| current.map(|tenant| tenant.limits.clone())).unwrap_or_default(),
            subjects: self
                .subjects
                .or_else(|| current.map(|tenant| tenant.subjects.clone()))
                .unwrap_or_default(),
            overrides: self
                .overrides
                .or_else(|| current.map(|tenant| tenant.overrides.clone()))
                .unwrap_or_default(),
            archived: self.archived,
        }
    }
}

impl From<TenantDefinition> for TenantDocument {
    /// The document that writes exactly this tenant.
    fn from(tenant: TenantDefinition) -> Self {
        Self {
            id: tenant.id,
            plan: tenant.plan,
            time_zone: Some(tenant.time_zone),
            anchor_day: Some(tenant.anchor_day),
            limits: Some(tenant.limits),
            subjects: Some(tenant.subjects),
            overrides: Some(tenant.overrides),
            archived: tenant.archived,
        }
    }
}

impl TenantDefinition {
    /// The calendar that was asked for last.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.time_zone.clone(), self.anchor_day)
    }
}
