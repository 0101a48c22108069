//! Query strings, read strictly: every parameter once, none unknown, each value parsed.

use std::fmt;
use std::str::FromStr;

use actix_web::HttpRequest;
use actix_web::web;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::problem::Problem;
use crate::domain::ids::Subject;
use crate::domain::ids::{SubjectId, SubjectKind};
use crate::domain::instant::Instant;

const NOT_A_TIME: &str = "must be an RFC 3339 time such as 2027-01-31T00:00:00Z";

/// Rows of a page if the caller names no number.
const LIMIT_DEFAULT: u32 = 100;

/// The most rows of a page.
const LIMIT_MAX: u32 = 1_000;

/// Parameters not yet taken. Those left at [`Query::finish`] are unknown.
#[derive(Debug)]
pub(super) struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// The request's parameters; one that comes twice is 400.
    pub(super) fn of(request: &HttpRequest) -> Result<Self, Problem> {
        Self::parse(request.query_string())
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let parameters = web::Query::<Vec<(String, String)>>::from_query(text)
            .map_err(|_| Problem::invalid("The query string cannot be read."))?
            .into_inner();
        for (index, (name, value)) in parameters.iter().enumerate() {
            if parameters[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(Problem::parameter(name, "comes twice"));
            }
            if value.contains('\0') {
                return Err(Problem::parameter(name, "contains U+0000"));
            }
        }
        Ok(Self { parameters })
    }

    /// The text of a parameter, if it is given.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(given, _)| given == name)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// A parameter of a type that parses itself; its error says what is allowed.
    pub(super) fn parsed<T>(&mut self, name: &str) -> Result<Option<T>, Problem>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.text(name).map(|text| text.parse().map_err(|error| Problem::parameter(name, error))).transpose()
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Problem> {
        self.text(name).map(|text| one_of(name, &text, words)).transpose()
    }

    /// Several of a few words, separated by commas, each once.
    pub(super) fn words<T: Copy + PartialEq>(
        &mut self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Vec<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(Vec::new()) };
        let mut chosen = Vec::new();
        for word in text.split(',') {
            let value = one_of(name, word.trim(), words)?;
            if chosen.contains(&value) {
                return Err(Problem::parameter(name, format!("`{word}` comes twice")));
            }
            chosen.push(value);
        }
        Ok(chosen)
    }

    /// An instant in RFC 3339, as unix milliseconds.
    pub(super) fn instant_ms(&mut self, name: &str) -> Result<Option<i64>, Problem> {
        self.text(name)
            .map(|text| Instant::ms_within(&text).ok_or_else(|| Problem::parameter(name, NOT_A_TIME)))
            .transpose()
    }

    /// `from` (inclusive) and `to` (exclusive), in this order; before 1970 there is nothing.
    pub(super) fn span_ms(&mut self) -> Result<(Option<i64>, Option<i64>), Problem> {
        let (from_ms, to_ms) = (self.instant_ms("from")?, self.instant_ms("to")?);
        match (from_ms, to_ms) {
            (Some(from), Some(to)) if from >= to => {
                Err(Problem::parameter("to", "must be later than `from`"))
            }
            (from, to) => Ok((from.map(|ms| ms.max(0)), to.map(|ms| ms.max(0)))),
        }
    }

    /// `limit`: 1 to 1000 rows, 100 if absent.
    pub(super) fn limit(&mut self) -> Result<u32, Problem> {
        let Some(text) = self.text("limit") else { return Ok(LIMIT_DEFAULT) };
        text.parse()
            .ok()
            .filter(|limit| (1..=LIMIT_MAX).contains(limit) && text.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| Problem::parameter("limit", "must be a whole number from 1 to 1000"))
    }

    /// `subject` with its `kind`, a user's if absent.
    pub(super) fn subject(&mut self) -> Result<Option<Subject>, Problem> {
        match (self.parsed::<SubjectId>("subject")?, self.parsed::<SubjectKind>("kind")?) {
            (None, None) => Ok(None),
            (Some(id), kind) => Ok(Some(Subject { kind: kind.unwrap_or_else(SubjectKind::user), id })),
            (None, Some(_)) => Err(Problem::parameter("subject", "is required with `kind`")),
        }
    }

    /// What is left, sorted: the filters a cursor is bound to.
    pub(super) fn canonical(&self) -> String {
        let mut pairs: Vec<_> =
            self.parameters.iter().map(|(name, value)| format!("{}:{name}={value}", value.len())).collect();
        pairs.sort();
        pairs.join("&")
    }

    /// Refuses parameters that nobody has taken.
    pub(super) fn finish(self) -> Result<(), Problem> {
        match self.parameters.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::parameter(name, "is not a parameter of this call")),
        }
    }
}

