//! Random sequences against a model.
