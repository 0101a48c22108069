//! The file of a month that leaves: a line for each entry, each with a check over all lines up to it, so that a changed
//! line can be named; and the manifest beside it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ledger::LedgerError;

/// What the manifest calls its format.
pub(super) const FORMAT: &str = "tollgate entries 1";

/// The first line of a file.
pub(super) const COLUMNS: &str = "tenant,operation_id,step,line,leg,meter,period_start,credit,debit,amount,class,\
    excess,late,carried,degraded,corrected,happened_at,booked_at,operation,hour_at,subjects,chain,batch,check";

/// A check over all lines up to one.
#[derive(Default)]
pub(super) struct RunningCheck(String);

impl RunningCheck {
    /// The check of the next line.
    pub(super) fn next(&mut self, line: &str) -> &str {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes());
        hasher.update(line.as_bytes());
        self.0 = hex(&hasher.finalize().as_bytes()[..8]);
        &self.0
    }
}

/// What a month has beside its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) opening: i64,
    pub(super) month: String,
    pub(super) file: String,
    pub(super) sha256: String,
    pub(super) entries: i64,
    pub(super) kept: i64,
    pub(super) chains: Vec<ChainPlace>,
    pub(super) balances: Vec<LeftOfBalance>,
    /// The hash over all that is booked of the opening, and that of the opening before.
    pub(super) hash: String,
    pub(super) previous: String,
}

/// Which batches of a chain have entries in the file, and from which batch on the books are proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainPlace {
    pub(super) chain: i16,
    pub(super) first_batch: i64,
    pub(super) last_batch: i64,
    pub(super) opening_batch: i64,
    pub(super) opening_hash: String,
}

/// What the entries that left come to in a balance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOfBalance {
    pub(super) tenant: String,
    pub(super) meter: String,
    pub(super) period_start: String,
    pub(super) available: String,
    pub(super) reserved: String,
    pub(super) consumed: String,
}

/// A file that appears under its name once it is whole and on the disk.
pub(super) struct WholeFile<'a> {
    path: &'a Path,
    part: std::path::PathBuf,
    out: BufWriter<File>,
    sha256: Sha256,
}

impl<'a> WholeFile<'a> {
    pub(super) fn create(path: &'a Path) -> Result<Self, LedgerError> {
        let part = path.with_extension("part");
        let out = BufWriter::new(File::create(&part).map_err(|error| unwritten(&part, &error))?);
        Ok(Self { path, part, out, sha256: Sha256::new() })
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), LedgerError> {
        let part = &self.part;
        for bytes in [line.as_bytes(), b"\n"] {
            self.sha256.update(bytes);
            self.out.write_all(bytes).map_err(|error| unwritten(part, &error))?;
        }
        Ok(())
    }

    /// Puts it on the disk and in its place. Returns its SHA-256 as text.
    pub(super) fn finish(self) -> Result<String, LedgerError> {
        let Self { path, part, out, sha256 } = self;
        let done = || -> std::io::Result<()> {
            out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&part, path)?;
            // The folder too: the name must last as long as the rows.
            path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        done().map_err(|error| unwritten(path, &error))?;
        Ok(hex(&sha256.finalize()))
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> LedgerError {
    LedgerError::Refused(format!("{} cannot be written: {error}", path.display()))
}

/// Bytes as text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
