//! Signing and verifying with lillux, compared with ed25519-dalek on the same key and message.

use anyhow::{Context, Result, anyhow};
use base64ct::{Base64, Encoding};
use ed25519_dalek::{Signer, SigningKey as BareKey};
use lillux::Hash;
use lillux::keys::{Signature, SigningKey};

use crate::measure::{interleaved, try_interleaved};
use crate::table::Row;

/// Rounds of one batch each.
const ROUNDS: usize = 101;
/// Calls per batch, so that reading the clock does not count.
const BATCH: u32 = 50;
/// lillux only adds the hex encoding of the hash.
const GOAL: f64 = 1.2;

/// Signing and verifying a hash.
pub fn run() -> Result<Vec<Row>> {
    let ours = SigningKey::generate()?;
    let bare = to_dalek_key(&ours)?;
    let hash = Hash::digest(b"message");
    let signature = ours.sign(&hash);
    Ok(vec![
        signing(&ours, &bare, &hash),
        verifying(&ours, &bare, &hash, &signature)?,
    ])
}

/// The same key for ed25519-dalek: the last 32 bytes of its DER encoding.
fn to_dalek_key(key: &SigningKey) -> Result<BareKey> {
    let pem = key.to_pem();
    let base64 = pem.lines().nth(1).context("no base64 line")?;
    let der = Base64::decode_vec(base64).map_err(|e| anyhow!("not base64: {e}"))?;
    let secret = der.last_chunk().context("no 32 bytes")?;
    Ok(BareKey::from_bytes(secret))
}

fn signing(ours: &SigningKey, bare: &BareKey, hash: &Hash) -> Row {
    let message = hash.to_hex();
    let times = interleaved(
        ROUNDS,
        || batch(|| bare.sign(message.as_bytes())),
        || batch(|| ours.sign(hash)),
    );
    row("sign a hash", times)
}

fn verifying(ours: &SigningKey, bare: &BareKey, hash: &Hash, signature: &Signature) -> Result<Row> {
    let message = hash.to_hex();
    let public = bare.verifying_key();
    let bare_signature = ed25519_dalek::Signature::from_bytes(signature.as_bytes());
    let times = try_interleaved(
        ROUNDS,
        || try_batch(|| Ok(public.verify_strict(message.as_bytes(), &bare_signature)?)),
        || try_batch(|| Ok(ours.public().verify(hash, signature)?)),
    )?;
    Ok(row("verify a signature", times))
}

fn batch<T>(mut call: impl FnMut() -> T) {
    for _ in 0..BATCH {
        std::hint::black_box(call());
    }
}

fn try_batch(mut call: impl FnMut() -> Result<()>) -> Result<()> {
    (0..BATCH).try_for_each(|_| call())
}

fn row(what: &str, (baseline, ours): (f64, f64)) -> Row {
    let per_call = (baseline / f64::from(BATCH), ours / f64::from(BATCH));
    Row::time(what, per_call, GOAL)
}
