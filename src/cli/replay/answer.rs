//! What an answer of the service means for a job.

use std::time::Duration;

use serde::Deserialize;

use crate::cli::client::Reply;

/// Which of its two calls a job is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the work.
    Reserve,
    /// After the work.
    Consume,
}

/// What comes next for a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The units are held under this reservation: consume.
    Held(String),
    /// The job is done.
    Accepted(Consumed),
    /// A limit or quota does not allow it: the job ends here.
    Refused,
    /// The service cannot say now: the same call again, not before this has passed.
    Again(Option<Duration>),
    /// The service had a fault: the same call again, a few times.
    Fault(String),
    /// Neither gate nor ledger knows the reservation any more: reserve again under the same key.
    Unknown(String),
    /// The job cannot be done.
    Failed(String),
    /// No job can be done with this key.
    Stop,
}

/// A consumed job as the service answered it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Consumed {
    /// Its lines.
    pub(super) lines: Vec<ConsumedLine>,
    /// Whether it came after its hold had expired.
    pub(super) late: bool,
    /// Whether an earlier call had done it.
    pub(super) replayed: bool,
}

/// A line of a consumed job, in the decimal texts of the answer.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ConsumedLine {
    /// The meter.
    #[serde(default)]
    pub(super) meter: String,
    /// The total consumed.
    #[serde(default)]
    pub(super) consumed: String,
    /// What of it was above the hold.
    #[serde(default)]
    pub(super) excess: String,
}

/// An answer to one call, alone or out of a batch.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    #[serde(default)]
    body: Body,
    #[serde(skip)]
    retry_after: Option<Duration>,
}

/// The fields of all answers and problem documents that matter here.
#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    lines: Vec<ConsumedLine>,
    #[serde(default)]
    late: bool,
    #[serde(default)]
    replayed: bool,
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    errors: Vec<FieldProblem>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct FieldProblem {
    #[serde(default)]
    pointer: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct BatchBody {
    results: Vec<Answer>,
}

impl Answer {
    /// The answer to a single call.
    pub(super) fn of(reply: &Reply) -> Self {
        let body = serde_json::from_slice(&reply.body).unwrap_or_default();
        Self { status: reply.status, body, retry_after: reply.retry_after }
    }

    /// The answers to the `count` items of a batch; one refused as a whole answers each of them alike.
    pub(super) fn of_batch(reply: &Reply, count: usize) -> Vec<Self> {
        if reply.status == 200 {
            match serde_json::from_slice::<BatchBody>(&reply.body) {
                Ok(batch) if batch.results.len() == count => return batch.results,
                // An answer cut short says nothing about its items: each is asked for again.
                _ => {
                    return (0..count)
                        .map(|_| Self { status: 503, body: Body::default(), retry_after: None })
                        .collect();
                }
            }
        }
        (0..count).map(|_| Self::of(reply)).collect()
    }

    /// What it means for a job at `stage`.
    pub(super) fn step(self, stage: Stage) -> Step {
        match (self.status, stage) {
            (200 | 201, Stage::Reserve) => match self.body.id {
                Some(id) if id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') => Step::Held(id),
                _ => Step::Failed("answer: a reserve was answered without the reservation's id".to_owned()),
            },
            (200, Stage::Consume) => {
                let Body { lines, late, replayed, .. } = self.body;
                Step::Accepted(Consumed { lines, late, replayed })
            }
            (402 | 429, Stage::Reserve) => Step::Refused,
            (401 | 403, _) => Step::Stop,
            (404, Stage::Consume) => Step::Unknown(self.reason()),
            (408 | 429 | 502 | 503 | 504, _) => Step::Again(self.wait()),
            (500.., _) => Step::Fault(self.reason()),
            _ => Step::Failed(self.reason()),
        }
    }

    fn wait(&self) -> Option<Duration> {
        self.body.retry_after_ms.map(Duration::from_millis).or(self.retry_after)
    }

    fn reason(&self) -> String {
        let code = if self.body.code.is_empty() { "answer" } else { &self.body.code };
        let mut text = format!("{} {code}: {}", self.status, self.body.detail);
        for error in &self.body.errors {
            text.push_str(&format!(" ({} {})", error.pointer, error.message));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(stage: Stage, status: u16, body: &str) -> Step {
        let reply = Reply { status, retry_after: None, body: body.to_owned().into() };
        Answer::of(&reply).step(stage)
    }

    #[test]
    fn a_reserve_leads_to_its_consume_whatever_became_of_it_before() {
        for status in ["reserved", "consumed", "expired"] {
            let body =
                format!(r#"{{"id":"0198-a","status":"{status}","lines":[{{"meter":"m","amount":"1"}}]}}"#);
            assert_eq!(step(Stage::Reserve, 200, &body), Step::Held("0198-a".into()));
        }
        assert!(matches!(step(Stage::Reserve, 201, "{}"), Step::Failed(_)));
    }

    #[test]
    fn a_consumed_job_carries_its_lines() {
        let body = r#"{"id":"x","status":"consumed","late":true,"replayed":true,
            "lines":[{"meter":"m","reserved":"6","consumed":"2","returned":"4","excess":"0"}],"limits":[{"id":"l"}]}"#;
        let line = ConsumedLine { meter: "m".into(), consumed: "2".into(), excess: "0".into() };
        let consumed = Consumed { lines: vec![line], late: true, replayed: true };
        assert_eq!(step(Stage::Consume, 200, body), Step::Accepted(consumed));
    }

    #[test]
    fn refusals_end_a_job_and_outages_do_not() {
        assert_eq!(
            step(Stage::Reserve, 429, r#"{"code":"quota_exceeded","retry_after_ms":9}"#),
            Step::Refused
        );
        assert_eq!(step(Stage::Reserve, 402, "{}"), Step::Refused);
        let wait = Some(Duration::from_millis(250));
        assert_eq!(step(Stage::Reserve, 503, r#"{"status":503,"retry_after_ms":250}"#), Step::Again(wait));
        assert_eq!(step(Stage::Consume, 503, "not json"), Step::Again(None));
        assert!(matches!(step(Stage::Consume, 500, "{}"), Step::Fault(_)));
        assert!(matches!(step(Stage::Consume, 404, "{}"), Step::Unknown(_)));
        assert_eq!(step(Stage::Consume, 401, "{}"), Step::Stop);
        let reason = r#"{"code":"validation_failed","detail":"no","errors":[{"pointer":"/tenant","message":"unknown"}]}"#;
        let failed = Step::Failed("422 validation_failed: no (/tenant unknown)".into());
        assert_eq!(step(Stage::Reserve, 422, reason), failed);
    }

    #[test]
    fn a_batch_answers_each_of_its_items() {
        let reply = |status, body: &str| Reply { status, retry_after: None, body: body.to_owned().into() };
        let good =
            r#"{"results":[{"status":201,"body":{"id":"a"}},{"status":429,"body":{"code":"rate_limited"}}]}"#;
        let steps = |reply: &Reply, count| -> Vec<Step> {
            Answer::of_batch(reply, count).into_iter().map(|answer| answer.step(Stage::Reserve)).collect()
        };
        assert_eq!(steps(&reply(200, good), 2), [Step::Held("a".into()), Step::Refused]);
        assert_eq!(steps(&reply(200, good), 3), [Step::Again(None), Step::Again(None), Step::Again(None)]);
        assert_eq!(steps(&reply(401, "{}"), 2), [Step::Stop, Step::Stop]);
    }
}
