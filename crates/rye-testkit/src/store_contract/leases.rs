//! Leases and fencing.

use std::slice::from_ref;
use std::sync::Arc;

use rye_engine::store::{Claim, StoreError};

use super::Subject;
use super::sample::{create_session, sid, status_event, write};

fn fenced() -> StoreError {
    StoreError::Fenced(sid("s"))
}

/// Fencing takes effect immediately for all handles.
pub async fn taking_over_a_session_fences_the_previous_holder(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let old = create_session(&**store, "s").await;
    let new = other.claim(&sid("s"), Claim::TakeOver).await.unwrap();
    assert!(new.epoch > old.epoch);
    assert_eq!(
        write(&**store, &old, vec![status_event()]).await,
        Err(fenced())
    );
    assert_eq!(store.pending_commands(&old).await, Err(fenced()));
    assert_eq!(store.remove(from_ref(&old)).await, Err(fenced()));
    assert_eq!(write(&**other, &new, vec![status_event()]).await, Ok(1));
}

/// The error names the holder, and the holder keeps its lease.
pub async fn session_in_use_cannot_be_claimed(subject: Subject) {
    let lease = create_session(&*subject.store, "s").await;
    let refused = subject.other.claim(&sid("s"), Claim::IfFree).await;
    let Err(StoreError::InUse { session, holder }) = refused else {
        unreachable!("{refused:?}");
    };
    assert_eq!(session, sid("s"));
    assert!(!holder.is_empty());
    // The failed claim does not affect the holder.
    assert_eq!(
        write(&*subject.store, &lease, vec![status_event()]).await,
        Ok(1)
    );
}

/// Any handle can claim a released session.
pub async fn released_session_can_be_claimed(subject: Subject) {
    let old = create_session(&*subject.store, "s").await;
    subject.store.release(&old).await.unwrap();
    let new = subject.other.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert!(new.epoch > old.epoch);
}

/// Listed for one session and for all, until it is released.
pub async fn holder_of_a_session_is_listed(subject: Subject) {
    let lease = create_session(&*subject.store, "s").await;
    let of = async |session: &str| subject.other.holders(Some(&sid(session))).await.unwrap();
    let holders = of("s").await;
    assert_eq!(holders.len(), 1);
    assert_eq!(holders, subject.other.holders(None).await.unwrap());
    assert_eq!(holders[0].session, sid("s"));
    assert_eq!(of("other").await, []);
    subject.store.release(&lease).await.unwrap();
    assert_eq!(of("s").await, []);
}

/// A released lease is invalid.
pub async fn released_lease_cannot_write(subject: Subject) {
    let store = &*subject.store;
    let lease = create_session(store, "s").await;
    store.release(&lease).await.unwrap();
    assert_eq!(
        write(store, &lease, vec![status_event()]).await,
        Err(fenced())
    );
}

/// Releasing a lost lease is not an error.
pub async fn releasing_a_lost_lease_does_not_affect_the_new_holder(subject: Subject) {
    let old = create_session(&*subject.store, "s").await;
    let new = subject
        .other
        .claim(&sid("s"), Claim::TakeOver)
        .await
        .unwrap();
    subject.store.release(&old).await.unwrap();
    assert_eq!(
        write(&*subject.other, &new, vec![status_event()]).await,
        Ok(1)
    );
    let refused = subject.store.claim(&sid("s"), Claim::IfFree).await;
    assert!(matches!(refused, Err(StoreError::InUse { .. })));
}

/// If one lease is lost, no session is removed.
pub async fn sessions_are_removed_atomically(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let (first, lost) = (
        create_session(&**store, "t").await,
        create_session(&**store, "s").await,
    );
    let new = other.claim(&sid("s"), Claim::TakeOver).await.unwrap();
    let removed = store.remove(&[first.clone(), lost]).await;
    assert_eq!(removed, Err(fenced()));
    for session in ["s", "t"] {
        assert!(store.snapshot(&sid(session)).await.unwrap().is_some());
    }
    assert_eq!(write(&**store, &first, vec![status_event()]).await, Ok(1));
    store.remove(&[first, new]).await.unwrap();
    for session in ["s", "t"] {
        assert_eq!(store.snapshot(&sid(session)).await, Ok(None));
    }
    store.remove(&[]).await.unwrap();
}

/// Not even if the session was removed in the meantime.
pub async fn epochs_are_never_reused(subject: Subject) {
    let store = &*subject.store;
    let mut last = 0;
    for _ in 0..3 {
        let lease = create_session(store, "s").await;
        assert!(lease.epoch > last);
        store.remove(from_ref(&lease)).await.unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        assert!(lease.epoch > last);
        last = lease.epoch;
        store.release(&lease).await.unwrap();
    }
}

/// Claims come through both handles.
pub async fn concurrent_claims_have_one_winner(subject: Subject) {
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let store = if n % 2 == 0 {
                &subject.store
            } else {
                &subject.other
            };
            let store = Arc::clone(store);
            tokio::spawn(async move { store.claim(&sid("s"), Claim::IfFree).await })
        })
        .collect();
    let mut claimed = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => claimed += 1,
            Err(StoreError::InUse { .. }) => {}
            Err(error) => unreachable!("{error}"),
        }
    }
    assert_eq!(claimed, 1);
}
