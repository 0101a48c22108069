//! What the node must fulfil before it may keep counters, and which durability it offers.

use redis::Value;

use super::error::GateError;

/// What acknowledged writes survive, by the server's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing survives a restart (only with an unsafe server allowed).
    None,
    /// May lose a second or two when the host dies or the disk stalls.
    Everysec,
    /// On disk before the answer.
    Always,
}

impl Durability {
    /// The tier's name for display.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Everysec => "everysec",
            Self::Always => "always",
        }
    }
}

/// One value of an INFO answer.
pub(super) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Refuses a server that could lose counters; the error is one sentence with the remedy.
pub(super) fn check_safety(info: &str, allow_unsafe: bool) -> Result<(), GateError> {
    let unsafe_server = |sentence: String| Err(GateError::UnsafeServer(sentence));
    let version = info_field(info, "redis_version").unwrap_or("unknown");
    let major: u32 = version.split('.').next().and_then(|part| part.parse().ok()).unwrap_or(0);
    if major < 7 {
        return unsafe_server(format!("Redis {version} is too old: install Redis 7.0 or later, or Valkey."));
    }
    if allow_unsafe {
        return Ok(());
    }
    let policy = info_field(info, "maxmemory_policy").unwrap_or("unknown");
    if policy != "noeviction" {
        return unsafe_server(format!(
            "Redis may evict counters (maxmemory-policy is {policy}): set `maxmemory-policy noeviction`, or allow an unsafe Redis."
        ));
    }
    if info_field(info, "aof_enabled") != Some("1") {
        return unsafe_server(
            "Redis keeps no append-only file: set `appendonly yes`, or allow an unsafe Redis.".to_owned(),
        );
    }
    Ok(())
}

/// The durability tier, from INFO and the answer to `CONFIG GET appendfsync` (none where CONFIG is not permitted).
pub(super) fn durability(info: &str, appendfsync: Option<&Value>) -> Durability {
    if info_field(info, "aof_enabled") != Some("1") {
        return Durability::None;
    }
    let is_always = |value: &Value| matches!(value, Value::BulkString(text) if text == b"always");
    match appendfsync {
        Some(Value::Array(pair)) if pair.iter().any(is_always) => Durability::Always,
        _ => Durability::Everysec,
    }
}
