//! The service over HTTP, with the writer booking meanwhile: many tenants and one, single calls and batches.

use super::Options;
use super::books;
use super::calls::{check, finish, read_quota, reserve, reserve_batch, tenant_of, use_up};
use super::figures::{Figure, Figures};
use super::load::{Caller, Load};
use super::service::Service;

/// The largest batch that a call carries.
const BATCH: usize = 100;

/// Measures the service over HTTP.
pub async fn measure(options: &Options, figures: &mut Figures) {
    let service = Service::start("http,writer,jobs").await;
    warm_up(&service, options.callers, options.tenants).await;
    let measuring = Measuring { service: &service, load: options.load(), tenants: options.tenants };
    measuring.reserves(figures).await;
    measuring.jobs(figures).await;
    measuring.usage(figures).await;
    figures.add(measuring.batches().await);
    figures.add(measuring.quota_reads("service: quota read").await);
    if options.year_of_entries > 0 {
        books::fill_a_year(&service, options.year_of_entries, options.tenants).await;
        figures.add(measuring.quota_reads("service: quota read, a year of entries").await);
    }
    warm_up(&service, options.callers, options.more_tenants).await;
    let measuring = Measuring { tenants: options.more_tenants, ..measuring };
    figures.add(measuring.spread_reserves("service: reserve, 3 limits, many tenants").await);
}

struct Measuring<'a> {
    service: &'a Service,
    load: Load,
    tenants: usize,
}

impl Measuring<'_> {
    async fn spread_reserves(&self, name: &str) -> Figure {
        spread_reserves(self.service, name, self.load, self.tenants).await
    }

    async fn reserves(&self, figures: &mut Figures) {
        figures.add(self.spread_reserves("service: reserve, 3 limits").await);
        let one = Load { callers: 1, ..self.load };
        let name = "service: reserve, 3 limits, one caller";
        figures.add(spread_reserves(self.service, name, one, self.tenants).await);
        for (name, tenant) in
            [("1 limit", "one-limit"), ("16 limits", "sixteen-limits"), ("3 limits, quota", "with-quota")]
        {
            let work = move |mut caller: Caller, _| async move {
                reserve(&mut caller, tenant).await;
                caller
            };
            let name = format!("service: reserve, {name}, one tenant");
            figures.add(self.service.measure(&name, self.load, 1, work).await);
        }
        let work = |mut caller: Caller, _| async move {
            check(&mut caller, "one-limit").await;
            caller
        };
        figures.add(self.service.measure("service: check, 1 limit, one tenant", self.load, 1, work).await);
    }

    async fn jobs(&self, figures: &mut Figures) {
        for (name, ack, tenant) in [
            ("service: job (reserve + consume)", "gate", None),
            ("service: job, one hot tenant", "gate", Some("hot")),
            ("service: job, ack: ledger", "ledger", None),
        ] {
            let tenants = self.tenants;
            let work = move |mut caller: Caller, turn| async move {
                let tenant = tenant.map_or_else(|| tenant_of(turn, tenants), str::to_owned);
                let id = reserve(&mut caller, &tenant).await;
                finish(&mut caller, &id, ack).await;
                caller
            };
            figures.add(self.service.measure(name, self.load, 1, work).await);
        }
    }

    async fn usage(&self, figures: &mut Figures) {
        for (name, ack) in [("service: usage, ack: gate", "gate"), ("service: usage, ack: ledger", "ledger")]
        {
            let tenants = self.tenants;
            let work = move |mut caller: Caller, turn| async move {
                let key = format!("use-{ack}-{turn}");
                use_up(&mut caller, &tenant_of(turn, tenants), ack, &key).await;
                caller
            };
            figures.add(self.service.measure(name, self.load, 1, work).await);
        }
    }

    async fn batches(&self) -> Figure {
        let tenants = self.tenants;
        let work = move |mut caller: Caller, turn: u64| async move {
            let items = (0..BATCH as u64).map(|item| tenant_of(turn * BATCH as u64 + item, tenants));
            reserve_batch(&mut caller, turn, items).await;
            caller
        };
        let load = Load { callers: self.load.callers.min(8), ..self.load };
        self.service.measure("service: reserve, batches of 100", load, BATCH as u64, work).await
    }

    async fn quota_reads(&self, name: &str) -> Figure {
        let tenants = self.tenants;
        let work = move |mut caller: Caller, turn| async move {
            read_quota(&mut caller, &tenant_of(turn, tenants)).await;
            caller
        };
        self.service.measure(name, self.load, 1, work).await
    }
}

/// Reserves of which each is another tenant's than the last.
pub async fn spread_reserves(service: &Service, name: &str, load: Load, tenants: usize) -> Figure {
    let work = move |mut caller: Caller, turn| async move {
        reserve(&mut caller, &tenant_of(turn, tenants)).await;
        caller
    };
    service.measure(name, load, 1, work).await
}

/// Each tenant's first call makes it and tells the gate about it; a crowd of them has to wait its turn for the ledger.
pub async fn warm_up(service: &Service, callers: usize, tenants: usize) {
    eprintln!("making {tenants} tenants …");
    let making = (0..callers).map(|first| async move {
        let mut caller = service.caller();
        for number in (first..tenants).step_by(callers) {
            reserve(&mut caller, &format!("tenant-{number}")).await;
        }
    });
    futures::future::join_all(making).await;
    service.settle().await;
}
