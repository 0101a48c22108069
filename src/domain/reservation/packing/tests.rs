use super::*;

/// What says which counters are quotas.
const MARKS_BYTES: usize = 5;

fn in_window(start_ms: i64, end_ms: i64) -> Parameters {
    Parameters::Calendar(calendar::Parameters { window: Window { start_ms, end_ms } })
}

fn record() -> Record {
    let meter = |name: &str, on_excess| LineRule {
        meter: MeterId::parse(name).unwrap(),
        decimals: Decimals::new(2).unwrap(),
        on_excess,
        on_late: OnLate::Reject,
        late_within_seconds: 604_800,
        estimated: name == "llm.token",
        booked: true,
    };
    let subject =
        Subject { kind: SubjectKind::parse("user").unwrap(), id: SubjectId::parse("a b/7").unwrap() };
    Record {
        head: Head {
            state: ReservationState::Reserved,
            late: false,
            degraded: true,
            step: 1,
            epoch: Epoch(3),
            expires_at_ms: 1_700_000_060_000,
            born_at_ms: 1_700_000_000_000,
            latest_expiry_ms: 1_700_086_400_000,
            last_sequence: 12,
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        },
        units: vec![
            LineUnits {
                uncharged: Units::new(9).unwrap(),
                ..LineUnits::new(Units::new(600).unwrap(), Units::new(700).unwrap())
            },
            LineUnits::new(Units::new(5).unwrap(), Units::ZERO),
        ],
        body: Body {
            fingerprint: Fingerprint([9; 16]),
            tenant: TenantId::parse("acme").unwrap(),
            lines: vec![meter("ocr.page", OnExcess::Cap), meter("llm.token", OnExcess::Record)],
            rest: Some(BodyDetails {
                subjects: vec![(subject, SubjectHash(*b"=abcdefghijkl"))],
                counters: vec![
                    CounterRef {
                        scope_index: 0,
                        is_light: false,
                        field: CounterField(*b"abcdefgh"),
                        parameters: in_window(1_699_999_200_000, 1_700_002_800_000),
                        cap: Some(PlaceCapacity::Quota),
                        lines: vec![(0, 1)],
                        is_quota: Some(true),
                    },
                    CounterRef {
                        scope_index: 1,
                        is_light: false,
                        field: CounterField(*b"ABCDEFGH"),
                        parameters: in_window(0, 0),
                        cap: None,
                        lines: vec![(0, 5), (1, 1)],
                        is_quota: Some(false),
                    },
                ],
                keyed: true,
                operation: None,
                policy_version: 17,
                period_ms: (1_698_796_800_000, 1_701_388_800_000),
                hour_start_ms: 1_699_999_200_000,
                metadata: "{\"job\":\"ü\"}".into(),
            }),
        },
    }
}

#[test]
fn a_record_reads_back_as_it_was_packed() {
    let record = record();
    assert_eq!(Record::decode(&record.encode()), Ok(record));
}

#[test]
fn a_record_of_work_that_waits_says_for_how_long_behind_its_lines() {
    let mut record = record();
    let at_once = record.encode();
    record.head.start_after_ms = 90_000;
    let waiting = record.encode();
    assert_eq!(waiting.len(), at_once.len() + 8);
    assert_eq!(waiting[48 + 24 * 2..][..8], 90_000_i64.to_le_bytes());
    assert_eq!(Record::decode(&waiting), Ok(record));
}

#[test]
fn a_record_of_a_correction_says_which_way_it_goes() {
    let mut record = record();
    for (correction, flags) in [(Correction::More, 32), (Correction::Less, 96)] {
        let other = record.encode()[3] & !96;
        record.head.correction = Some(correction);
        assert_eq!(record.encode()[3], other | flags);
        assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(&record));
    }
}

#[test]
fn a_record_that_does_not_say_which_counters_are_quotas_reads_back_without_it() {
    let mut record = record();
    let said = record.encode();
    record.body.rest.as_mut().unwrap().counters.iter_mut().for_each(|counter| counter.is_quota = None);
    assert_eq!(record.encode(), said[..said.len() - MARKS_BYTES]);
    assert_eq!(Record::decode(&record.encode()), Ok(record));
}

#[test]
fn a_record_says_which_counters_it_did_not_move_in_a_layout_of_its_own() {
    let mut record = record();
    let moved = record.encode();
    record.head.unmoved = 0b10;
    let unmoved = record.encode();
    assert_eq!((moved[0], unmoved[0], unmoved.len()), (1, 3, moved.len() + 4));
    assert_eq!(unmoved[48 + 24 * 2..][..4], [2, 0, 0, 0]);
    assert_eq!(record.head.encode(&record.units)[..], unmoved[..48 + 24 * 2 + 4]);
    assert_eq!(Record::decode(&unmoved), Ok(record));
}

#[test]
fn a_tombstone_is_a_record_cut_after_its_core() {
    let record = record();
    let mut bytes = record.encode();
    let body_at = 48 + 24 * 2;
    let core = usize::from(u16::from_le_bytes([bytes[body_at + 16], bytes[body_at + 17]]));
    bytes.truncate(body_at + core);
    let tombstone = Record::decode(&bytes).unwrap();
    assert_eq!(tombstone.body.rest, None);
    assert_eq!(tombstone.body.lines, record.body.lines);
}

#[test]
fn damaged_records_are_refused_and_never_panic() {
    let bytes = record().encode();
    for end in (0..bytes.len()).filter(|end| *end != bytes.len() - MARKS_BYTES) {
        let cut = Record::decode(&bytes[..end]);
        assert!(cut.is_err() || cut.unwrap().body.rest.is_none(), "cut at {end}");
    }
    let mut wrong = bytes;
    wrong[0] = 2;
    assert!(Record::decode(&wrong).is_err());
}

#[test]
fn a_record_says_which_lines_are_not_booked_and_which_counters_are_light_in_layout_two() {
    let mut record = record();
    record.body.lines[1].booked = false;
    let booked_counters = record.encode();
    record.body.rest.as_mut().unwrap().counters[1].is_light = true;
    let light = record.encode();
    assert_eq!((booked_counters[0], light[0]), (1, 2), "the plain path reads layout 1 only");
    for bytes in [booked_counters, light] {
        let read = Record::decode(&bytes).unwrap();
        assert_eq!(read.encode(), bytes);
        assert_eq!(read.body.booked_lines().map(|(number, _)| number).collect::<Vec<_>>(), [0]);
    }
    assert!(Record::decode(&record.encode()).unwrap().body.rest.unwrap().counters[1].is_light);
}
