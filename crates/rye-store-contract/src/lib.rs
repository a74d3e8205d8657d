//! What every store of the engine must do, as tests that anyone can run on one of theirs.
//!
//! ```
//! use std::sync::Arc;
//! use rye_store_contract::Subject;
//!
//! fn fresh() -> Subject {
//!     Subject::new(Arc::new(rye_store::MemoryStore::new()))
//! }
//!
//! # // In a test file this is all there is to write.
//! rye_store_contract::store_contract!(fresh());
//! # rye_store_contract::run(rye_store_contract::commits::a_batch_is_written_whole(fresh()));
//! ```
//!
//! Each behaviour is a function whose name says it; it panics where the store behaves
//! otherwise. A store that several processes can open gives a second way to the same
//! record, [`Subject::and`], and is then also tried from there.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a contract that is broken ends as a test does"
)]

pub mod commits;
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

/// An empty store to be tried.
pub struct Subject {
    /// It.
    pub store: Arc<dyn SessionStore>,
    /// Another way to the same record: another handle, another host.
    pub other: Arc<dyn SessionStore>,
    keep: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").finish_non_exhaustive()
    }
}

impl Subject {
    /// A store.
    pub fn new(store: Arc<dyn SessionStore>) -> Self {
        Self {
            other: Arc::clone(&store),
            store,
            keep: Vec::new(),
        }
    }

    /// With a second way to the same record.
    #[must_use]
    pub fn and(mut self, other: Arc<dyn SessionStore>) -> Self {
        self.other = other;
        self
    }

    /// With something that must live as long, such as a temporary folder.
    #[must_use]
    pub fn keeping(mut self, thing: impl Any + Send) -> Self {
        self.keep.push(Box::new(thing));
        self
    }
}

/// Runs one behaviour to its end.
pub fn run<T>(behaviour: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(behaviour)
}

/// Makes a test of each behaviour. The expression gives a fresh [`Subject`] each time.
#[macro_export]
macro_rules! store_contract {
    ($subject:expr) => {
        $crate::store_contract! { @all $subject;
            commits {
                a_batch_is_written_whole
                a_batch_with_one_bad_change_writes_nothing
                events_are_numbered_without_gaps
                an_empty_batch_tells_the_last_number
                a_session_is_made_once
                usage_is_only_added_to
                a_thread_keeps_its_key
                the_same_entry_again_is_no_change_and_another_is_a_conflict
                an_entry_needs_its_thread_and_its_parent
                an_unknown_entry_is_not_replaced
                a_replaced_entry_keeps_its_place
                an_event_names_its_entry_whatever_becomes_of_it
                what_belongs_to_another_session_is_refused
                nothing_is_written_to_a_session_that_is_not_there
                ids_are_those_of_one_session
                commits_are_made_in_the_order_of_the_calls
                of_many_commits_at_once_the_bad_ones_fail_alone
                deep_arguments_come_back_as_they_were
                numbers_come_back_as_they_were
                a_session_that_is_removed_leaves_nothing
            }
            leases {
                whoever_takes_a_session_fences_the_one_before
                a_session_in_use_is_not_free
                a_session_given_back_is_free
                a_lease_given_back_writes_no_more
                giving_back_a_lost_lease_takes_nothing_from_the_new_holder
                an_epoch_never_comes_again
                sessions_are_removed_together_or_not_at_all
                of_many_who_want_a_session_one_gets_it
            }
            posts {
                anybody_may_post_a_prompt
                the_same_prompt_again_is_the_same
                a_prompt_is_the_same_whatever_became_of_it
                another_prompt_of_the_same_id_is_a_conflict
                a_prompt_needs_a_session_and_a_thread
                controls_stay_until_a_commit_ends_them
                controls_are_for_the_holder
                whoever_listens_is_told
                whoever_listens_hears_of_each_of_many
            }
            prompts {
                prompts_are_found_whatever_the_order_of_their_ids
                a_prompt_may_open_again
                a_prompt_that_was_taken_away_is_a_new_one_when_it_comes_again
                prompts_of_several_threads_change_in_one_batch
                a_prompt_is_found_behind_a_long_turn
            }
            gates {
                the_first_answer_wins
                of_many_answers_at_once_one_wins
                the_same_answer_again_is_the_same
                an_answer_after_the_end_is_too_late
                an_answer_after_the_deadline_finds_the_gate_expired
                a_gate_that_has_ended_is_not_put_again
                an_answer_is_told_as_an_event
                an_answer_at_no_gate_is_refused
                pending_gates_are_listed_the_oldest_first
                a_gate_is_shown_in_several_places
                a_turn_that_waits_is_in_the_record_until_it_is_cleared
            }
            reads {
                a_record_holds_what_waits_and_no_more
                items_come_in_their_order
                gates_of_what_runs_are_in_the_record_ended_or_not
                sessions_are_listed_the_newest_first
                children_are_listed_by_their_parent
                an_archive_is_all_of_a_session
                a_path_goes_from_the_first_entry_to_the_leaf
                a_branch_has_its_own_path
                entries_are_read_a_page_at_a_time
                entries_are_found_whatever_the_order_of_their_ids
                events_are_read_from_any_number_on
                what_is_not_there_is_not_found
                a_long_path_is_read_whole
            }
        }
    };
    (@all $subject:expr; $($module:ident { $($name:ident)* })*) => {$(
        mod $module {
            #[allow(unused_imports, reason = "the expression may name nothing outside")]
            use super::*;
            $(
                #[test]
                fn $name() {
                    $crate::run($crate::$module::$name($subject));
                }
            )*
        }
    )*};
}
