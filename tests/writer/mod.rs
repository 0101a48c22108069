//! The writer on a real Postgres: every step twice, every step failed.

pub mod apply;
mod run;
mod tail;
