//! Endpoints: which operation a call by method and path is, by the patterns of the operations.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::ids::OperationId;

/// The longest path and pattern, in characters.
const PATH_MAX: usize = 1_024;

/// A method of HTTP in capital letters, such as `POST`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpMethod(String);

impl TryFrom<String> for HttpMethod {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, &'static str> {
        let is_fine =
            (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        if is_fine {
            Ok(Self(text))
        } else {
            Err("must be a method of HTTP in capital letters, such as POST")
        }
    }
}

impl HttpMethod {
    /// Its word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<HttpMethod> for String {
    fn from(method: HttpMethod) -> String {
        method.0
    }
}

/// A path as it was called, such as `/ocr/7`: without a query, as the service that is called reads it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct EndpointPath(String);

impl TryFrom<String> for EndpointPath {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, &'static str> {
        if is_path(&text) && !text.contains(['?', '#']) {
            Ok(Self(text))
        } else {
            Err("must be a path of at most 1024 printable characters that begins with / and has no query")
        }
    }
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= PATH_MAX && text.bytes().all(|b| (0x21..0x7f).contains(&b))
}

/// Which paths an operation is called by: `*` stands for one segment, `**` at the end for all that remain, at least
/// one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern(String);

impl TryFrom<String> for PathPattern {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, &'static str> {
        let stars_stand_alone =
            text.split('/').all(|part| !part.contains('*') || part == "*" || part == "**");
        let rest_is_last = text.find("**").is_none_or(|at| at + 2 == text.len());
        if is_path(&text) && !text.contains(['?', '#']) && stars_stand_alone && rest_is_last {
            Ok(Self(text))
        } else {
            Err("must be a path such as /ocr/*: `*` is a whole segment, `**` the last one")
        }
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> String {
        pattern.0
    }
}

impl PathPattern {
    /// Whether a path is one of those.
    pub fn matches(&self, path: &EndpointPath) -> bool {
        let (mut expected, mut given) = (self.0.split('/'), path.0.split('/'));
        loop {
            match (expected.next(), given.next()) {
                (None, None) => return true,
                (Some("**"), Some(segment)) => return !segment.is_empty(),
                (Some("*"), Some(segment)) if !segment.is_empty() => {}
                (Some(part), Some(segment)) if part == segment && part != "*" => {}
                _ => return false,
            }
        }
    }

    /// What wins, the largest first: the longest text before a star, then one that names every segment, then more
    /// segments.
    fn precedence(&self) -> (usize, bool, usize) {
        let literal = self.0.find('*').unwrap_or(usize::MAX);
        (literal, !self.0.ends_with("**"), self.0.split('/').count())
    }
}

/// How an operation is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointPattern {
    /// By this method.
    pub method: HttpMethod,
    /// On these paths.
    pub path: PathPattern,
}

/// The operations by their patterns.
#[derive(Debug, Clone, Default)]
pub struct Endpoints(HashMap<HttpMethod, Vec<(PathPattern, OperationId)>>);

impl Endpoints {
    /// Puts the patterns in order of precedence, so that the first that matches wins.
    pub fn new<'a>(patterns: impl Iterator<Item = (&'a EndpointPattern, &'a OperationId)>) -> Self {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for (pattern, operation) in patterns {
            let of_method = all.entry(pattern.method.clone()).or_default();
            of_method.push((pattern.path.clone(), operation.clone()));
        }
        for of_method in all.values_mut() {
            of_method.sort_by_cached_key(|(path, operation)| {
                (Reverse(path.precedence()), path.clone(), operation.clone())
            });
        }
        Self(all)
    }

    /// The operation that this call is; none where no pattern matches.
    pub fn find(&self, method: &HttpMethod, path: &EndpointPath) -> Option<&OperationId> {
        let found = self.0.get(method)?.iter().find(|(pattern, _)| pattern.matches(path));
        found.map(|(_, operation)| operation)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn method(text: &str) -> HttpMethod {
        HttpMethod::try_from(text.to_owned()).unwrap()
    }

    fn path(text: &str) -> EndpointPath {
        EndpointPath::try_from(text.to_owned()).unwrap()
    }

    fn pattern(text: &str) -> Result<PathPattern, &'static str> {
        PathPattern::try_from(text.to_owned())
    }

    #[rstest]
    #[case("/api/ocr", "/api/ocr", true)]
    #[case("/api/ocr", "/api/ocr/", false)]
    #[case("/api/*", "/api/ocr", true)]
    #[case("/api/*", "/api/", false)]
    #[case("/api/*", "/api/ocr/7", false)]
    #[case("/api/*/pages", "/api/7/pages", true)]
    #[case("/api/**", "/api/ocr/7", true)]
    #[case("/api/**", "/api", false)]
    #[case("/api/**", "/api/", false)]
    #[case("/**", "/api/ocr/7", true)]
    #[case("/api/*", "/api/*", true)]
    fn a_star_is_one_segment_and_two_are_the_rest(
        #[case] given: &str,
        #[case] called: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(pattern(given).unwrap().matches(&path(called)), expected);
    }

    #[rstest]
    #[case("api")]
    #[case("/api/a*")]
    #[case("/api/**/pages")]
    #[case("/api/***")]
    #[case("/api?x=1")]
    #[case("/api/ a")]
    fn what_is_no_pattern_is_refused(#[case] given: &str) {
        assert!(pattern(given).is_err());
    }

    #[test]
    fn the_longest_text_before_a_star_wins_and_then_what_says_most() {
        let patterns =
            ["/**", "/api/**", "/api/*", "/api/*/pages", "/api/ocr/**", "/api/ocr/*", "/api/ocr/fast"];
        let named: Vec<_> = patterns
            .iter()
            .map(|text| EndpointPattern { method: method("POST"), path: pattern(text).unwrap() })
            .zip((0..).map(|number| OperationId::parse(&format!("o{number}")).unwrap()))
            .collect();
        for order in [named.clone(), named.iter().rev().cloned().collect()] {
            let endpoints = Endpoints::new(order.iter().map(|(pattern, operation)| (pattern, operation)));
            for (called, expected) in [
                ("/api/ocr/fast", "o6"),
                ("/api/ocr/slow", "o5"),
                ("/api/ocr/slow/7", "o4"),
                ("/api/tts", "o2"),
                ("/api/tts/pages", "o3"),
                ("/api/tts/7/pages", "o1"),
                ("/v2", "o0"),
            ] {
                let found = endpoints.find(&method("POST"), &path(called));
                assert_eq!(found.map(OperationId::as_str), Some(expected), "{called}");
            }
            assert_eq!(endpoints.find(&method("GET"), &path("/v2")), None);
        }
    }
}
