//! The integration tests: one binary, so that everything is linked once.

mod embedded;
mod support;
