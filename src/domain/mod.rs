//! The pure core: no IO, no async, no clock. Everything here is a value or a function of values.

pub mod amount;
pub mod codec;
pub mod entry;
pub mod event;
pub mod ids;
pub mod reservation;
