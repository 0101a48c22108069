//! The writer on a real Postgres: every step twice, every step failed.

mod apply;
