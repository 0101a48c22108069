//! One running instance: gate, ledger, writer, jobs and http over one configuration. Tests start exactly what the
//! command line starts.

use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use super::installation::Servers;
use super::instance_observer::InstanceObserver;
use super::options::Role;
use crate::clock::Clock;
use crate::domain::amount::Amount;
use crate::domain::ids::{PlanId, TenantId};
use crate::domain::limit::Percent;
use crate::gate::{DUE_BUCKET_MS, Gate, GateError, GateOptions};
use crate::http::{HeaderOptions, HttpOptions, Running};
use crate::ledger::{Ledger, LedgerOptions};
use crate::operations::{
    DecisionLogOptions, DecisionsOptions, Operations, OperationsOptions, Positions, follow_changes,
    watch_losses,
};
use crate::outbound::OutboundOptions;
use crate::settings::{Settings, UnknownTenant, WithoutLimit};
use crate::telemetry::Metrics;
use crate::writer::{FailPoints, GateOutbox, Writer, WriterOptions};
use crate::{http, jobs};

/// How long the start waits for notices of changes before it serves without them.
const HEARS_WITHIN: Duration = Duration::from_secs(2);

/// Why an instance does not start.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The gate cannot be used.
    #[error("Redis at {address}: {source}")]
    Gate {
        /// Where it is.
        address: String,
        /// Why.
        source: GateError,
    },
    /// The ledger cannot be used.
    #[error("Postgres at {address}: {source}")]
    Ledger {
        /// Where it is, with its database.
        address: String,
        /// Why.
        source: crate::ledger::LedgerError,
    },
    /// Policy, keys or epochs cannot be loaded.
    #[error("{0}")]
    Operations(#[from] crate::operations::OperationError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] http::ListenError),
    /// The ledger's schema lacks migrations of this version.
    #[error("the ledger's schema lacks {0} migrations: run `tollgate migrate` first")]
    SchemaBehind(usize),
    /// A setting cannot be used.
    #[error("{0}")]
    Settings(String),
}

impl AppError {
    pub(super) fn gate(settings: &Settings, source: GateError) -> Self {
        Self::Gate { address: Servers::of(settings).redis, source }
    }

    pub(super) fn ledger(settings: &Settings, source: crate::ledger::LedgerError) -> Self {
        Self::Ledger { address: Servers::of(settings).postgres, source }
    }

    /// What to do next, if that is known.
    pub fn remedy(&self) -> Option<String> {
        use crate::ledger::LedgerError;
        let start = |server: &str, key: &str| {
            format!("start {server}, or correct {key}; `tollgate config check` says where it was set")
        };
        match self {
            Self::Gate { source: GateError::Timeout | GateError::Unavailable(_), .. } => {
                Some(start("Redis", "redis.url"))
            }
            Self::Ledger { source: LedgerError::Unavailable(_) | LedgerError::Silent, .. } => {
                Some(start("Postgres", "postgres.url"))
            }
            Self::Listen(error) => Some(error.remedy()),
            _ => None,
        }
    }
}

/// A running instance. Dropping it ends its tasks without waiting; [`App::stop`] does it in order.
pub struct App {
    /// The verbs, for those who start an app to use it directly.
    pub operations: Arc<Operations>,
    /// The gate it uses.
    pub gate: Arc<Gate>,
    /// The ledger it uses.
    pub ledger: Ledger,
    http: Option<Running>,
    positions: Arc<Positions>,
    stop_http: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    patience: StopPatience,
    /// Rung when the writer has met repeats.
    repeated: Arc<Notify>,
    fail_points: Arc<FailPoints>,
}

/// How long each part of a stop may take.
struct StopPatience {
    /// Calls are still taken, while `/readyz` says 503.
    grace: Duration,
    /// Calls under way.
    calls: Duration,
    /// The writer's flush, and jobs in the middle of something.
    tasks: Duration,
}

