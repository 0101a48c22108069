//! Merges the sources of settings, key by key, and keeps each value's origin.

use std::{collections::BTreeMap, fmt, io, path::Path};

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::Settings;
use crate::domain::field_error::in_plain_words;

/// Every key, with its default.
const BASE: &str = include_str!("../../config/base.toml");
/// The prefix of a variable's name; `__` separates section and key.
pub(super) const ENVIRONMENT_PREFIX: &str = "TOLLGATE__";
/// Keys whose values are never shown. Each may instead name a file, in the key with this suffix.
pub(super) const SECRETS: [&str; 3] = ["redis.url", "postgres.url", "installation.secret"];
const FILE_SUFFIX: &str = "_file";

/// All sources of settings.
#[derive(Clone)]
pub struct Inputs<'a> {
    /// The name and text of the file given by `--config`.
    pub file: Option<(String, String)>,
    /// Variables; those that do not begin with `TOLLGATE__` are passed over.
    pub environment: Vec<(String, String)>,
    /// Values of the command line, as (key, value).
    pub command_line: Vec<(String, String)>,
    /// Reads the file that a `…_file` key names.
    pub read_secret: &'a dyn Fn(&Path) -> io::Result<String>,
}

/// Why settings were refused: every problem found, a line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SettingsError {
    /// At least one.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `http.listen`, or the source if it could not be read at all.
    pub key: String,
    /// What is wrong and what to do about it.
    pub message: String,
    /// The file in which it was found.
    pub file: Option<String>,
    /// The line of that file, from 1.
    pub line: Option<usize>,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.key, self.message)
    }
}

impl Problem {
    /// A problem with `key`, whose value came from `origin`.
    pub(super) fn at(key: &str, message: impl Into<String>, origin: &Origin) -> Self {
        let (file, line) = match origin {
            Origin::File { name, line } => (Some(name.clone()), *line),
            _ => (None, None),
        };
        Self { key: key.to_owned(), message: message.into(), file, line }
    }

    /// A problem without a file.
    pub(super) fn new(key: &str, message: impl Into<String>) -> Self {
        Self { key: key.to_owned(), message: message.into(), file: None, line: None }
    }
}

impl SettingsError {
    pub(super) fn one(key: &str, message: impl Into<String>) -> Self {
        Self { problems: vec![Problem::new(key, message)] }
    }

    pub(super) fn file(name: &str, error: &io::Error) -> Self {
        let message = format!("the file of --config could not be read: {error}");
        let origin = Origin::File { name: name.to_owned(), line: None };
        Self { problems: vec![Problem::at(name, message, &origin)] }
    }

    pub(super) fn not_text(variable: &str) -> Self {
        Self::one(variable, "the variable is not UTF-8 text: set it again")
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File { name: String, line: Option<usize> },
    Variable(String),
    CommandLine,
    SecretFile(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("the default"),
            Self::File { name, line: Some(line) } => write!(formatter, "{name}:{line}"),
            Self::File { name, .. } | Self::Variable(name) | Self::SecretFile(name) => {
                formatter.write_str(name)
            }
            Self::CommandLine => formatter.write_str("the command line"),
        }
    }
}

/// The value of every key, with where it came from.
#[derive(Clone, Default)]
pub(super) struct Effective(BTreeMap<String, (Value, Origin)>);

impl fmt::Debug for Effective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render())
    }
}

impl Effective {
    /// Merges the sources in order; refuses keys that the base does not have and values of another type.
    pub(super) fn gather(inputs: &Inputs<'_>) -> Result<Self, SettingsError> {
        let mut effective = Self::default();
        for (key, value) in flattened(parsed("config/base.toml", BASE)?) {
            effective.0.insert(key, (value, Origin::Default));
        }
        let mut problems = Vec::new();
        if let Some((name, text)) = &inputs.file {
            let lines = lines_of_keys(text);
            for (key, value) in flattened(parsed(name, text)?) {
                let origin = Origin::File { name: name.clone(), line: lines.get(&key).copied() };
                problems.extend(effective.set(&key, Given::Typed(value), origin));
            }
        }
        for (name, value) in &inputs.environment {
            let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
            let key = rest.to_ascii_lowercase().replace("__", ".");
            problems.extend(effective.set(&key, Given::Text(value), Origin::Variable(name.clone())));
        }
        for (key, value) in &inputs.command_line {
            problems.extend(effective.set(key, Given::Text(value), Origin::CommandLine));
        }
        for key in SECRETS {
            problems.extend(effective.read_secret(key, inputs.read_secret));
        }
        if problems.is_empty() { Ok(effective) } else { Err(SettingsError { problems }) }
    }

