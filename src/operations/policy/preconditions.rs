//! What must hold of an object before it is changed: the version that a call or the object's own fields name.

use serde_json::{Map, Value};

use crate::operations::error::{Answer, OperationError};
use crate::operations::requests::Precondition;

impl Precondition {
    /// The same, and that it has the version that its fields name, if they name one.
    ///
    /// Errors: both cannot hold.
    pub(super) fn with_version(self, version: Option<u64>) -> Answer<Self> {
        let wrong = |message: &str| Err(OperationError::field("/version", message));
        match (self, version) {
            (_, None) => Ok(self),
            (Self::Nothing | Self::Present, Some(version)) => Ok(Self::Version(version)),
            (Self::Version(matching), Some(version)) if matching == version => Ok(self),
            (Self::Version(_), Some(_)) => wrong("is not the version that the call asks for; leave it out"),
            (Self::Absent, Some(_)) => {
                wrong("is that of an object that is there; leave it out to create one")
            }
        }
    }

    /// Whether it holds of an object of this version; none where there is no such object.
    ///
    /// Errors: it does not.
    pub(super) fn check(self, version: Option<u64>) -> Answer<()> {
        let holds = match self {
            Self::Nothing => true,
            Self::Version(expected) => version == Some(expected),
            Self::Present => version.is_some(),
            Self::Absent => version.is_none(),
        };
        let failed = || OperationError::PreconditionFailed { current: version.unwrap_or_default() };
        if holds { Ok(()) } else { Err(failed()) }
    }
}

/// Takes off an object's fields the `version` with which it was read, if it is there.
pub(super) fn take_version(fields: &mut Map<String, Value>) -> Answer<Option<u64>> {
    match fields.remove("version") {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_u64() {
            Some(version) => Ok(Some(version)),
            None => Err(OperationError::field("/version", "must be as an answer gave it, or left out")),
        },
    }
}
