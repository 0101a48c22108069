//! What the tests stand on.

pub mod services;
pub mod wait;
