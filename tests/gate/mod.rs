//! The gate against a real Redis.

pub mod server;
pub mod world;

mod concurrency;
mod connection;
mod memory;
mod outbox;
