//! The pure core: no IO, no async, no clock. Everything here is a value or a function of values.

pub mod amount;
pub mod chain;
pub mod checkpoint;
pub mod codec;
pub mod entry;
pub mod event;
pub mod field_error;
pub mod fingerprint;
pub mod folded;
pub mod holds;
pub mod ids;
pub mod instant;
pub mod key_filter;
pub mod limit;
pub mod meter;
pub mod operation;
pub mod parked;
pub mod period;
pub mod plan;
pub mod policy;
pub mod rate;
pub mod reservation;
pub mod resolution;
pub mod schema;
pub mod tenant;
mod whole_number;
