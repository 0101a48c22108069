//! Walks over all keys of the server, a part at a time.

use redis::Value;

use super::Gate;
use super::call::text;
use super::error::GateError;
use crate::domain::codec::Undecodable;

/// How many keys Redis looks at in one call.
const KEYS_AT_ONCE: u32 = 2_000;

/// A walk over the keys that match a pattern. A key that exists during the whole walk is met, perhaps more than once.
pub(super) struct Walk {
    pattern: String,
    /// Where it goes on; none at the end.
    cursor: Option<String>,
}

impl Walk {
    pub(super) fn over(pattern: impl Into<String>) -> Self {
        Self { pattern: pattern.into(), cursor: Some("0".to_owned()) }
    }

    /// The next keys, perhaps none of a part; none at the end.
    pub(super) async fn next(&mut self, gate: &Gate) -> Result<Option<Vec<String>>, GateError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(KEYS_AT_ONCE);
        let Ok([next, Value::Array(keys)]) =
            <[Value; 2]>::try_from(gate.plain(&scan).await?.into_sequence().unwrap_or_default())
        else {
            return Err(Undecodable("SCAN").into());
        };
        let next = text(&next)?;
        self.cursor = (next != "0").then(|| next.to_owned());
        Ok(Some(keys.iter().filter_map(|key| text(key).ok()).map(str::to_owned).collect()))
    }
}
