//! List cursors: opaque, signed, and bound to the path and filters of the list they came from.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

use super::problem::Problem;

const SIGNATURE_BYTES: usize = 16;

/// Longer cursors are refused: no service makes them.
const CURSOR_CHARACTERS_MAX: usize = 2_048;

/// Signs and checks cursors.
#[derive(Clone)]
pub(super) struct CursorKey([u8; 32]);

impl CursorKey {
    /// `secret` is the installation's, so that every instance reads every other's cursors.
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key("tollgate list cursors v1", secret))
    }

    /// The cursor for `position` in the list named by `scope` (its path and filters).
    pub(super) fn sign(&self, scope: &str, position: &str) -> String {
        let mut bytes = self.signature(scope, position).to_vec();
        bytes.extend_from_slice(position.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position in a cursor that this installation made for the same `scope`; anything else is 400.
    pub(super) fn verify(&self, scope: &str, cursor: &str) -> Result<String, Problem> {
        self.read(scope, cursor).ok_or_else(|| {
            Problem::parameter(
                "cursor",
                "is not a cursor of this list with these filters; begin again without a cursor",
            )
        })
    }

    fn read(&self, scope: &str, cursor: &str) -> Option<String> {
        if cursor.len() > CURSOR_CHARACTERS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (signature, position) = bytes.split_at_checked(SIGNATURE_BYTES)?;
        let position = std::str::from_utf8(position).ok()?;
        let expected = self.signature(scope, position);
        bool::from(expected.as_slice().ct_eq(signature)).then(|| position.to_owned())
    }

    fn signature(&self, scope: &str, position: &str) -> [u8; SIGNATURE_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in [scope, position] {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut signature = [0; SIGNATURE_BYTES];
        hasher.finalize_xof().fill(&mut signature);
        signature
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::StatusCode;

    use super::*;

    #[test]
    fn a_cursor_reads_back_only_in_its_own_list() {
        let key = CursorKey::new(&[1; 32]);
        let cursor = key.sign("/v1/tenants/a/entries?meter=m", "2026|7");
        assert_eq!(key.verify("/v1/tenants/a/entries?meter=m", &cursor).unwrap(), "2026|7");
        for scope in
            ["/v1/tenants/b/entries?meter=m", "/v1/tenants/a/entries", "/v1/tenants/a/entries?meter=n"]
        {
            assert_eq!(key.verify(scope, &cursor).unwrap_err().status(), StatusCode::BAD_REQUEST);
        }
        assert!(CursorKey::new(&[2; 32]).verify("/v1/tenants/a/entries?meter=m", &cursor).is_err());
    }

    #[test]
    fn a_forged_cursor_is_refused() {
        let key = CursorKey::new(&[1; 32]);
        let cursor = key.sign("s", "position");
        for at in 0..cursor.len() {
            let mut forged = cursor.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert!(key.verify("s", std::str::from_utf8(&forged).unwrap()).is_err(), "{at}");
        }
        for forged in ["", "A", "not base64 !", "AAAAAAAAAAAAAAAAAAAAAAAA", &"A".repeat(5_000)] {
            assert!(key.verify("s", forged).is_err());
        }
    }
}
