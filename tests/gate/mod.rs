//! The gate against a real Redis.

pub mod server;
pub mod world;
