//! What is read: quotas, the books, their comparison with the gate, jobs, readiness.

pub(super) mod audit;
pub(super) mod health;
pub(super) mod jobs;
pub(super) mod lists;
pub(super) mod quota;
pub(super) mod reconciliations;
