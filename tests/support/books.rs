//! The books as queries that say the same of two databases in which the same things happened: without ids, and without
//! the times at which something was booked.

use super::services::TestDatabase;
use crate::ledger::rows;

/// What a period opens with is summed up: where policy changes before it begins, more is granted or some is taken back.
const ENTRIES: &str = "WITH e AS (\
        SELECT tenant, meter, period_start AT TIME ZONE 'UTC' AS period, credit, debit, amount, class, carried, late, excess, \
            happened_at AT TIME ZONE 'UTC' AS at, \
            class = 'grant' AND happened_at = period_start AND 'granted' IN (credit, debit) AS opens \
        FROM entries) \
    SELECT count(*), tenant, meter, period, credit, debit, amount::float8 AS amount, class, carried, late, excess, at \
    FROM e WHERE NOT opens GROUP BY 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 \
    UNION ALL \
    SELECT 1, tenant, meter, period, 'granted', 'available', \
        sum(CASE credit WHEN 'granted' THEN amount ELSE -amount END)::float8, class, carried, late, excess, at \
    FROM e WHERE opens GROUP BY tenant, meter, period, class, carried, late, excess, at \
    ORDER BY 2, 12, 3, 4, 5, 6, 7, 8, 9, 10, 11";
const CONTINUED: &str = "SELECT c.tenant, c.period_start AT TIME ZONE 'UTC' AS period, g.created_at AT TIME ZONE 'UTC' AS made, \
    c.amount::float8 AS amount, c.rolled::float8 AS rolled FROM continued_grants c JOIN grants g ON g.id = c.grant_id ORDER BY 1, 2, 3";
const STATEMENTS: &str =
    "SELECT tenant, number, document::jsonb - 'books' AS document FROM statements ORDER BY 1, 2";
const CLOSURES: &str = "SELECT tenant, meter, period_start AT TIME ZONE 'UTC' AS start, period_end AT TIME ZONE 'UTC' AS end, \
    closed_at AT TIME ZONE 'UTC' AS closed, lapsed::float8 AS l, overage::float8 AS o, rolled::float8 AS r, \
    paid_by_next::float8 AS p, added::float8 AS a FROM period_closures ORDER BY 1, 2, 3";
const GRANTS: &str = "SELECT tenant, meter, amount::float8 AS a, kind, priority, effective_at AT TIME ZONE 'UTC' AS from, \
    expires_at AT TIME ZONE 'UTC' AS until, settled_at IS NOT NULL AS settled, settled_amount::float8 AS s \
    FROM grants ORDER BY 1, 2, 6, 7, 3, 4, 5";
const BURNS: &str = "SELECT g.tenant, g.effective_at AT TIME ZONE 'UTC' AS made, b.period_start AT TIME ZONE 'UTC' AS period, \
    b.amount::float8 AS a, b.recognised::float8 AS r, b.forfeited::float8 AS f \
    FROM grant_burns b JOIN grants g ON g.tenant = b.tenant AND g.id = b.grant_id ORDER BY 1, 2, 3, 4";
const NOTICES: &str = "SELECT tenant, meter, period_start AT TIME ZONE 'UTC' AS period, percent, resolved_at IS NOT NULL AS resolved \
    FROM quota_notices ORDER BY 1, 2, 3, 4";
const DELIVERIES: &str = "SELECT tenant, meter, period_start AT TIME ZONE 'UTC' AS period, percent, event, count(*) \
    FROM webhook_deliveries GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5";

/// What the books say.
#[derive(Debug)]
pub struct Books {
    /// The entries, those that are alike in one row with their number.
    pub entries: Vec<String>,
    /// Statements and notes, each whole.
    pub statements: Vec<String>,
    /// What goes on of grants.
    pub continued: Vec<String>,
    /// The closes of periods.
    pub closures: Vec<String>,
    /// Grants, and whether they are settled.
    pub grants: Vec<String>,
    /// What has burnt of grants that were sold.
    pub burns: Vec<String>,
    /// Notices of quotas.
    pub notices: Vec<String>,
    /// Deliveries that were made with them.
    pub deliveries: Vec<String>,
}

impl Books {
    /// As this database has them.
    pub async fn of(database: &TestDatabase) -> Self {
        Self {
            entries: rows(database, ENTRIES).await,
            statements: rows(database, STATEMENTS).await,
            continued: rows(database, CONTINUED).await,
            closures: rows(database, CLOSURES).await,
            grants: rows(database, GRANTS).await,
            burns: rows(database, BURNS).await,
            notices: rows(database, NOTICES).await,
            deliveries: rows(database, DELIVERIES).await,
        }
    }

    /// Checks that they say the same as `expected`, and shows where they do not.
    #[track_caller]
    pub fn equal(&self, expected: &Self, of: &str) {
        for ((name, found), (_, expected)) in self.parts().into_iter().zip(expected.parts()) {
            let (missing, more) = (lacking(expected, found), lacking(found, expected));
            let same_length = found.len() == expected.len();
            assert!(
                same_length && missing.is_empty() && more.is_empty(),
                "{of}, {name}: missing {missing:#?}, instead {more:#?}"
            );
        }
    }

    fn parts(&self) -> [(&str, &[String]); 8] {
        [
            ("entries", &self.entries),
            ("statements", &self.statements),
            ("continued grants", &self.continued),
            ("closures", &self.closures),
            ("grants", &self.grants),
            ("burns", &self.burns),
            ("notices", &self.notices),
            ("deliveries", &self.deliveries),
        ]
    }
}

/// The first rows of one that another lacks.
fn lacking<'a>(one: &'a [String], other: &[String]) -> Vec<&'a String> {
    let other: std::collections::BTreeSet<_> = other.iter().collect();
    one.iter().filter(|row| !other.contains(row)).take(12).collect()
}
