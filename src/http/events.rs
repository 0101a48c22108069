//! `/v1/events`: usage after the fact, as CloudEvents.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, post, web};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::answer::json;
use super::auth::Caller;
use super::bodies::{LineBodies, LineBody, Metadata, ReserveBody, Sent};
use super::body::{BATCH_BYTES_MAX, check_coding, read_text};
use super::cloud_event::{self, CloudEvent, ContentMode, SentEvent};
use super::envelope::RequestId;
use super::problem::{Problem, ProblemDocument, cut};
use super::query::Query;
use super::reservations::Call;
use super::state::State;
use crate::domain::amount::Amount;
use crate::domain::ids::{IdempotencyKey, MeterId, OperationId, SubjectId, SubjectKind, TenantId};
use crate::operations::FieldError;
use crate::operations::answers::Recorded;
use crate::operations::requests::ReserveRequest;

/// The type of an event that names amounts and no operation.
const USAGE: &str = "tollgate.usage";
/// The most events of one batch.
const EVENTS_MAX: usize = 1_000;
/// How many events of one batch are recorded at once.
const CONCURRENT_MAX: usize = 32;

/// What was used, and by whom: `attributes` of the operation that is the event's type, or `lines`, or `meter` with
/// `amount`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EventData {
    /// Whose units; a key bound to a tenant may leave it out.
    #[schema(value_type = Option<TenantId>)]
    tenant: Option<TenantId>,
    /// Short for `subjects` with the kind `user`.
    #[schema(value_type = Option<SubjectId>)]
    subject: Option<SubjectId>,
    /// Who acted, by kind: at most four.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    subjects: Option<BTreeMap<SubjectKind, SubjectId>>,
    /// What the operation's cost rule needs: integers, decimal strings, booleans, texts.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Map<String, Value>>,
    /// One to eight amounts, each meter once.
    #[schema(value_type = Option<Vec<LineBody>>, min_items = 1, max_items = 8)]
    lines: LineBodies,
    /// Short for one line, with `amount`.
    #[schema(value_type = Option<MeterId>)]
    meter: Option<MeterId>,
    /// Short for one line, with `meter`.
    #[schema(value_type = Option<Amount>)]
    amount: Option<Amount>,
    /// The caller's own notes: at most 50 keys and 8 KB; numbers that a double holds exactly as written.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Metadata>,
}

/// A CloudEvent 1.0. Extension attributes are read and left out.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageEvent)]
#[allow(dead_code, reason = "only its schema is used: events are read attribute by attribute")]
struct EventBody {
    /// `1.0`.
    #[schema(example = "1.0", pattern = "^1\\.0$")]
    specversion: String,
    /// With `source`, what makes the event one: sent again, it is a duplicate.
    #[schema(min_length = 1, max_length = 1024, example = "page-7")]
    id: String,
    /// Where it comes from, a URI reference.
    #[schema(min_length = 1, example = "/ocr/worker-3")]
    source: String,
    /// The operation, or `tollgate.usage` for amounts without one.
    #[serde(rename = "type")]
    #[schema(min_length = 1, example = "tollgate.usage")]
    kind: String,
    /// When the work was done: at most 35 days ago, and at most five minutes ahead; now if absent.
    #[schema(format = DateTime)]
    time: Option<String>,
    /// JSON, if it is named.
    datacontenttype: Option<String>,
    #[schema(value_type = EventData)]
    data: Value,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum EventStatus {
    /// It is recorded.
    Accepted,
    /// It was recorded before.
    Duplicate,
    /// It is not recorded; the problem says why.
    Rejected,
}

/// The outcome of one event.
#[derive(Debug, Serialize, ToSchema)]
struct EventResult {
    /// The event's id, if it has one.
    id: Option<String>,
    status: EventStatus,
    /// Of a rejected event: pointers start at the event. With the status 503 send it again, as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ProblemDocument>)]
    problem: Option<Box<RawValue>>,
}

/// The outcomes, in the order of the events.
#[derive(Debug, Serialize, ToSchema)]
struct EventsAnswer {
    results: Vec<EventResult>,
}

/// An event with its id, ready to be recorded, or why it is not.
struct Parsed {
    id: Option<String>,
    request: Result<(ReserveRequest, Sent), Problem>,
}

impl Parsed {
    fn new(caller: &Caller, event: SentEvent<'_>) -> Self {
        let id = event.id().map(|id| cut(id.to_owned()));
        Self { id, request: event.read().and_then(|event| request_of(caller, event)) }
    }

