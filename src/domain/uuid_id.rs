//! Ids that are UUIDs: new ones, or a hash of what they name, so that a repeated call names the same thing.

/// The UUID that a hash begins with.
pub fn of_hash(hasher: &blake3::Hasher) -> uuid::Uuid {
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The UUID that is a hash of these texts, for the use that `context` names.
pub fn of_texts(context: &str, texts: &[&str]) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for text in texts {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    of_hash(&hasher)
}

/// Types of such ids, each with what its text must be.
macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident, $must_be:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// The id with this UUID.
            pub fn from_uuid(id: uuid::Uuid) -> Self {
                Self(id)
            }

            /// The id as a UUID.
            pub fn uuid(self) -> uuid::Uuid {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl std::str::FromStr for $name {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                uuid::Uuid::try_parse(text).map(Self::from_uuid).map_err(|_| $must_be)
            }
        }
    )*};
}

pub(in crate::domain) use uuid_ids;
