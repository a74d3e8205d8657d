//! Tests that every session store of the engine must pass.
//!
//! ```
//! use std::sync::Arc;
//! use rye_testkit::store_contract::Subject;
//!
//! fn empty_store() -> Subject {
//!     Subject::new(Arc::new(rye_store::MemoryStore::new()))
//! }
//!
//! // Expands to one `#[test]` per behaviour.
//! rye_testkit::store_contract!(empty_store());
//! # rye_testkit::store_contract::run(rye_testkit::store_contract::commits::batch_is_written_completely(empty_store()));
//! ```
//!
//! Each behaviour is a function that panics if the store violates it. If several processes can
//! open a store, add a second handle with [`Subject::with_other`]; the tests then use both.

pub mod commits;
pub mod due;
pub mod gates;
pub mod leases;
pub mod posts;
pub mod prompts;
pub mod reads;
pub mod sample;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use rye_engine::store::SessionStore;

/// An empty store to test.
pub struct Subject {
    /// The first handle.
    pub store: Arc<dyn SessionStore>,
    /// A second handle to the same store; the first one unless set.
    pub other: Arc<dyn SessionStore>,
    guards: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").finish_non_exhaustive()
    }
}

impl Subject {
    /// Tests a store through one handle.
    pub fn new(store: Arc<dyn SessionStore>) -> Self {
        Self {
            other: Arc::clone(&store),
            store,
            guards: Vec::new(),
        }
    }

    /// Adds a second handle to the same store.
    #[must_use]
    pub fn with_other(mut self, other: Arc<dyn SessionStore>) -> Self {
        self.other = other;
        self
    }

    /// Keeps a value alive as long as the store, such as a temporary directory.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Any + Send) -> Self {
        self.guards.push(Box::new(guard));
        self
    }
}

/// Runs a behaviour on a new runtime.
pub fn run<T>(behaviour: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(behaviour)
}

/// Defines a test for each behaviour. The expression must return a new [`Subject`] each time.
#[macro_export]
macro_rules! store_contract {
    ($subject:expr) => {
        $crate::store_contract! { @all $subject;
            commits {
                batch_is_written_completely
                batch_with_an_invalid_op_writes_nothing
                events_are_numbered_without_gaps
                empty_batch_returns_the_last_sequence_number
                immutable_session_fields_cannot_change
                usage_is_added_up
                immutable_thread_fields_cannot_change
                appending_the_same_entry_twice_is_idempotent
                entry_requires_its_thread_and_its_parent
                replacing_an_unknown_entry_fails
                replaced_entry_keeps_its_position
                event_keeps_the_id_of_a_missing_or_changed_entry
                objects_of_another_session_are_refused
                writing_to_a_missing_session_fails
                ids_are_scoped_to_a_session
                commits_are_applied_in_the_order_of_the_calls
                concurrent_commits_fail_independently
                deeply_nested_arguments_are_preserved
                numbers_are_preserved_exactly
                removed_session_leaves_nothing_behind
            }
            leases {
                taking_over_a_session_fences_the_previous_holder
                session_in_use_cannot_be_claimed
                released_session_can_be_claimed
                holder_of_a_session_is_listed
                released_lease_cannot_write
                releasing_a_lost_lease_does_not_affect_the_new_holder
                epochs_are_never_reused
                sessions_are_removed_atomically
                concurrent_claims_have_one_winner
            }
            posts {
                prompt_can_be_posted_without_a_lease
                posting_the_same_prompt_twice_is_idempotent
                duplicate_prompt_is_detected_after_its_status_changed
                different_prompt_with_the_same_id_is_a_conflict
                post_requires_its_session_and_its_thread
                commands_stay_pending_until_a_commit_completes_them
                commands_are_returned_to_the_holder_only
                subscribers_are_notified_of_posts
                subscribers_are_notified_of_every_session
                prompt_to_a_new_thread_creates_it_once
                thread_keys_are_unique_within_a_session
                subscribers_are_notified_of_claims_and_releases
                subscribers_are_notified_of_commits
            }
            prompts {
                prompts_are_found_regardless_of_the_order_of_their_ids
                finished_prompt_can_be_reopened
                removed_prompt_can_be_posted_again
                one_batch_can_change_prompts_of_several_threads
                prompt_is_found_after_a_long_turn
                prompt_is_read_alone_also_after_its_end
            }
            due {
                sessions_with_unfinished_work_are_due_while_nobody_holds_them
                session_that_waits_for_a_decision_is_due_at_the_deadline
                idle_paused_and_ended_sessions_are_not_due
                posted_messages_make_a_session_due
            }
            gates {
                first_decision_wins
                concurrent_decisions_have_one_winner
                repeated_decision_is_idempotent
                decision_on_a_closed_gate_returns_its_status
                late_decision_expires_the_gate
                closed_gate_cannot_be_changed
                decision_is_published_as_an_event
                decision_on_an_unknown_gate_fails
                pending_gates_are_listed_oldest_first
                pending_gates_of_a_tree_include_descendants
                gates_of_a_session_include_closed_ones
                gate_refs_are_stored_once_per_channel
            }
            reads {
                snapshot_contains_open_prompts_only
                prompts_are_sorted_by_order
                snapshot_contains_all_gates_of_open_prompts
                sessions_are_listed_newest_first
                sessions_are_found_by_a_part_of_their_id
                session_and_entry_are_read_alone
                child_sessions_are_listed_by_parent
                archive_contains_the_complete_session
                path_leads_from_the_first_entry_to_the_leaf
                branch_has_its_own_path
                entries_are_read_in_pages
                entries_are_found_regardless_of_the_order_of_their_ids
                events_are_read_after_any_sequence_number
                missing_objects_are_not_found
                long_path_is_read_completely
            }
        }
    };
    (@all $subject:expr; $($module:ident { $($name:ident)* })*) => {$(
        mod $module {
            #[allow(unused_imports, reason = "the expression may not use any item")]
            use super::*;
            $(
                #[test]
                fn $name() {
                    $crate::store_contract::run($crate::store_contract::$module::$name($subject));
                }
            )*
        }
    )*};
}
