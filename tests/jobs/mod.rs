//! Work that time triggers: jobs claimed from rows, what they do, and the sweep after a leap.

mod advanced_grants;
mod asked_for;
mod billed_trace;
mod carried;
mod claims;
mod close;
mod continued_at_random;
mod continued_ends;
pub mod continued_grants;
mod continued_holds;
mod endless_grants;
mod estimates;
mod instances;
mod late_statements;
mod leap;
mod notices;
mod openings;
mod overage;
mod paid_grants;
mod periods;
mod restore;
mod retention;
mod rollover;
mod rollover_terms;
pub mod statements;
mod two_meters;