    /// Turns the values into the typed settings.
    pub(super) fn parse(&self) -> Result<Settings, SettingsError> {
        let mut table = Table::new();
        for (key, (value, _)) in self.0.iter().filter(|(key, _)| !names_file(key)) {
            match key.split_once('.') {
                None => drop(table.insert(key.clone(), value.clone())),
                Some((section, name)) => {
                    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
                    if let Value::Table(section) = section {
                        section.insert(name.to_owned(), value.clone());
                    }
                }
            }
        }
        serde_path_to_error::deserialize(table).map_err(|error| {
            let key = error.path().to_string();
            let text = error.inner().to_string();
            let message = in_plain_words(text.lines().next().unwrap_or_default());
            SettingsError { problems: vec![self.problem(&key, &message)] }
        })
    }

    /// A problem with the value of `key`; says where that came from.
    pub(super) fn problem(&self, key: &str, message: &str) -> Problem {
        match self.0.get(key) {
            Some((_, origin)) => Problem::at(key, format!("{message} (from {origin})"), origin),
            None => Problem::new(key, message),
        }
    }

    /// Every key with its value, secrets hidden, and where it came from; keys without a section first.
    pub(super) fn rows(&self) -> Vec<(String, Value, String)> {
        let shown = |key: &String, value: &Value| {
            if SECRETS.contains(&key.as_str()) { hidden(value) } else { value.clone() }
        };
        let row = |(key, (value, origin)): (&String, &(Value, Origin))| {
            (key.clone(), shown(key, value), origin.to_string())
        };
        let (inner, outer): (Vec<_>, Vec<_>) = self.0.iter().partition(|(key, _)| key.contains('.'));
        outer.into_iter().chain(inner).map(row).collect()
    }

    /// The secret `key`, or the key of its file, with where it was set; `None` if nothing but the default is known.
    pub(super) fn named_by(&self, key: &str) -> Option<String> {
        let file_key = format!("{key}{FILE_SUFFIX}");
        [file_key.as_str(), key].into_iter().find_map(|key| {
            let (value, origin) = self.0.get(key)?;
            let is_named = *origin != Origin::Default && value.as_str() != Some("");
            is_named.then(|| format!("{key} (from {origin})"))
        })
    }

    /// The values as TOML, secrets hidden, with where each one came from that is not the default.
    pub(super) fn render(&self) -> String {
        let default = Origin::Default.to_string();
        let mut text = String::new();
        let mut section = "";
        let rows = self.rows();
        for (key, value, origin) in &rows {
            let (of, name) = key.split_once('.').unwrap_or(("", key));
            if of != section {
                section = of;
                text.push_str(&format!("\n[{section}]\n"));
            }
            text.push_str(&format!("{name} = {value}"));
            if *origin != default {
                text.push_str(&format!("  # from {origin}"));
            }
            text.push('\n');
        }
        text
    }

    fn set(&mut self, key: &str, given: Given<'_>, origin: Origin) -> Option<Problem> {
        let problem = |message: String| Some(Problem::at(key, message, &origin));
        let Some(current) = self.0.get(key) else {
            let nearest = nearest(key, self.0.keys());
            return problem(format!("there is no such key (from {origin}); did you mean {nearest}?"));
        };
        match given.with_type_of(&current.0) {
            Some(value) => {
                self.0.insert(key.to_owned(), (value, origin));
                None
            }
            None => problem(format!("expected {} (from {origin})", described(&current.0))),
        }
    }

