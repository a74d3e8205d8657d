//! Turns a panic in a tool, model or store into an error.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

/// Runs a future and returns the panic message if it panics.
pub(super) async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, String> {
    // The future is dropped after a panic, so its broken state is never observed.
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.map_err(|payload| panic_message(&*payload))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panicked without a message").to_owned()
}
