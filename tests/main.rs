//! The integration tests: one binary, so that everything is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside")]

mod cli;
mod embedded;
mod faults;
mod gate;
mod http;
mod jobs;
mod ledger;
mod lua;
mod properties;
mod support;
mod tidy;
mod writer;