/// An instant in a body, as unix milliseconds: RFC 3339; digits finer than a millisecond are cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub i64);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = Time;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time such as \"2027-01-31T00:00:00Z\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                Instant::ms_within(text).map(Time).ok_or_else(|| E::custom(NOT_A_TIME))
            }
        }
        deserializer.deserialize_str(TimeVisitor)
    }
}

fn one_of<T: Copy>(name: &str, text: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> =
            words.iter().map(|(word, _)| if word.is_empty() { "empty" } else { word }).collect();
        Problem::parameter(name, format!("must be one of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("limit=1", Ok(1))]
    #[case("limit=1000", Ok(1000))]
    #[case("", Ok(100))]
    #[case("limit=0", Err(()))]
    #[case("limit=1001", Err(()))]
    #[case("limit=-1", Err(()))]
    #[case("limit=%2B5", Err(()))]
    #[case("limit=1e2", Err(()))]
    #[case("limit=99999999999999999999", Err(()))]
    #[case("limit=", Err(()))]
    fn a_limit_is_1_to_1000(#[case] text: &str, #[case] expected: Result<u32, ()>) {
        assert_eq!(Query::parse(text).unwrap().limit().map_err(|_| ()), expected);
    }

    #[test]
    fn an_unknown_or_repeated_parameter_is_400_and_named() {
        let problem = Query::parse("colour=red").unwrap().finish().unwrap_err();
        assert!(problem.to_string().contains("`colour`"), "{problem}");
        assert!(Query::parse("a=1&a=2").is_err());
        assert!(Query::parse("a=%00").is_err());
    }

    #[test]
    fn times_are_rfc_3339_and_in_order() {
        let span = |text: &str| Query::parse(text).unwrap().span_ms();
        assert_eq!(
            span("from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00%2B00:30").unwrap(),
            (Some(1_767_225_600_000), Some(1_767_227_400_000))
        );
        for bad in [
            "from=yesterday",
            "from=2026-13-01T00:00:00Z",
            "from=1767225600",
            "from=2026-01-01",
            "from=2026-01-01%2000:00:00Z",
            "from=2026-01-01T00:00Z",
            "from=2026-01-01T00:00:00Z[UTC]",
            "from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z",
            "to=99999-01-01T00:00:00Z",
        ] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_subject_without_a_kind_is_a_user_and_a_kind_needs_a_subject() {
        let subject = |text: &str| Query::parse(text).unwrap().subject();
        for same in ["subject=user-42&kind=user", "subject=user-42"] {
            assert_eq!(subject(same).unwrap().unwrap().kind, SubjectKind::user(), "{same}");
        }
        assert!(subject("").unwrap().is_none());
        for bad in ["kind=user", "subject=%7Bx%7D&kind=user", "subject=a&kind=-"] {
            assert!(subject(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_are_known_and_come_once() {
        let words = [("meter", 1), ("tenant", 2)];
        let read = |text: &str| Query::parse(text).unwrap().words("group_by", &words);
        assert_eq!(read("group_by=tenant,meter").unwrap(), [2, 1]);
        for bad in ["group_by=", "group_by=plan", "group_by=meter,meter", "group_by=meter,"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn filters_in_another_order_are_the_same_filters() {
        let canonical = |text: &str| Query::parse(text).unwrap().canonical();
        assert_eq!(canonical("a=1&b=2"), canonical("b=2&a=1"));
        assert_ne!(canonical("a=1%26b=2"), canonical("a=1&b=2"));
    }
}
