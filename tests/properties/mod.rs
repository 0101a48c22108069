//! Random sequences of calls, on the real thing and on a model of it.

pub(crate) mod gate;
mod rating;
mod service;
mod year;