impl StopPatience {
    fn of(settings: &Settings) -> Self {
        Self {
            grace: Duration::from_millis(settings.http.shutdown_grace_ms),
            calls: Duration::from_millis(settings.http.shutdown_timeout_ms) + STOP_SLACK,
            tasks: Duration::from_millis(settings.writer.flush_timeout_ms) + STOP_SLACK,
        }
    }
}

/// Time for the ending itself: closing connections, giving leases back.
const STOP_SLACK: Duration = Duration::from_millis(750);

/// The 32 bytes everything is keyed with, from the secret's text.
fn secret_bytes(settings: &Settings) -> [u8; 32] {
    blake3::derive_key("tollgate installation v1", settings.installation.secret.expose_secret().as_bytes())
}

pub(super) fn gate_options(settings: &Settings) -> GateOptions {
    GateOptions {
        url: settings.redis.url.expose_secret().to_owned(),
        connections: settings.redis.connections,
        response_timeout: Duration::from_millis(settings.redis.response_timeout_ms),
        connect_timeout: Duration::from_millis(settings.redis.connect_timeout_ms),
        concurrent_calls_max: settings.redis.concurrent_calls_max,
        partitions: settings.gate.partitions,
        due_bucket_ms: DUE_BUCKET_MS,
        tombstone_keyed_ms: milliseconds(settings.gate.tombstone_keyed_seconds.saturating_mul(1000)),
        tombstone_unkeyed_ms: milliseconds(settings.gate.tombstone_unkeyed_seconds.saturating_mul(1000)),
        anonymous_slots: settings.gate.anonymous_slots,
        allow_unsafe: settings.redis.allow_unsafe,
        secret: secret_bytes(settings),
    }
}

