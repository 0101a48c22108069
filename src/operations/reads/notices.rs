//! Notices of quotas.

use super::Reads;
use crate::domain::ids::MeterId;
use crate::ledger::NoticeCursor;
use crate::operations::answers::{QuotaNotice, Rows};
use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::NoticesRequest;

impl Reads {
    /// Notices of a tenant's quotas, newest first.
    pub async fn list_notices(&self, request: NoticesRequest) -> Answer<Rows<QuotaNotice>> {
        self.core.policy.named_tenant(&request.filter.tenant).await?;
        let after = request.page.after.as_deref().map(place).transpose()?;
        let limit = request.page.rows_max();
        let found = self.core.ledger.quota_notices(&request.filter, after.as_ref(), limit + 1).await?;
        Ok(Rows::page(found, limit, |notice| {
            format!("{} {} {} {}", notice.raised_at, notice.meter, notice.percent, notice.period_start)
        }))
    }
}

fn place(text: &str) -> Answer<NoticeCursor> {
    let parts: Vec<_> = text.split(' ').collect();
    let (at, meter, percent, start) = match parts.as_slice() {
        [at, meter, percent, start] => (at, meter, percent, *start),
        // A cursor of an earlier version goes on as it did there: after all periods of its threshold.
        [at, meter, percent] => (at, meter, percent, "0"),
        _ => return Err(OperationError::bad_cursor()),
    };
    Ok((
        at.parse().map_err(|_| OperationError::bad_cursor())?,
        MeterId::parse(meter).map_err(|_| OperationError::bad_cursor())?,
        percent.parse().map_err(|_| OperationError::bad_cursor())?,
        start.parse().map_err(|_| OperationError::bad_cursor())?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_with_its_period_or_as_an_earlier_version_wrote_it() {
        let page = MeterId::parse("page").unwrap();
        assert_eq!(
            place("1700000000000 page 80 1600000000000").unwrap(),
            (1_700_000_000_000, page.clone(), 80, 1_600_000_000_000)
        );
        assert_eq!(place("1700000000000 page 80").unwrap(), (1_700_000_000_000, page, 80, 0));
        for wrong in ["", "1700000000000 page", "1700000000000 page 80 x", "1700000000000 page 80 1 2"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
