//! The writer on a real Postgres: every step twice, every step failed.

pub mod apply;
mod lives;
mod run;
mod tail;
