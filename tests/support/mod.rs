//! What all tests share.

pub mod app;
pub mod books;
pub mod caller;
pub mod calls;
pub mod matching;
pub mod model;
pub mod options;
pub mod postgres_wire;
pub mod process;
pub mod rate_limit_headers;
pub mod receiver;
pub mod services;
pub mod wait;
