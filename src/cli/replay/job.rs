//! One job: its tenant, its key, and the bodies of its calls.

use std::fmt::Write;

use super::trace::{Row, TraceFacts};
use super::{AckName, ReplayArguments};

/// The meters of a replay, in the order of their figures.
pub(super) const METERS: [&str; 3] = ["llm.request", "llm.input_token", "llm.output_token"];
/// The kind of the subject under which a run's usage is found again in the ledger.
pub(super) const SUBJECT_KIND: &str = "session";

/// The idempotency key of a row: a function of the trace's content, the run's name and the row's number.
pub fn job_key(hash: &[u8; 32], run: &str, row: u64) -> String {
    format!("replay-{}-{run}-{row}", short(hash))
}

/// The tenant of a row, from 1 to `tenants`: a stable hash of the trace's content and the row's number.
pub fn tenant_number(hash: &[u8; 32], row: u64, tenants: u16) -> u16 {
    let digest = blake3::keyed_hash(hash, &row.to_le_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest.as_bytes()[..8]);
    let number = u64::from_le_bytes(first) % u64::from(tenants.max(1));
    u16::try_from(number).unwrap_or_default() + 1
}

/// The id of a tenant by its number.
pub(super) fn tenant_id(number: u16) -> String {
    format!("replay-{number:03}")
}

/// Sixteen hexadecimal digits: enough to distinguish traces.
fn short(hash: &[u8; 32]) -> String {
    hash[..8].iter().fold(String::with_capacity(16), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What all jobs of a run have in common.
#[derive(Debug)]
pub(super) struct JobShape {
    hash: [u8; 32],
    run: String,
    estimate: u64,
    ack: AckName,
    /// How many tenants there are.
    pub(super) tenants: u16,
    /// The subject that names this run in the books.
    pub(super) subject: String,
}

impl JobShape {
    pub(super) fn new(arguments: &ReplayArguments, facts: &TraceFacts) -> Self {
        Self {
            hash: facts.hash,
            run: arguments.run.clone(),
            estimate: arguments.estimate,
            ack: arguments.ack,
            tenants: arguments.tenants,
            subject: format!("replay-{}-{}", short(&facts.hash), arguments.run),
        }
    }

    /// The job of a row. Every text in its bodies is made of characters that JSON takes as they are.
    pub(super) fn job(&self, row: &Row) -> Job {
        let tenant = tenant_number(&self.hash, row.number, self.tenants);
        Job {
            tenant,
            key: job_key(&self.hash, &self.run, row.number),
            reserve: format!(
                r#"{{"tenant":"{}","subjects":{{"{SUBJECT_KIND}":"{}"}},"lines":{}}}"#,
                tenant_id(tenant),
                self.subject,
                lines(row.input_tokens, self.estimate)
            ),
            consume: format!(
                r#"{{"lines":{},"final":true,"ack":"{}"}}"#,
                lines(row.input_tokens, row.output_tokens),
                match self.ack {
                    AckName::Gate => "gate",
                    AckName::Ledger => "ledger",
                }
            ),
        }
    }
}

/// A call without input has no line for it: nothing can be reserved, and what was not reserved cannot be consumed.
fn lines(input_tokens: u64, output_tokens: u64) -> String {
    let [request, input, output] = METERS;
    let input_line = match input_tokens {
        0 => String::new(),
        tokens => format!(r#",{{"meter":"{input}","amount":"{tokens}"}}"#),
    };
    format!(
        r#"[{{"meter":"{request}","amount":"1"}}{input_line},{{"meter":"{output}","amount":"{output_tokens}"}}]"#
    )
}

/// One row, ready to be sent.
#[derive(Debug)]
pub(super) struct Job {
    /// The number of its tenant.
    pub(super) tenant: u16,
    /// Its idempotency key.
    pub(super) key: String,
    /// The body of its reserve.
    pub(super) reserve: String,
    /// The body of its consume.
    pub(super) consume: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> JobShape {
        JobShape {
            hash: [7; 32],
            run: "a".into(),
            estimate: 2048,
            ack: AckName::Gate,
            tenants: 8,
            subject: "replay-x-a".into(),
        }
    }

    #[test]
    fn keys_and_tenants_are_stable() {
        assert_eq!(job_key(&[7; 32], "first", 42), "replay-0707070707070707-first-42");
        assert_eq!(
            (1..=6).map(|row| tenant_number(&[7; 32], row, 8)).collect::<Vec<_>>(),
            [5, 4, 6, 8, 4, 3]
        );
    }

    #[test]
    fn rows_are_spread_over_all_tenants() {
        let mut jobs = [0; 8];
        (1..=8000).for_each(|row| jobs[usize::from(tenant_number(&[1; 32], row, 8)) - 1] += 1);
        assert!(jobs.iter().all(|count| (800..1200).contains(count)), "{jobs:?}");
    }

    #[test]
    fn a_job_reserves_its_estimate_and_consumes_what_it_used() {
        let job = shape().job(&Row { number: 1, at_us: 0, input_tokens: 30, output_tokens: 5 });
        let reserve: serde_json::Value = serde_json::from_str(&job.reserve).unwrap();
        let consume: serde_json::Value = serde_json::from_str(&job.consume).unwrap();
        let line = |meter: &str, amount: &str| serde_json::json!({ "meter": meter, "amount": amount });
        let lines = |output| {
            serde_json::json!([line(METERS[0], "1"), line(METERS[1], "30"), line(METERS[2], output)])
        };
        assert_eq!(reserve["lines"], lines("2048"));
        assert_eq!(consume["lines"], lines("5"));
        assert_eq!(consume["final"], true);
    }

    #[test]
    fn nothing_is_reserved_for_a_call_without_input_and_an_answer_of_nothing_is_zero() {
        let job = shape().job(&Row { number: 1, at_us: 0, input_tokens: 0, output_tokens: 0 });
        assert!(!job.reserve.contains(METERS[1]) && !job.consume.contains(METERS[1]));
        assert!(job.consume.contains(r#"{"meter":"llm.output_token","amount":"0"}"#));
    }
}
