//! What the ledger's server says about itself, for a look at its settings.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, Nullable, Text};

use super::prepared::sql_query;
use super::{Ledger, LedgerError};

/// The settings that are asked for.
const ASKED: [&str; 12] = [
    "server_version",
    "server_version_num",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "data_checksums",
    "autovacuum",
    "max_connections",
    "superuser_reserved_connections",
    "transaction_read_only",
    "in_hot_standby",
    "lc_messages",
];

/// The server's settings as this service's connections have them. Anything may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    fields: HashMap<String, String>,
}

impl ServerFacts {
    /// Facts by name.
    pub fn of<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { fields: fields.collect() }
    }

    /// The text of a setting, of the `connections` that are open now, or of `is_superuser` of the role in use.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// The whole number in a setting.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    setting: Option<String>,
}

impl Ledger {
    /// What the server says about itself.
    pub async fn server_facts(&self) -> Result<ServerFacts, LedgerError> {
        let query =
            || sql_query(include_str!("sql/server_settings.sql")).bind::<Array<Text>, _>(ASKED.to_vec());
        let rows: Vec<Row> = self.load(query).await?;
        let fields = rows.iter().filter_map(|row| Some((row.name.as_str(), row.setting.as_deref()?)));
        Ok(ServerFacts::of(fields))
    }
}
