//! A checkpoint: a snapshot of a tenant's counters at one place of the outbox, in an event that describes itself.
//!
//! Layout (little-endian, no padding): `B layout(1)  B kind(7)  i8 gate_time_ms  c16 checkpoint_id  B flags(0)`, then
//! the description, packed in Rust, and the figures, packed by the script:
//! ```text
//! description = B layout(1; 2 with a budget)  Bc0 tenant  i8 tenant_version  i8 policy_version
//!               B subject_count  per subject: Bc0 kind  Bc0 id
//!               B counter_count  per counter: Bc0 name  c8 field  B holder  Bc0 meter  B decimals  B flags
//!                                i8 window_start_ms  i8 window_end_ms  [flags & 2: B count  per operation: Bc0 id]
//!                                [flags & 8: I2 count  per meter: Bc0 id  B decimals  i8 factor]
//! figures     = per counter: i8 consumed  i8 reserved  i8 capacity  i8 next_end  B told
//! ```
//! `holder` is the scope: 0 for the tenant's counters, n for the n-th subject's. `flags & 1`: a quota; `flags & 2`:
//! only the operations listed count; `flags & 4`: it began inside its window; `flags & 8`: a budget, which has its own
//! decimals after its first meter, and then lists every meter. Instances that do not know budgets refuse layout 2.
//! `told` is 0 for a counter that was cold.

use uuid::Uuid;

use super::amount::{Decimals, UNITS_MAX};
use super::codec::{Reader, Undecodable, Write};
use super::counted_meter::CountedMeter;
use super::ids::{MeterId, OperationId, OutboxId, Subject, SubjectId, SubjectKind, TenantId};
use super::reservation::CounterField;

/// The kind of a checkpoint's event.
pub const CHECKPOINT_KIND: u8 = 7;
/// The most counters of one checkpoint.
pub const CHECKPOINT_COUNTERS_MAX: usize = 255;
/// The most subjects of one checkpoint.
pub const CHECKPOINT_SUBJECTS_MAX: usize = 64;

const LAYOUT: u8 = 1;
/// The layout of a description with a budget.
const LAYOUT_OF_BUDGETS: u8 = 2;
const QUOTA: u8 = 1;
const OPERATIONS: u8 = 2;
const NEW: u8 = 4;
const BUDGET: u8 = 8;

/// A description of a counter, with everything that comparing it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterDescription {
    /// The limit's id, or `quota:` and the meter.
    pub name: String,
    /// Its field in the state hash.
    pub field: CounterField,
    /// The subject that it counts; none for the whole tenant.
    pub subject: Option<Subject>,
    /// Its meter; of a budget, its first.
    pub meter: MeterId,
    /// The meter's decimals, or the budget's own.
    pub decimals: Decimals,
    /// Of a budget: every meter that it counts. None where it counts its meter alone.
    pub budgeted: Option<Vec<CountedMeter>>,
    /// The operations that count; none for all.
    pub operations: Option<Vec<OperationId>>,
    /// Whether it is a quota, which the books keep by period.
    pub is_quota: bool,
    /// Whether it began inside its window, so that reservations which do not name it count in it too.
    pub is_new: bool,
    /// Its window's start and end (unix ms).
    pub window_ms: (i64, i64),
}

impl CounterDescription {
    /// Every meter that it counts.
    pub fn counted_meters(&self) -> Vec<CountedMeter> {
        CountedMeter::all(self.budgeted.as_deref(), &self.meter, self.decimals)
    }
}

/// A checkpoint without its figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its tenant.
    pub tenant: TenantId,
    /// The version of the tenant's definition by which the counters were described.
    pub tenant_version: u64,
    /// The version of the policy by which they were described.
    pub policy_version: u64,
    /// The counters.
    pub counters: Vec<CounterDescription>,
}

/// Two figures of one counter, in units; a damaged counter of the gate may show any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Consumed in the window.
    pub consumed: i64,
    /// Held in the window.
    pub reserved: i64,
}

/// A checkpoint from the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its id.
    pub id: Uuid,
    /// Its place in the outbox.
    pub outbox_id: OutboxId,
    /// When it was taken (gate time, unix ms).
    pub gate_time_ms: i64,
    /// The counters that it compares.
    pub description: Description,
    /// The figures of each counter; none where it was cold.
    pub figures: Vec<Option<Figures>>,
}

/// A counter that differs from the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The counter.
    pub counter: CounterDescription,
    /// Its figures at the gate.
    pub gate: Figures,
    /// Its figures in the books, as of the same place.
    pub books: Figures,
}

impl Difference {
    /// What must be added to the gate's figures, consumed and reserved.
    pub fn delta(&self) -> (i64, i64) {
        let Self { gate, books, .. } = self;
        (books.consumed.saturating_sub(gate.consumed), books.reserved.saturating_sub(gate.reserved))
    }