fn milliseconds(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn ledger_options(settings: &Settings) -> LedgerOptions {
    LedgerOptions {
        url: settings.postgres.url.expose_secret().to_owned(),
        pool_size: settings.postgres.pool_size,
        checkout_timeout: Duration::from_millis(settings.postgres.checkout_timeout_ms),
        connect_timeout: Duration::from_millis(settings.postgres.checkout_timeout_ms),
        statement_timeout: Duration::from_millis(settings.postgres.statement_timeout_ms),
        role: (!settings.postgres.role.is_empty()).then(|| settings.postgres.role.clone()),
        idempotency_horizon: Duration::from_secs(
            settings.ledger.idempotency_horizon_days.saturating_mul(86_400),
        ),
        close_grace: Duration::from_secs(settings.ledger.close_grace_seconds),
    }
}

fn operations_options(settings: &Settings) -> Result<OperationsOptions, AppError> {
    let unknown_tenant_plan = match &settings.policy.unknown_tenant {
        UnknownTenant::Refuse => None,
        UnknownTenant::Plan(plan) => Some(
            PlanId::parse(plan)
                .map_err(|error| AppError::Settings(format!("policy.unknown_tenant: {error}")))?,
        ),
    };
    Ok(OperationsOptions {
        secret: secret_bytes(settings),
        partitions: settings.gate.partitions,
        ack_timeout: Duration::from_millis(settings.ledger.ack_timeout_ms),
        restore_wait: Duration::from_millis(settings.ledger.restore_wait_ms),
        parked_calls_max: settings.ledger.parked_calls_max,
        keyed_memory_ms: milliseconds(settings.gate.tombstone_keyed_seconds.saturating_mul(1000)),
        deny_without_limit: settings.policy.without_limit == WithoutLimit::Deny,
        unknown_tenant_plan,
        backlog_events_max: settings.gate.backlog_events_max,
        backlog_events_hard_max: settings.gate.backlog_events_hard_max,
        backlog_bytes_max: settings.gate.backlog_bytes_max,
        backlog_bytes_hard_max: settings.gate.backlog_bytes_hard_max,
        prefilter: settings.gate.prefilter,
        safety_tail: Duration::from_secs(settings.writer.safety_tail_seconds),
        approval_above: Amount::from_integer(settings.adjustments.approval_above_units),
        decisions: decisions_options(settings)?,
        webhooks: OutboundOptions {
            allowed_networks: settings.webhooks.allowed_networks.clone(),
            timeout: Duration::from_millis(settings.webhooks.timeout_ms),
        },
        decision_log: DecisionLogOptions {
            refusals_per_second: settings.logs.refusals_per_second,
            admitted: Percent::new(settings.logs.admitted_percent)
                .ok_or_else(|| AppError::Settings("logs.admitted_percent: give 0 to 100".to_owned()))?,
        },
    })
}

fn decisions_options(settings: &Settings) -> Result<DecisionsOptions, AppError> {
    let wrong = |key: &str, why: &str| AppError::Settings(format!("decisions.{key}: {why}"));
    let tenants = settings.decisions.tenants.iter().map(|id| TenantId::parse(id));
    Ok(DecisionsOptions {
        sample: Percent::new(settings.decisions.sample_percent)
            .ok_or_else(|| wrong("sample_percent", "give 0 to 100"))?,
        tenants: tenants.collect::<Result<_, _>>().map_err(|error| wrong("tenants", &error.to_string()))?,
        refusals_max: settings.decisions.refusals_max,
    })
}

fn http_options(settings: &Settings, takes_calls: bool, metrics: Arc<Metrics>) -> HttpOptions {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    HttpOptions {
        listen: takes_calls.then_some(settings.http.listen),
        ops_listen: settings.http.ops_listen,
        workers: if settings.http.workers == 0 { cores } else { settings.http.workers },
        request_timeout: Duration::from_millis(settings.http.request_timeout_ms),
        body_timeout: Duration::from_millis(settings.http.request_timeout_ms),
        keep_alive: Duration::from_millis(settings.http.keep_alive_ms),
        shutdown_timeout: Duration::from_millis(settings.http.shutdown_timeout_ms),
        max_connections: settings.http.max_connections,
        trusted_proxies: settings.http.trusted_proxies.clone(),
        destructive_calls_per_minute: settings.admin.destructive_calls_per_minute,
        headers: HeaderOptions {
            rate_limit_trio: settings.http.ratelimit_headers_legacy,
            x_rate_limit_trio: settings.http.x_ratelimit_headers,
            retry_jitter_percent: settings.http.retry_jitter_percent,
        },
        observe: Arc::new(move |seen| metrics.http_request(Some(seen.route), seen.status, seen.elapsed)),
    }
}

fn reconcile_options(settings: &Settings) -> jobs::ReconcileOptions {
    let each_second = settings.reconciliation.checkpoints_per_second.max(1);
    jobs::ReconcileOptions {
        interval: Duration::from_secs(settings.reconciliation.interval_seconds),
        pause_min: Duration::from_micros(1_000_000 / each_second),
    }
}

impl App {
    /// Gate, ledger and verbs, without http, writer or jobs: what operators' commands use.
    ///
    /// Errors: a server is missing or unsafe, or holds another installation.
    pub async fn connect(settings: &Settings, clock: Clock) -> Result<Self, AppError> {
        Self::over(settings, clock, false).await
    }

    /// One that `waits_for_gate` goes on without a gate that does not answer.
    async fn over(settings: &Settings, clock: Clock, waits_for_gate: bool) -> Result<Self, AppError> {
        let metrics = Arc::new(Metrics::new());
        let of_ledger = |source| AppError::ledger(settings, source);
        let ledger = Ledger::connect(ledger_options(settings)).await.map_err(of_ledger)?;
        let pending = ledger.pending_migrations().await.map_err(of_ledger)?;
        if !pending.is_empty() {
            return Err(AppError::SchemaBehind(pending.len()));
        }
        let fingerprint = *blake3::hash(&secret_bytes(settings)).as_bytes();
        ledger.install(settings.gate.partitions, fingerprint).await.map_err(of_ledger)?;
        let gate = match waits_for_gate {
            true => Gate::connect_if_there(gate_options(settings)).await,
            false => Gate::connect(gate_options(settings)).await,
        };
        let gate = Arc::new(gate.map_err(|source| AppError::gate(settings, source))?);
        let positions = Arc::new(Positions::new(settings.gate.partitions));
        let options = operations_options(settings)?;
        let operations = Operations::start(
            gate.clone(),
            ledger.clone(),
            clock,
            metrics,
            positions.clone(),
            options,
            waits_for_gate,
        )
        .await?;
        let (stop, stop_http) = (watch::Sender::new(false), watch::Sender::new(false));
        let operations = Arc::new(operations);
        let patience = StopPatience::of(settings);
        let repeated = Arc::default();
        Ok(Self {
            operations,
            gate,
            ledger,
            http: None,
            positions,
            stop_http,
            stop,
            tasks: Vec::new(),
            patience,
            repeated,
            fail_points: Arc::default(),
        })
    }

    /// Starts an instance with the given roles; it serves when this returns, and health and metrics whatever its roles
    /// are. It starts without a Redis that does not answer: until it does, limits say what happens to work under them.
    ///
    /// Errors: Redis is unsafe, Postgres is missing or holds another installation; or a port cannot be taken.
    pub async fn start(settings: &Settings, clock: Clock, roles: &[Role]) -> Result<Self, AppError> {
        let mut app = Self::over(settings, clock, true).await?;
        let url = settings.postgres.url.expose_secret().to_owned();
        let poll_every = Duration::from_millis(settings.policy.poll_ms);
        let (connected, hears_changes) = oneshot::channel();
        app.spawn(follow_changes(app.operations.clone(), url, poll_every, connected, app.stopping()));
        app.spawn(jobs::watch_gate(app.operations.clone(), app.stopping()));
        app.spawn(jobs::recheck_memory(app.operations.clone(), app.stopping()));
        app.spawn(jobs::follow_load(app.operations.clone(), settings.load.measured, app.stopping()));
        app.operations.memory.key_filters.load_key_filters().await;
        app.spawn(app.operations.memory.key_filters.clone().follow_key_filters(app.stopping()));
        app.spawn(app.operations.estimates.clone().follow(app.stopping()));
        app.spawn(watch_losses(app.operations.memory.losses.clone(), app.stopping()));
        if roles.contains(&Role::Writer) {
            app.start_writer(settings)?;
        }
        if roles.contains(&Role::Jobs) {
            app.start_jobs(settings);
        }
        if roles.contains(&Role::Writer) || roles.contains(&Role::Jobs) {
            app.spawn(jobs::undo_repeats(app.operations.clone(), app.repeated.clone(), app.stopping()));
        }
        let takes_calls = roles.contains(&Role::Http);
        if takes_calls {
            app.spawn(jobs::write_decisions(app.operations.clone(), app.stopping()));
            app.spawn(jobs::write_violations(app.operations.clone(), app.stopping()));
            app.spawn(jobs::renew_shares(app.operations.clone(), app.stopping()));
            // A tenant that was read before would be read again by its second call. Without notices the poll must do.
            let _ = tokio::time::timeout(HEARS_WITHIN, hears_changes).await;
        }
        app.listen(settings, takes_calls).await?;
        Ok(app)
    }

    async fn listen(&mut self, settings: &Settings, takes_calls: bool) -> Result<(), AppError> {
        let options = http_options(settings, takes_calls, self.operations.metrics().clone());
        let mut stop = self.stop_http.subscribe();
        let stopping = async move {
            // An ended sender means the app is gone: that is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        self.http = Some(http::serve(self.operations.clone(), options, stopping).await?);
        Ok(())
    }

    fn start_writer(&mut self, settings: &Settings) -> Result<(), AppError> {
        let ledger = self
            .ledger
            .with_connections_of_its_own(settings.postgres.writer_pool_size)
            .map_err(|error| AppError::ledger(settings, error))?;
        let watch = InstanceObserver::new(
            self.operations.clone(),
            self.gate.clone(),
            self.positions.clone(),
            self.repeated.clone(),
        );
        let options = WriterOptions {
            owner: uuid::Uuid::now_v7().to_string(),
            batch_events: settings.writer.batch_events,
            idle_poll: Duration::from_millis(settings.writer.idle_poll_ms),
            gather: Duration::from_millis(settings.writer.gather_ms),
            gather_busy: Duration::from_millis(settings.writer.gather_busy_ms),
            safety_tail: Duration::from_secs(settings.writer.safety_tail_seconds),
            safety_tail_bytes: settings.writer.safety_tail_bytes,
            flush_timeout: Duration::from_millis(settings.writer.flush_timeout_ms),
            ..WriterOptions::default()
        };
        let writer = Writer::new(GateOutbox::new(self.gate.clone()), ledger, watch, options);
        self.fail_points = writer.fail_points();
        self.spawn(jobs::anchor_chains(self.operations.clone(), self.stopping()));
        self.spawn(writer.run(self.stopping()));
        Ok(())
    }

    /// The places where tests may stop its writer.
    pub fn writer_fail_points(&self) -> Arc<FailPoints> {
        self.fail_points.clone()
    }

    fn start_jobs(&mut self, settings: &Settings) {
        self.spawn(jobs::repair_drifts(self.operations.clone(), self.stopping()));
        if settings.reconciliation.interval_seconds > 0 {
            let (operations, ledger) = (self.operations.clone(), self.ledger.clone());
            let options = reconcile_options(settings);
            self.spawn(jobs::reconcile_tenants(operations, ledger, options, self.stopping()));
        }
        self.spawn(jobs::show_gauges(self.operations.clone(), self.ledger.clone(), self.stopping()));
        self.spawn(jobs::sweep_due(self.operations.clone(), self.ledger.clone(), self.stopping()));
        self.spawn(jobs::redeliver_parked(self.operations.clone(), self.stopping()));
        let options = jobs::JobOptions {
            idempotency_horizon_days: settings.ledger.idempotency_horizon_days,
            close_grace: Duration::from_secs(settings.ledger.close_grace_seconds),
            entries_kept_months: settings.ledger.entries_kept_months,
        };
        let running = jobs::run_jobs(self.operations.clone(), self.ledger.clone(), options, self.stopping());
        self.spawn(async move {
            if let Err(error) = running.await {
                tracing::error!(%error, "the scheduler does not run: no job does");
            }
        });
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task));
    }

    /// Resolves when the instance is asked to stop.
    fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // An ended sender means the app is gone: that is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Where calls are taken, as a URL; empty without the http role.
    pub fn url(&self) -> String {
        let address = self.http.as_ref().and_then(|http| http.address);
        address.map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Where health and metrics are served, as a URL; empty where nothing was started.
    pub fn ops_url(&self) -> String {
        self.http.as_ref().map(|http| format!("http://{}", http.ops_address)).unwrap_or_default()
    }

    /// Stops in order: unready, no new calls, calls under way to their end, then the writer books what waits, and the
    /// jobs end. Each part has its time limit, whatever hangs.
    pub async fn stop(mut self) {
        self.operations.health.begin_stop();
        self.stop_http().await;
        // Nobody may be listening any more; then there is nothing to stop.
        let _ = self.stop.send(true);
        let deadline = tokio::time::Instant::now() + self.patience.tasks;
        for mut task in self.tasks.drain(..) {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a task did not end well"),
                Err(_) => {
                    tracing::warn!(
                        "a task did not end in time and is cut off; what it had begun is safe to repeat"
                    );
                    task.abort();
                }
            }
        }
    }

    async fn stop_http(&mut self) {
        let Some(http) = self.http.take() else { return };
        // The grace is for balancers, and none sends calls to where none are taken.
        if http.address.is_some() {
            tokio::time::sleep(self.patience.grace).await;
        }
        // Nobody may be listening any more; then it has stopped.
        let _ = self.stop_http.send(true);
        match tokio::time::timeout(self.patience.calls, http.stopped()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "http did not stop well"),
            Err(_) => tracing::warn!("http did not stop in time; calls under way are cut off"),
        }
    }
}
