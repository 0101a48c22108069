//! The lines of a call: amounts by meter.

use std::ops::Deref;

use super::amount::Amount;
use super::field_error::FieldError;
use super::ids::MeterId;
use super::reservation::LINES_MAX;

/// One to eight amounts, each meter once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines(Vec<(MeterId, Amount)>);

impl Lines {
    /// Checks their number, and that no meter is named twice.
    ///
    /// # Errors
    /// What is wrong, at `/lines` or `/lines/…/meter`.
    pub fn parse(lines: Vec<(MeterId, Amount)>) -> Result<Self, Vec<FieldError>> {
        if !(1..=LINES_MAX).contains(&lines.len()) {
            return Err(vec![FieldError::new("/lines", format!("must be 1 to {LINES_MAX} lines"))]);
        }
        let repeated = repeated_meters(&lines);
        if repeated.is_empty() { Ok(Self(lines)) } else { Err(repeated) }
    }

    /// The amounts by meter.
    #[must_use]
    pub fn into_inner(self) -> Vec<(MeterId, Amount)> {
        self.0
    }
}

/// Lines of work to be done: each amount is more than 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkLines(Lines);

impl WorkLines {
    /// Checks the amounts as well.
    ///
    /// # Errors
    /// What is wrong, at `/lines`, `/lines/…/meter` or `/lines/…/amount`.
    pub fn parse(lines: Vec<(MeterId, Amount)>) -> Result<Self, Vec<FieldError>> {
        let lines = Lines::parse(lines)?;
        let nothing = lines.0.iter().enumerate().filter(|(_, (_, amount))| amount.is_zero());
        let wrong: Vec<_> = nothing
            .map(|(index, _)| FieldError::new(format!("/lines/{index}/amount"), "must be more than 0"))
            .collect();
        if wrong.is_empty() { Ok(Self(lines)) } else { Err(wrong) }
    }
}

impl Deref for WorkLines {
    type Target = [(MeterId, Amount)];

    fn deref(&self) -> &Self::Target {
        &self.0.0
    }
}

/// The lines that name the meter of an earlier line: an error for each, at `/lines/…/meter`.
fn repeated_meters(lines: &[(MeterId, Amount)]) -> Vec<FieldError> {
    let is_repeated =
        |index: usize, meter: &MeterId| lines[..index].iter().any(|(earlier, _)| earlier == meter);
    let repeated = lines.iter().enumerate().filter(|(index, (meter, _))| is_repeated(*index, meter));
    repeated
        .map(|(index, (meter, _))| {
            let message = format!("`{meter}` is in an earlier line too; one line per meter");
            FieldError::new(format!("/lines/{index}/meter"), message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(meters: &[&str]) -> Vec<(MeterId, Amount)> {
        let amount = Amount::parse("1").unwrap();
        meters.iter().map(|meter| (MeterId::parse(meter).unwrap(), amount)).collect()
    }

    fn pointers(meters: &[&str]) -> Vec<String> {
        WorkLines::parse(lines(meters)).unwrap_err().into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn a_meter_given_twice_is_named() {
        assert_eq!(pointers(&["page", "token", "page", "page"]), ["/lines/2/meter", "/lines/3/meter"]);
    }

    #[test]
    fn there_are_one_to_eight() {
        assert_eq!(pointers(&[]), ["/lines"]);
        assert_eq!(pointers(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]), ["/lines"]);
        assert_eq!(WorkLines::parse(lines(&["page", "token"])).unwrap().len(), 2);
    }

    #[test]
    fn totals_may_be_nothing_and_work_is_something() {
        let nothing = vec![(MeterId::parse("page").unwrap(), Amount::ZERO)];
        assert!(Lines::parse(nothing.clone()).is_ok());
        assert_eq!(WorkLines::parse(nothing).unwrap_err()[0].pointer, "/lines/0/amount");
    }
}