    /// Whether repairing it would lower a figure of the gate.
    pub fn lowers(&self) -> bool {
        let (consumed, reserved) = self.delta();
        consumed < 0 || reserved < 0
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconciliationState {
    /// Every counter equals the books.
    Clean,
    /// Counters differ, and wait for repair.
    Drift,
    /// Counters differed and were repaired.
    Repaired,
    /// It could not be decided, or a difference must not be repaired.
    Refused,
}

impl ReconciliationState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Clean, Self::Drift, Self::Repaired, Self::Refused];

    /// The word of the table and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Drift => "drift",
            Self::Repaired => "repaired",
            Self::Refused => "refused",
        }
    }
}

/// Whether an outbox entry is a checkpoint, even one that cannot be decoded further than its kind.
pub fn is_checkpoint(event: &[u8]) -> bool {
    event.get(1) == Some(&CHECKPOINT_KIND)
}

impl Description {
    /// The subjects of its counters, each once, in the order of the scopes 1, 2, ….
    pub fn subjects(&self) -> Vec<&Subject> {
        let mut subjects = Vec::new();
        for subject in self.counters.iter().filter_map(|counter| counter.subject.as_ref()) {
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        subjects
    }

    /// The scope of a counter: 0 is the tenant, n the n-th of [`Self::subjects`].
    pub fn holder(subjects: &[&Subject], counter: &CounterDescription) -> u8 {
        let place = counter.subject.as_ref().and_then(|subject| subjects.iter().position(|s| *s == subject));
        place.map_or(0, |index| u8::try_from(index + 1).unwrap_or(u8::MAX))
    }

    /// Packs it for the event. Counters and subjects must be within their maxima.
    pub fn encode(&self) -> Vec<u8> {
        let count = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        let subjects = self.subjects();
        let mut out = Vec::with_capacity(64 + 96 * self.counters.len());
        let has_budget = self.counters.iter().any(|counter| counter.budgeted.is_some());
        out.put_byte(if has_budget { LAYOUT_OF_BUDGETS } else { LAYOUT });
        out.put_text(self.tenant.as_str());
        out.put_8(i64::try_from(self.tenant_version).unwrap_or(i64::MAX));
        out.put_8(i64::try_from(self.policy_version).unwrap_or(i64::MAX));
        out.put_byte(count(subjects.len()));
        for subject in &subjects {
            out.put_text(subject.kind.as_str());
            out.put_text(subject.id.as_str());
        }
        out.put_byte(count(self.counters.len()));
        for counter in &self.counters {
            out.put_text(&counter.name);
            out.extend_from_slice(&counter.field.0);
            out.put_byte(Self::holder(&subjects, counter));
            out.put_text(counter.meter.as_str());
            out.put_byte(counter.decimals.count());
            let listed = if counter.operations.is_some() { OPERATIONS } else { 0 };
            let new = if counter.is_new { NEW } else { 0 };
            let budget = if counter.budgeted.is_some() { BUDGET } else { 0 };
            out.put_byte(listed | new | budget | if counter.is_quota { QUOTA } else { 0 });
            out.put_8(counter.window_ms.0);
            out.put_8(counter.window_ms.1);
            if let Some(operations) = &counter.operations {
                out.put_byte(count(operations.len()));
                operations.iter().for_each(|operation| out.put_text(operation.as_str()));
            }
            if let Some(meters) = &counter.budgeted {
                encode_budget(meters, &mut out);
            }
        }
        out
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        if !matches!(reader.u8()?, LAYOUT | LAYOUT_OF_BUDGETS) {
            return Err(Undecodable("checkpoint layout"));
        }
        let tenant = TenantId::parse(reader.text()?).map_err(|_| Undecodable("tenant"))?;
        let (tenant_version, policy_version) = (reader.u64()?, reader.u64()?);
        let subject_count = reader.u8()?;
        let subjects = (0..subject_count).map(|_| decode_subject(reader)).collect::<Result<Vec<_>, _>>()?;
        let counter_count = reader.u8()?;
        let counters =
            (0..counter_count).map(|_| decode_counter(reader, &subjects)).collect::<Result<_, _>>()?;
        Ok(Self { tenant, tenant_version, policy_version, counters })
    }
}

fn encode_budget(meters: &[CountedMeter], out: &mut Vec<u8>) {
    out.put_2(u16::try_from(meters.len()).unwrap_or(u16::MAX));
    for counted in meters {
        out.put_text(counted.meter.as_str());
        out.put_byte(counted.decimals.count());
        out.put_8(counted.factor);
    }
}

fn decode_budget(reader: &mut Reader<'_>) -> Result<Vec<CountedMeter>, Undecodable> {
    let count = reader.u16()?;
    let next = |_| {
        let meter = MeterId::parse(reader.text()?).map_err(|_| Undecodable("meter"))?;
        let decimals = Decimals::new(reader.u8()?).ok_or(Undecodable("decimals"))?;
        let factor = reader.i64()?;
        if !(1..=UNITS_MAX).contains(&factor) {
            return Err(Undecodable("a factor"));
        }
        Ok(CountedMeter { meter, decimals, factor })
    };
    (0..count).map(next).collect()
}

fn decode_subject(reader: &mut Reader<'_>) -> Result<Subject, Undecodable> {
    let kind = SubjectKind::parse(reader.text()?).map_err(|_| Undecodable("subject kind"))?;
    let id = SubjectId::parse(reader.text()?).map_err(|_| Undecodable("subject id"))?;
    Ok(Subject { kind, id })
}

fn decode_counter(reader: &mut Reader<'_>, subjects: &[Subject]) -> Result<CounterDescription, Undecodable> {
    let name = reader.text()?.to_owned();
    let field = CounterField(reader.array()?);
    let subject = match usize::from(reader.u8()?).checked_sub(1) {
        None => None,
        Some(index) => Some(subjects.get(index).ok_or(Undecodable("a counter's holder"))?.clone()),
    };
    let meter = MeterId::parse(reader.text()?).map_err(|_| Undecodable("meter"))?;
    let decimals = Decimals::new(reader.u8()?).ok_or(Undecodable("decimals"))?;
    let flags = reader.u8()?;
    let window_ms = (reader.i64()?, reader.i64()?);
    let operations = if flags & OPERATIONS == 0 {
        None
    } else {
        let count = reader.u8()?;
        let next = |_| OperationId::parse(reader.text()?).map_err(|_| Undecodable("operation"));
        Some((0..count).map(next).collect::<Result<_, _>>()?)
    };
    let budgeted = if flags & BUDGET == 0 { None } else { Some(decode_budget(reader)?) };
    let (is_quota, is_new) = (flags & QUOTA != 0, flags & NEW != 0);
    Ok(CounterDescription {
        name,
        field,
        subject,
        meter,
        decimals,
        budgeted,
        operations,
        is_quota,
        is_new,
        window_ms,
    })
}

impl Checkpoint {
    /// Decodes a checkpoint from its outbox entry.
    pub fn decode(outbox_id: OutboxId, bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != LAYOUT || reader.u8()? != CHECKPOINT_KIND {
            return Err(Undecodable("event layout"));
        }
        let gate_time_ms = reader.i64()?;
        let id = Uuid::from_bytes(reader.array()?);
        reader.u8()?;
        let description = Description::decode(&mut reader)?;
        let figures =
            description.counters.iter().map(|_| decode_figures(&mut reader)).collect::<Result<_, _>>()?;
        if !reader.rest().is_empty() {
            return Err(Undecodable("more figures than counters"));
        }
        Ok(Self { id, outbox_id, gate_time_ms, description, figures })
    }

