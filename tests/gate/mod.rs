//! The gate against a real Redis.

pub mod asks;
pub mod monitor;
pub mod server;
pub mod told;
pub mod world;

mod concurrency;
mod connection;
mod light_holders;
mod memory;
mod outbox;
