//! Deliveries that a test sends itself: genuine ones that were kept back, changed ones, and ones under other headers.

use fake_forge::{Dialect, Outgoing};
use ralph_bot::forge::signature::sign;
use secrecy::SecretString;

use super::setup::SECRET;
use super::world::World;

pub type DeliveryHeaders = Vec<(String, String)>;

/// Signature of a body with the stories' secret.
pub fn digest(body: &[u8]) -> String {
    sign(&SecretString::from(SECRET.to_owned()), body)
}

/// Headers of a delivery, without the signature.
pub fn headers(dialect: Dialect, id: &str, event: &str) -> DeliveryHeaders {
    let family = if dialect == Dialect::Gitea { "X-Gitea" } else { "X-GitHub" };
    [("Content-Type", "application/json"), (&format!("{family}-Delivery"), id), (&format!("{family}-Event"), event)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

/// Name of the signature header, and the prefix of its value.
pub fn signature_header(dialect: Dialect) -> (&'static str, &'static str) {
    match dialect {
        Dialect::Gitea => ("X-Gitea-Signature", ""),
        Dialect::GitHub => ("X-Hub-Signature-256", "sha256="),
    }
}

/// Headers of a delivery that is signed with the stories' secret.
pub fn signed(dialect: Dialect, id: &str, event: &str, body: &[u8]) -> DeliveryHeaders {
    signed_with(SECRET, dialect, id, event, body)
}

/// Headers of a delivery that is signed with a secret.
pub fn signed_with(secret: &str, dialect: Dialect, id: &str, event: &str, body: &[u8]) -> DeliveryHeaders {
    let (name, before) = signature_header(dialect);
    let mut headers = headers(dialect, id, event);
    let digest = sign(&SecretString::from(secret.to_owned()), body);
    headers.push((name.to_owned(), format!("{before}{digest}")));
    headers
}

/// Address that the service listens on.
pub fn address(world: &World) -> String {
    world.app().address.expect("the service listens").to_string()
}

/// Posts to the service and returns the status.
pub async fn post(world: &World, path: &str, headers: &DeliveryHeaders, body: Vec<u8>) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut request = client.post(format!("http://{}{path}", address(world))).body(body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send().await.expect("an answer").status().as_u16()
}

/// Sends a signed delivery and returns the status.
pub async fn deliver(world: &World, id: &str, event: &str, body: &[u8]) -> u16 {
    post(world, "/webhooks/forge", &signed(world.setup.dialect, id, event, body), body.to_vec()).await
}

/// Deliveries that an action causes, which the service does not receive.
pub async fn kept_back(world: &World, action: impl AsyncFnOnce(&World)) -> Vec<Outgoing> {
    world.settle().await;
    world.forge.hooks().hold();
    action(world).await;
    let mut taken = Vec::new();
    world.forge.hooks().release(|held| taken = std::mem::take(held));
    taken
}