    /// The counters with figures: those that were warm.
    pub fn with_figures(&self) -> impl Iterator<Item = (&CounterDescription, Figures)> {
        let counters = self.description.counters.iter().zip(&self.figures);
        counters.filter_map(|(counter, figures)| Some((counter, (*figures)?)))
    }

    /// The differences from the `books`, which are given for each counter with figures, in order.
    pub fn differences(&self, books: &[Figures]) -> Vec<Difference> {
        let pairs = self.with_figures().zip(books).filter(|((_, gate), books)| gate != *books);
        pairs
            .map(|((counter, gate), books)| Difference { counter: counter.clone(), gate, books: *books })
            .collect()
    }
}

fn decode_figures(reader: &mut Reader<'_>) -> Result<Option<Figures>, Undecodable> {
    let figures = Figures { consumed: reader.i64()?, reserved: reader.i64()? };
    let (_capacity, _next_end) = (reader.i64()?, reader.i64()?);
    Ok((reader.u8()? == 1).then_some(figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        let user = |id: &str| Subject {
            kind: SubjectKind::parse("user").unwrap(),
            id: SubjectId::parse(id).unwrap(),
        };
        let counter = |name: &str, subject| CounterDescription {
            name: name.into(),
            field: CounterField(*b"abcdefgh"),
            subject,
            meter: MeterId::parse("ocr.page").unwrap(),
            decimals: Decimals::new(2).unwrap(),
            budgeted: None,
            operations: None,
            is_quota: name.starts_with("quota:"),
            is_new: name == "day",
            window_ms: (1_000, 2_000),
        };
        let mut filtered = counter("hour", Some(user("ada")));
        filtered.operations = Some(vec![OperationId::parse("ocr.submit").unwrap()]);
        Description {
            tenant: TenantId::parse("acme").unwrap(),
            tenant_version: 3,
            policy_version: 17,
            counters: vec![
                counter("quota:ocr.page", None),
                counter("day", Some(user("ben"))),
                filtered,
                counter("week", Some(user("ben"))),
            ],
        }
    }

    /// The same with its last counter over two meters of other decimals.
    fn with_budget() -> Description {
        let counted = |meter: &str, decimals, factor| CountedMeter {
            meter: MeterId::parse(meter).unwrap(),
            decimals: Decimals::new(decimals).unwrap(),
            factor,
        };
        let mut description = description();
        let meters = vec![counted("llm.token", 0, 3), counted("ocr.page", 6, 100_000_000)];
        description.counters[3].budgeted = Some(meters);
        description
    }

    fn event(description: &Description, figures: &[(i64, i64, u8)]) -> Vec<u8> {
        let mut out = vec![1, CHECKPOINT_KIND];
        out.put_8(1_500);
        out.extend_from_slice(&[7; 16]);
        out.put_byte(0);
        out.extend_from_slice(&description.encode());
        for (consumed, reserved, told) in figures {
            for number in [*consumed, *reserved, -1, 0] {
                out.put_8(number);
            }
            out.put_byte(*told);
        }
        out
    }

    const FIGURES: [(i64, i64, u8); 4] = [(5, 1, 1), (0, 0, 0), (9, 0, 1), (2, 2, 1)];

    #[test]
    fn a_checkpoint_reads_back_as_it_was_told_and_names_what_differs() {
        let place: OutboxId = "2-9".parse().unwrap();
        let told = event(&description(), &FIGURES);
        assert!(is_checkpoint(&told));
        let checkpoint = Checkpoint::decode(place, &told).unwrap();
        assert_eq!(checkpoint.description, description());
        assert_eq!((checkpoint.id, checkpoint.outbox_id), (Uuid::from_bytes([7; 16]), place));
        let books = [(5, 1), (9, 0), (4, 1)].map(|(consumed, reserved)| Figures { consumed, reserved });
        let differences = checkpoint.differences(&books);
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].counter.name, "week");
        assert_eq!((differences[0].delta(), differences[0].lowers()), ((2, -1), true));
    }

