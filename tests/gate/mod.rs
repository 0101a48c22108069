//! The gate against a real Redis.

pub mod server;
pub mod world;

mod smoke;

/// Further options of the tests' servers: `TOLLGATE_TEST_REDIS_CLUSTER=1` runs them as a cluster of one node.
pub fn server_options() -> Vec<&'static str> {
    Vec::new()
}