    /// What makes it the same event as another; none of what is not recorded.
    fn target(&self) -> Option<(TenantId, Option<IdempotencyKey>)> {
        let (request, _) = self.request.as_ref().ok()?;
        Some((request.tenant.clone(), request.key.clone()))
    }
}

/// What an event asks for, and how it named amounts.
fn request_of(caller: &Caller, event: CloudEvent<'_>) -> Result<(ReserveRequest, Sent), Problem> {
    let data: EventData = cloud_event::typed_data(event.data)?;
    let tenant = caller.tenant(data.tenant)?;
    let operation = match event.kind.as_str() {
        USAGE => None,
        kind => Some(OperationId::parse(kind).map_err(|error| {
            let message = format!("an operation's id {error}; without an operation it is {USAGE}");
            Problem::fields(vec![FieldError::new("/type", message)])
        })?),
    };
    if operation.is_none() && data.lines.is_none() && data.meter.is_none() && data.amount.is_none() {
        let message = format!("name the amounts: `lines`, or `meter` with `amount`, as the type is {USAGE}");
        return Err(Problem::fields(vec![FieldError::new("/data", message)]));
    }
    let body = ReserveBody {
        subject: data.subject,
        subjects: data.subjects,
        operation,
        attributes: data.attributes,
        lines: data.lines,
        meter: data.meter,
        amount: data.amount,
        metadata: data.metadata,
        ..ReserveBody::default()
    };
    let sent = body.sent();
    let key = IdempotencyKey::of_event(&event.source, &event.id);
    let request = body.into_request(tenant, Some(key)).map_err(in_event)?;
    Ok((ReserveRequest { happened_at_ms: event.time_ms, ..request }, sent))
}

/// Makes the pointers of a usage's errors start at the event.
fn in_event(problem: Problem) -> Problem {
    problem.map_pointers(|pointer| match pointer {
        "/time" => None,
        "/operation" => Some("/type".to_owned()),
        _ => Some(format!("/data{pointer}")),
    })
}

/// Records events, those with one key one after the other. Outcomes come in the order of the events.
async fn record(call: Arc<Call>, events: Vec<Parsed>, request_id: Arc<str>) -> Vec<EventResult> {
    let mut groups: Vec<Vec<(usize, Parsed)>> = Vec::new();
    let mut group_of = HashMap::new();
    for (index, event) in events.into_iter().enumerate() {
        let new = groups.len();
        let group = event.target().map_or(new, |target| *group_of.entry(target).or_insert(new));
        match groups.get_mut(group) {
            Some(group) => group.push((index, event)),
            None => groups.push(vec![(index, event)]),
        }
    }
    let mut results: Vec<(usize, EventResult)> = futures::stream::iter(groups)
        // Boxed: a call's future is large, and would be copied at each move.
        .map(|group| Box::pin(record_group(call.clone(), group, request_id.clone())))
        .buffer_unordered(CONCURRENT_MAX)
        .concat()
        .await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

async fn record_group(
    call: Arc<Call>,
    group: Vec<(usize, Parsed)>,
    request_id: Arc<str>,
) -> Vec<(usize, EventResult)> {
    let mut results = Vec::with_capacity(group.len());
    for (index, Parsed { id, request }) in group {
        let recorded = match request {
            Ok((request, sent)) => call.record_event(request, sent).await,
            Err(problem) => Err(problem),
        };
        let (status, problem) = match recorded {
            Ok(Recorded::Now) => (EventStatus::Accepted, None),
            Ok(Recorded::Before) => (EventStatus::Duplicate, None),
            Err(problem) => (EventStatus::Rejected, problem_text(&problem, &request_id)),
        };
        results.push((index, EventResult { id, status, problem }));
    }
    results
}

fn problem_text(problem: &Problem, request_id: &str) -> Option<Box<RawValue>> {
    let text = String::from_utf8(problem.to_json(request_id)).ok()?;
    RawValue::from_string(text).ok()
}

impl Call {
    async fn record_event(&self, request: ReserveRequest, sent: Sent) -> Result<Recorded, Problem> {
        let recorded = self.operations.calls.record_event(request).await;
        recorded.map_err(|error| in_event(sent.name(error.into())))
    }
}

/// The body of a call with its mode, which is looked at first.
struct EventsText(ContentMode, String);

impl FromRequest for EventsText {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mode = ContentMode::of(request.headers())
            .and_then(|mode| check_coding(request.headers()).map(|()| mode))
            .and_then(|mode| Query::of(request)?.finish().map(|()| mode));
        let text = read_text::<BATCH_BYTES_MAX>(request, payload);
        Box::pin(async move { Ok(Self(mode?, text.await?)) })
    }
}

/// Record usage after the fact, as CloudEvents.
///
/// Structured (`application/cloudevents+json`), batch (`application/cloudevents-batch+json`, up to 1,000 events) or
/// binary (`application/json` with the headers `ce-specversion`, `ce-id`, `ce-source`, `ce-type`, `ce-time`). Each
/// event stands alone and is recorded once by tenant, source and id, in the hour and the period of its `time`. No limit
/// and no quota refuses it; it counts in those whose window is still the one of its time.
#[utoipa::path(
    tag = "gate",
    request_body(
        content(
            (EventBody = "application/cloudevents+json", example = json!({
                "specversion": "1.0", "id": "page-7", "source": "/ocr/worker-3", "type": "tollgate.usage",
                "data": { "tenant": "acme", "meter": "ocr.page", "amount": "2" }
            })),
            (Vec<EventBody> = "application/cloudevents-batch+json"),
            (EventData = "application/json"),
        )
    ),
    responses((status = 202, description = "What each event came to.", body = EventsAnswer))
)]
#[post("/v1/events")]
pub(super) async fn record_events(
    state: web::Data<State>,
    caller: Caller,
    request: HttpRequest,
    body: EventsText,
) -> Result<HttpResponse, Problem> {
    let EventsText(mode, text) = body;
    let sent = match mode {
        ContentMode::Structured => vec![SentEvent::structured(&text)],
        ContentMode::Binary => vec![SentEvent::binary(request.headers(), &text)],
        ContentMode::Batch => {
            let events = cloud_event::batch(&text)?;
            if events.len() > EVENTS_MAX {
                let message = format!("must be at most {EVENTS_MAX} events");
                return Err(Problem::fields(vec![FieldError::new("", message)]));
            }
            events.into_iter().map(|event| SentEvent::structured(event.get())).collect()
        }
    };
    let parsed = sent.into_iter().map(|sent| Parsed::new(&caller, sent)).collect();
    let request_id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let call = Arc::new(Call::new(&state, caller));
    let results = state.mutate(Box::pin(record(call, parsed, request_id.into()))).await?;
    json(HttpResponse::Accepted(), &EventsAnswer { results })
}