    #[test]
    fn a_damaged_checkpoint_is_refused_and_never_panics() {
        for description in [description(), with_budget()] {
            let whole = event(&description, &FIGURES);
            for end in 0..whole.len() {
                assert!(Checkpoint::decode(OutboxId::default(), &whole[..end]).is_err(), "cut at {end}");
            }
            let longer = [whole.as_slice(), &[0]].concat();
            assert!(Checkpoint::decode(OutboxId::default(), &longer).is_err());
        }
    }

    #[test]
    fn a_description_without_a_budget_has_the_bytes_that_versions_without_budgets_write_and_read() {
        let mut one = description();
        one.counters = vec![CounterDescription { is_new: true, ..one.counters.remove(2) }];
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
        let numbers = |numbers: [i64; 2]| numbers.map(i64::to_le_bytes).concat();
        let written = [
            vec![1],
            text("acme"),
            numbers([3, 17]),
            vec![1],
            text("user"),
            text("ada"),
            vec![1],
            text("hour"),
            b"abcdefgh".to_vec(),
            vec![1],
            text("ocr.page"),
            vec![2, 2 | 4],
            numbers([1_000, 2_000]),
            vec![1],
            text("ocr.submit"),
        ];
        let written = written.concat();
        assert_eq!(one.encode(), written);
        assert_eq!(Description::decode(&mut Reader::new(&written)).unwrap(), one);
    }

    #[test]
    fn a_budget_reads_back_with_all_its_meters_in_a_layout_of_its_own() {
        let packed = with_budget().encode();
        assert_eq!((packed[0], description().encode()[0]), (LAYOUT_OF_BUDGETS, LAYOUT));
        let figures = event(&with_budget(), &FIGURES);
        let read = Checkpoint::decode(OutboxId::default(), &figures).unwrap().description;
        assert_eq!(read, with_budget());
        assert_eq!(read.counters[3].counted_meters().len(), 2);
        let alone = CountedMeter {
            meter: MeterId::parse("ocr.page").unwrap(),
            decimals: Decimals::new(2).unwrap(),
            factor: 1,
        };
        assert_eq!(read.counters[1].counted_meters(), [alone]);
        let mut without = with_budget();
        without.counters[3].budgeted.as_mut().unwrap()[0].factor = 0;
        assert!(Checkpoint::decode(OutboxId::default(), &event(&without, &FIGURES)).is_err());
    }
}
