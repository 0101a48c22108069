//! Looks at how busy this instance is, in every instance whatever its roles.

use std::sync::Arc;
use std::time::Duration;

use super::cpu::Processors;
use crate::beat::every;
use crate::operations::Operations;

const BEAT: Duration = Duration::from_millis(500);

/// Follows the load beat by beat until `stop` resolves: measures it, if it is to be `measured` here, and lets what is
/// pushed end in time.
pub async fn follow_load(operations: Arc<Operations>, measured: bool, stop: impl Future<Output = ()>) {
    let mut processors = Processors::default();
    let look = || {
        match measured {
            true => operations.load.measure(processors.load()),
            false => operations.load.pass(),
        }
        std::future::ready(())
    };
    every(BEAT, stop, look).await;
}
