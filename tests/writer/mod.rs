//! The writer on a real Postgres: every step twice, every step failed.

pub mod apply;
mod by_hand;
mod lives;
mod refused;
mod run;
mod tail;
