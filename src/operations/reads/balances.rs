//! What stood in the accounts at an instant.

use super::Reads;
use crate::domain::ids::{MeterId, TenantId};
use crate::domain::instant::rfc3339;
use crate::ledger::{BalanceCursor, BalanceSpan};
use crate::operations::answers::{BalanceAsOf, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::BalancesRequest;

/// How many balances are read at once at the least: those in which nothing stood at the instant are left out.
const READ_AT_ONCE: usize = 1_000;

impl Reads {
    /// What stood in the accounts, by tenant, meter and period: in those in which something did. All pages are as of
    /// the same instant.
    pub async fn balances(&self, request: BalancesRequest) -> Answer<Rows<BalanceAsOf>> {
        let BalancesRequest { filter, at_ms, page } = request;
        self.core.policy.named_if_any(filter.tenant.as_ref()).await?;
        let (begun_ms, mut after) = page.after.as_deref().map(place).transpose()?.unzip();
        let span = self.books.balances_span().await?;
        let at_ms = begun_ms.or(at_ms).unwrap_or(span.now_ms);
        check(at_ms, span)?;
        let limit = page.rows_max();
        let at_once = limit.max(READ_AT_ONCE);
        let mut found = Vec::with_capacity(limit + 1);
        // Of what was booked first after the instant nothing stood there, so pages are read until one is full.
        while found.len() <= limit {
            let read = self.books.balances_as_of(&filter, at_ms, after.as_ref(), at_once).await?;
            let is_last = read.len() < at_once;
            after = read.last().map(BalanceAsOf::place);
            found.extend(read.into_iter().filter(|balance| !balance.is_empty()));
            if is_last {
                break;
            }
        }
        let page = Rows::page(found, limit, |balance| {
            let BalanceCursor { tenant, meter, period_start_ms } = balance.place();
            format!("{at_ms} {tenant} {meter} {period_start_ms}")
        });
        Ok(page.read_at(at_ms))
    }
}

fn check(at_ms: i64, span: BalanceSpan) -> Answer<()> {
    if at_ms > span.now_ms {
        return Err(OperationError::Malformed("`at` must not be in the future".into()));
    }
    match span.from_ms {
        Some(from_ms) if at_ms < from_ms => Err(OperationError::Malformed(format!(
            "`at` must not be before {}: entries that were booked up to then have left the books",
            rfc3339(from_ms)
        ))),
        _ => Ok(()),
    }
}

fn place(text: &str) -> Answer<(i64, BalanceCursor)> {
    let parts: Vec<_> = text.split(' ').collect();
    let [at, tenant, meter, period_start] = parts.as_slice() else {
        return Err(OperationError::bad_cursor());
    };
    let place = BalanceCursor {
        tenant: TenantId::parse(tenant).map_err(|_| OperationError::bad_cursor())?,
        meter: MeterId::parse(meter).map_err(|_| OperationError::bad_cursor())?,
        period_start_ms: period_start.parse().map_err(|_| OperationError::bad_cursor())?,
    };
    Ok((at.parse().map_err(|_| OperationError::bad_cursor())?, place))
}
