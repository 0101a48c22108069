//! What the tests stand on.

pub mod app;
pub mod matching;
pub mod model;
pub mod process;
pub mod services;
pub mod wait;
