//! Random sequences of calls, on the real thing and on a model of it.

mod gate;
mod service;
