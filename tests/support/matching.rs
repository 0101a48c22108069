//! Checks a value against a pattern.

/// Checks that a value has this pattern, and shows it where it has not.
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(, $($message:tt)+)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            ref other => panic!(
                "{other:?} is not {}{}",
                stringify!($pattern),
                String::new() $(+ ": " + &format!($($message)+))?
            ),
        }
    };
}

pub(crate) use assert_matches;
