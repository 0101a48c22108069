//! Signatures by the rules of Standard Webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::WebhookId;

/// What the deliveries of a webhook are signed with. It is derived from the installation's secret and the webhook's id,
/// so that it is stored nowhere.
#[derive(Clone)]
pub struct WebhookSecret([u8; 32]);

impl WebhookSecret {
    /// The secret of a webhook, under the key of the installation's webhooks.
    pub fn of(key: &[u8; 32], webhook: WebhookId) -> Self {
        Self(*blake3::keyed_hash(key, webhook.uuid().as_bytes()).as_bytes())
    }

    /// As a receiver is given it.
    pub fn text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }

    /// The signature of a body that is sent under this id at this time (unix seconds).
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &str) -> String {
        sign(&self.0, id, timestamp_s, body)
    }
}

/// The signature under a secret of at most 64 bytes.
pub fn sign(secret: &[u8], id: &str, timestamp_s: i64, body: &str) -> String {
    // HMAC fills a shorter key with zeros up to its block.
    let mut block = [0; 64];
    for (byte, of_secret) in block.iter_mut().zip(secret) {
        *byte = *of_secret;
    }
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in [id, ".", &timestamp_s.to_string(), ".", body] {
        mac.update(part.as_bytes());
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_of_standard_webhooks_is_met() {
        let secret = STANDARD.decode("C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
        let body = r#"{"email":"test@example.com","username":"test_user"}"#;
        let signature = sign(&secret, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
        assert_eq!(signature, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }

    #[test]
    fn another_library_signs_the_same_with_the_text_that_receivers_are_given() {
        let secret = WebhookSecret::of(&[7; 32], WebhookId::from_uuid(uuid::Uuid::from_u128(1)));
        let other = standardwebhooks::Webhook::new(&secret.text()).unwrap();
        for body in ["", "{}", "{\"ü\":\"\\u0000.é\"}"] {
            assert_eq!(
                secret.sign("a", 1_700_000_000, body),
                other.sign("a", 1_700_000_000, body.as_bytes()).unwrap()
            );
        }
    }

    #[test]
    fn each_webhook_and_each_installation_has_a_secret_of_its_own() {
        let of = |key: u8, id: u128| {
            WebhookSecret::of(&[key; 32], WebhookId::from_uuid(uuid::Uuid::from_u128(id))).text()
        };
        assert_eq!(of(1, 1), of(1, 1));
        assert!(of(1, 1) != of(1, 2) && of(1, 1) != of(2, 1));
        assert_eq!(of(1, 1).len(), "whsec_".len() + 44);
    }
}
