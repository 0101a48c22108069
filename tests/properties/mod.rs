//! Random sequences of calls, on the real thing and on a model of it.

pub(crate) mod gate;
mod give_backs;
mod rating;
mod service;
mod year;
