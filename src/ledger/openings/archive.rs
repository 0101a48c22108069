//! Proves the file of a month that has left: against its manifest, and against what is booked of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use rust_decimal::Decimal;
use sha2::{Digest, Sha256};

use super::all;
use super::file::{COLUMNS, FORMAT, Manifest, RunningCheck, hex};
use crate::ledger::{Check, Fault, Ledger, LedgerError};

/// What the lines of a file come to in each balance: available, reserved and consumed.
type Sums = BTreeMap<[String; 3], [Decimal; 3]>;

/// Proves the file that this manifest is about, or names what is wrong: a changed line, a balance that it does not come
/// to, a manifest that is not what was booked.
///
/// Errors: a file cannot be read, or the ledger does not answer.
pub async fn check_archive(ledger: &Ledger, path: &Path) -> Result<Check, LedgerError> {
    let mut check = Check::of("the file is what left the books");
    let text = std::fs::read_to_string(path).map_err(|error| unread(path, error))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| unread(path, error))?;
    if manifest.format != FORMAT {
        return Err(unread(path, format!("its format is {}", manifest.format)));
    }
    let mut connection = ledger.connection().await?;
    let booked = all(&mut connection).await?.into_iter().find(|opening| opening.number == manifest.opening);
    let named = format!("opening {} of {}", manifest.opening, manifest.month);
    match booked {
        None => check.fault(Fault::new(&named, "is not booked")),
        Some(booked) => {
            let month = booked.month.format("%Y-%m").to_string();
            let says = (&manifest.month, &manifest.file, &manifest.sha256, manifest.entries, manifest.kept);
            let stands = (&month, &booked.file, &booked.file_sha256, booked.entries, booked.kept);
            if says != stands || manifest.hash != hex(&booked.hash) {
                check.fault(Fault::new(&named, "is booked otherwise than the manifest says"));
            }
        }
    }
    let file = path.with_file_name(&manifest.file);
    let sums = read(&file, &manifest, &mut check)?;
    compare(&manifest, &sums, &mut check);
    Ok(check)
}

/// Reads the file line by line. The first line whose check differs is named: all after it differ too.
fn read(file: &Path, manifest: &Manifest, check: &mut Check) -> Result<Sums, LedgerError> {
    let named = file.display().to_string();
    let mut reader = BufReader::new(File::open(file).map_err(|error| unread(file, error))?);
    let (mut sha256, mut running, mut sums) = (Sha256::new(), RunningCheck::default(), Sums::new());
    let (mut line, mut number, mut is_changed) = (String::new(), 0_i64, false);
    while reader.read_line(&mut line).map_err(|error| unread(file, error))? > 0 {
        sha256.update(line.as_bytes());
        let text = line.trim_end_matches('\n');
        if number == 0 {
            if text != COLUMNS {
                check.fault(Fault::new(&named, "has other columns"));
            }
        } else {
            let (entry, says) = text.rsplit_once(',').unwrap_or((text, ""));
            if running.next(entry) != says && !is_changed {
                is_changed = true;
                check.fault(Fault::new(name(entry, number), "was changed, or lines before it are missing"));
            }
            if add(entry, &mut sums).is_none() {
                check.fault(Fault::new(name(entry, number), "cannot be read"));
            }
            check.checked += 1;
        }
        number += 1;
        line.clear();
    }
    if number - 1 != manifest.entries {
        let count = format!("has {} entries where {} left the books", number - 1, manifest.entries);
        check.fault(Fault::new(&named, count));
    }
    if hex(&sha256.finalize()) != manifest.sha256 {
        check.fault(Fault::new(&named, "is not the file that was written: its SHA-256 differs"));
    }
    Ok(sums)
}

fn name(entry: &str, number: i64) -> String {
    let mut fields = entry.split(',');
    let mut next = || fields.next().unwrap_or_default();
    let (tenant, operation, step, line, leg) = (next(), next(), next(), next(), next());
    format!("entry {tenant} {operation} step {step} line {line} leg {leg} in line {}", number + 1)
}

/// Adds an entry that left to the sums; nothing where it cannot be read.
fn add(entry: &str, sums: &mut Sums) -> Option<()> {
    let fields: Vec<&str> = entry.split(',').collect();
    let field = |place: usize| fields.get(place).copied();
    if field(10)? != "usage" {
        return Some(());
    }
    let amount: Decimal = field(9)?.parse().ok()?;
    let key = [field(0)?, field(5)?, field(6)?].map(str::to_owned);
    let sum = sums.entry(key).or_default();
    for (account, figure) in ["available", "reserved", "consumed"].iter().zip(sum) {
        if field(8)? == *account {
            *figure += amount;
        } else if field(7)? == *account {
            *figure -= amount;
        }
    }
    Some(())
}

fn compare(manifest: &Manifest, sums: &Sums, check: &mut Check) {
    let says = |figures: &[Decimal; 3]| figures.map(|figure| figure.normalize().to_string());
    let mut found: BTreeMap<_, _> = sums.iter().map(|(key, figures)| (key.clone(), says(figures))).collect();
    for left in &manifest.balances {
        let key = [&left.tenant, &left.meter, &left.period_start].map(Clone::clone);
        let stands = [&left.available, &left.reserved, &left.consumed].map(Clone::clone);
        let named = format!("balance {}", key.join(" "));
        match found.remove(&key) {
            Some(follows) if follows == stands => {}
            follows => {
                let follows = follows.unwrap_or_default().join(", ");
                check.fault(Fault::new(named, format!("is {}, by the file {follows}", stands.join(", "))));
            }
        }
    }
    for (key, follows) in found {
        let named = format!("balance {}", key.join(" "));
        check.fault(Fault::new(named, format!("is nothing, by the file {}", follows.join(", "))));
    }
}

fn unread(path: &Path, why: impl std::fmt::Display) -> LedgerError {
    LedgerError::Refused(format!("{} cannot be read: {why}", path.display()))
}
