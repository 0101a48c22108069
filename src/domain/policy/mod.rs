//! Policy: what is counted, what work costs, who may use how much; read from documents, resolved for one request.

mod anomalies;
mod chain;
pub mod counter;
pub mod diff;
pub mod document;
pub mod edit;
pub mod globals;
pub mod intervals;
pub mod resets;
pub mod resolve;
pub mod snapshot;
pub mod tenant_policy;
pub mod validate;
pub mod warnings;

#[cfg(test)]
mod tests;

pub use resolve::{Level, Resolved};
pub use snapshot::Policy;
pub use tenant_policy::{Dangling, TenantPolicy};
