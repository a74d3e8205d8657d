//! Who may write.

use std::slice::from_ref;
use std::sync::Arc;

use rye_engine::store::{Claim, StoreError};

use crate::Subject;
use crate::sample::{begin, sid, told, write};

fn fenced() -> StoreError {
    StoreError::Fenced(sid("s"))
}

/// At once, on every way to the record.
pub async fn whoever_takes_a_session_fences_the_one_before(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let old = begin(&**store, "s").await;
    let new = other.claim(&sid("s"), Claim::TakeOver).await.unwrap();
    assert!(new.epoch > old.epoch);
    assert_eq!(write(&**store, &old, vec![told()]).await, Err(fenced()));
    assert_eq!(store.pending_commands(&old).await, Err(fenced()));
    assert_eq!(store.remove(from_ref(&old)).await, Err(fenced()));
    assert_eq!(write(&**other, &new, vec![told()]).await, Ok(1));
}

/// Whoever has it is named.
pub async fn a_session_in_use_is_not_free(subject: Subject) {
    let lease = begin(&*subject.store, "s").await;
    let refused = subject.other.claim(&sid("s"), Claim::IfFree).await;
    let Err(StoreError::InUse { session, holder }) = refused else {
        unreachable!("{refused:?}");
    };
    assert_eq!(session, sid("s"));
    assert!(!holder.is_empty());
    // Whoever asked in vain has taken nothing.
    assert_eq!(write(&*subject.store, &lease, vec![told()]).await, Ok(1));
}

/// For anybody.
pub async fn a_session_given_back_is_free(subject: Subject) {
    let old = begin(&*subject.store, "s").await;
    subject.store.release(&old).await.unwrap();
    let new = subject.other.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert!(new.epoch > old.epoch);
}

/// Until it is taken again.
pub async fn a_lease_given_back_writes_no_more(subject: Subject) {
    let store = &*subject.store;
    let lease = begin(store, "s").await;
    store.release(&lease).await.unwrap();
    assert_eq!(write(store, &lease, vec![told()]).await, Err(fenced()));
}

/// It is no error either.
pub async fn giving_back_a_lost_lease_takes_nothing_from_the_new_holder(subject: Subject) {
    let old = begin(&*subject.store, "s").await;
    let new = subject
        .other
        .claim(&sid("s"), Claim::TakeOver)
        .await
        .unwrap();
    subject.store.release(&old).await.unwrap();
    assert_eq!(write(&*subject.other, &new, vec![told()]).await, Ok(1));
    let refused = subject.store.claim(&sid("s"), Claim::IfFree).await;
    assert!(matches!(refused, Err(StoreError::InUse { .. })));
}

/// Where one of them is lost, none is removed.
pub async fn sessions_are_removed_together_or_not_at_all(subject: Subject) {
    let Subject { store, other, .. } = &subject;
    let (first, lost) = (begin(&**store, "t").await, begin(&**store, "s").await);
    let new = other.claim(&sid("s"), Claim::TakeOver).await.unwrap();
    let removed = store.remove(&[first.clone(), lost]).await;
    assert_eq!(removed, Err(fenced()));
    for session in ["s", "t"] {
        assert!(store.snapshot(&sid(session)).await.unwrap().is_some());
    }
    assert_eq!(write(&**store, &first, vec![told()]).await, Ok(1));
    store.remove(&[first, new]).await.unwrap();
    for session in ["s", "t"] {
        assert_eq!(store.snapshot(&sid(session)).await, Ok(None));
    }
    store.remove(&[]).await.unwrap();
}

/// Not even when the session was removed meanwhile.
pub async fn an_epoch_never_comes_again(subject: Subject) {
    let store = &*subject.store;
    let mut last = 0;
    for _ in 0..3 {
        let lease = begin(store, "s").await;
        assert!(lease.epoch > last);
        store.remove(from_ref(&lease)).await.unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        assert!(lease.epoch > last);
        last = lease.epoch;
        store.release(&lease).await.unwrap();
    }
}

/// From both ways at once.
pub async fn of_many_who_want_a_session_one_gets_it(subject: Subject) {
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let way = if n % 2 == 0 {
                &subject.store
            } else {
                &subject.other
            };
            let way = Arc::clone(way);
            tokio::spawn(async move { way.claim(&sid("s"), Claim::IfFree).await })
        })
        .collect();
    let mut got = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => got += 1,
            Err(StoreError::InUse { .. }) => {}
            Err(error) => unreachable!("{error}"),
        }
    }
    assert_eq!(got, 1);
}
