//! The one test binary.

mod gate;