    /// Replaces a secret by the content of the file that its `…_file` key names.
    fn read_secret(&mut self, key: &str, read: &dyn Fn(&Path) -> io::Result<String>) -> Option<Problem> {
        let file_key = format!("{key}{FILE_SUFFIX}");
        let path = self.0.get(&file_key)?.0.as_str().filter(|path| !path.is_empty())?.to_owned();
        let (_, named_by) = self.0.get(&file_key)?;
        let problem = |message: String| Some(Problem::at(&file_key, message, named_by));
        if let Some((_, origin)) = self.0.get(key).filter(|(_, origin)| *origin != Origin::Default) {
            return problem(format!("{key} is set too (from {origin}): keep one of them"));
        }
        match read(Path::new(&path)) {
            Ok(text) => {
                let secret = Value::String(text.trim_end_matches(['\r', '\n']).to_owned());
                self.0.insert(key.to_owned(), (secret, Origin::SecretFile(path)));
                None
            }
            Err(error) => problem(format!("the file {path} could not be read: {error}")),
        }
    }
}

/// A value as a source gives it.
enum Given<'a> {
    /// From TOML.
    Typed(Value),
    /// From a variable or the command line.
    Text(&'a str),
}

impl Given<'_> {
    fn with_type_of(self, known: &Value) -> Option<Value> {
        match self {
            Self::Typed(value) => value.same_type(known).then_some(value),
            Self::Text(text) => match known {
                Value::String(_) => Some(Value::String(text.to_owned())),
                Value::Integer(_) => text.parse().ok().map(Value::Integer),
                Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
                Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
            },
        }
    }
}

fn described(known: &Value) -> &'static str {
    match known {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        _ => "text",
    }
}

fn parsed(name: &str, text: &str) -> Result<Table, SettingsError> {
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map(|span| line_at(text, span.start));
        // The message alone: the full error quotes the line, which may contain a secret.
        let message = format!("not valid TOML: {}", error.message());
        let origin = Origin::File { name: name.to_owned(), line };
        SettingsError { problems: vec![Problem::at(&origin.to_string(), message, &origin)] }
    })
}

/// The line of each `section.key` of a file, from 1.
fn lines_of_keys(text: &str) -> BTreeMap<String, usize> {
    fn walk(table: &DeTable<'_>, before: &str, text: &str, lines: &mut BTreeMap<String, usize>) {
        for (key, value) in table {
            let path = format!("{before}{}", key.get_ref());
            if let DeValue::Table(section) = value.get_ref() {
                walk(section, &format!("{path}."), text, lines);
            }
            lines.insert(path, line_at(text, key.span().start));
        }
    }
    let mut lines = BTreeMap::new();
    if let Ok(table) = DeTable::parse(text) {
        walk(table.get_ref(), "", text, &mut lines);
    }
    lines
}

/// The line, from 1, of this place in a text.
fn line_at(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

/// `section.key` and value of everything in a table.
fn flattened(table: Table) -> Vec<(String, Value)> {
    table
        .into_iter()
        .flat_map(|(key, value)| match value {
            Value::Table(section) => {
                flattened(section).into_iter().map(|(name, value)| (format!("{key}.{name}"), value)).collect()
            }
            value => vec![(key, value)],
        })
        .collect()
}

fn names_file(key: &str) -> bool {
    key.strip_suffix(FILE_SUFFIX).is_some_and(|secret| SECRETS.contains(&secret))
}

fn hidden(value: &Value) -> Value {
    let set = value.as_str().is_some_and(|text| !text.is_empty());
    Value::String(if set { "(hidden)" } else { "" }.to_owned())
}

fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> &'a str {
    known.min_by_key(|candidate| edits_between(key, candidate)).map_or("", String::as_str)
}

/// The edit distance: how many letters to add, remove or replace to turn one text into the other.
fn edits_between(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.bytes().enumerate() {
        let mut before = done;
        let mut left = done + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(to.bytes()) {
            let replaced = before + usize::from(letter != other);
            before = *cell;
            left = replaced.min(before + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = done + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
