//! What the tests stand on.

pub mod app;
pub mod services;
pub mod wait;
