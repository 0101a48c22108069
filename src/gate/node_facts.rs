//! What the gate's node says about itself, for a look at its settings.

use std::collections::HashMap;

use redis::Value;

use super::error::GateError;
use super::{Gate, call};

/// The settings that are asked for beside `INFO`.
const ASKED: [&str; 2] = ["appendfsync", "no-appendfsync-on-rewrite"];

/// The fields of `INFO`, and settings by `CONFIG GET` where the node permits it. Anything may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    fields: HashMap<String, String>,
}

impl NodeFacts {
    /// Reads the text of `INFO`, and pairs of settings.
    pub fn of<'a>(info: &'a str, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let fields = info.lines().filter_map(|line| line.trim().split_once(':'));
        let all = fields.chain(settings).map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { fields: all.collect() }
    }

    /// The text of a field or setting.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// The whole number in a field.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

impl Gate {
    /// What the node says about itself.
    pub async fn node_facts(&self) -> Result<NodeFacts, GateError> {
        let info = self.info("everything").await?;
        let mut settings = Vec::new();
        for name in ASKED {
            // A hosted Redis may not permit CONFIG: then this is not known.
            let Ok(answer) = self.plain(redis::cmd("CONFIG").arg("GET").arg(name)).await else { continue };
            settings.extend(setting(&answer).map(|value| (name, value)));
        }
        Ok(NodeFacts::of(&info, settings.iter().map(|(name, value)| (*name, value.as_str()))))
    }
}

/// The value in an answer of `CONFIG GET`: a list of name and value, or a map.
fn setting(answer: &Value) -> Option<String> {
    let value = match answer {
        Value::Array(pair) => pair.get(1)?,
        Value::Map(pairs) => &pairs.first()?.1,
        _ => return None,
    };
    call::text(value).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_the_fields_of_info_and_the_settings_that_were_answered() {
        let info = "# Server\r\nredis_version:7.2.4\r\nused_memory:1024\r\n\r\nmaxmemory:0\r\n";
        let facts = NodeFacts::of(info, [("appendfsync", "always")]);
        assert_eq!(facts.text("redis_version"), Some("7.2.4"));
        assert_eq!((facts.number("used_memory"), facts.number("redis_version")), (Some(1024), None));
        assert_eq!((facts.text("appendfsync"), facts.text("role")), (Some("always"), None));
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let list = Value::Array(vec![text("appendfsync"), text("no")]);
        let map = Value::Map(vec![(text("appendfsync"), text("no"))]);
        assert_eq!([setting(&list), setting(&map)], [Some("no".into()), Some("no".into())]);
        assert_eq!(setting(&Value::Array(Vec::new())), None);
    }
}
