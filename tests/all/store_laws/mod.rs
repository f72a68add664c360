//! Contract tests: each guarantee of the traits in `tidings::store` has one test, which runs on
//! every store.
//!
//! A test is written once and listed once below. A test that is not listed is dead code, which the
//! linter rejects, so both stores pass the same list.

mod accepting;
mod accumulators;
pub(crate) mod adding;
mod addresses;
mod adjacent;
mod announced;
pub(crate) mod batches;
mod choices;
mod clocks;
mod condition;
mod days;
mod deliveries;
mod details;
mod directory;
mod feedback;
mod inboxes;
mod journal;
mod leases;
mod long_lists;
mod marks;

mod change_notices;
mod notes;
mod objects;
mod old_documents;
mod people;
mod reopening;
mod repeats;
mod retractions;
mod scans;
mod settling;
mod stacks;
mod suppressions;
mod transfer;
mod transitions;
mod webhook_receipts;

/// Generates each listed test for each store.
macro_rules! contract_tests {
    ($($area:ident: $($test:ident)*;)*) => {
        contract_tests! { @on sqlite: $($area: $($test)*;)* }
        contract_tests! { @on mongo: $($area: $($test)*;)* }
    };
    (@on $backend:ident: $($area:ident: $($test:ident)*;)*) => {
        mod $backend {
            $(mod $area {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        crate::support::$backend::run(crate::store_laws::$area::$test).await;
                    }
                )*
            })*
        }
    };
}

contract_tests! {
    stacks:
        entries_keep_the_order_in_which_they_were_pushed
        an_empty_push_succeeds
        each_day_has_its_own_stack
        a_repeated_push_adds_nothing
        a_partly_repeated_push_adds_only_missing_entries
        two_fan_outs_about_one_object_are_both_stored
        one_fan_out_with_two_types_for_an_object_is_stored_twice
        concurrent_first_pushes_of_a_day_lose_no_event
        concurrent_repeats_of_a_push_add_no_duplicates
        a_push_stores_the_list_of_each_of_many_users
        a_long_list_is_stored_completely
        the_cap_is_exact_and_a_repeat_reports_the_same_overflow
        a_full_stack_rejects_and_reports_every_entry
        the_entries_of_a_first_list_that_fit_are_stored_in_order
        stored_entries_do_not_count_against_the_cap_again
        capped_users_are_reported_by_their_index
        markers_count_against_the_cap
        concurrent_pushes_never_grow_a_stack_past_its_cap
        unusual_type_and_object_names_are_stored_unchanged;
    long_lists:
        concurrent_repeats_of_long_lists_add_no_duplicates
        a_merged_long_list_adds_only_missing_entries
        a_long_list_is_stored_up_to_the_cap
        a_mailed_marker_does_not_prevent_a_push_of_its_events;
    marks:
        a_marker_is_appended_to_each_named_stack
        a_repeated_marker_is_stored_once
        concurrent_repeats_of_a_marker_store_it_once
        markers_with_different_ids_or_watermarks_are_all_stored
        a_marker_is_written_past_the_cap
        a_marker_creates_neither_a_stack_nor_a_day
        a_marker_for_a_dropped_day_is_ignored
        an_event_pushed_between_read_and_marker_stays_pending
        concurrent_markers_and_pushes_are_all_stored
        each_of_many_users_gets_a_separate_marker
        equal_markers_are_stored_once_and_only_for_the_named_users
        an_empty_list_of_markers_succeeds
        a_repeated_mailed_marker_is_stored_once_at_the_end
        a_mailed_marker_creates_no_stack_and_covers_its_events;
    accumulators:
        an_accumulator_is_read_back_with_every_field
        an_accumulator_replaces_only_the_revision_that_was_read
        one_of_many_concurrent_creators_of_an_accumulator_succeeds
        concurrent_changes_of_an_accumulator_are_all_stored
        an_empty_accumulator_is_removed_and_can_be_created_again
        unusual_keys_and_users_have_separate_accumulators
        many_accumulators_are_written_and_read_in_one_call
        due_accumulators_are_ordered_by_due_time
        a_leased_accumulator_is_not_due_until_its_lease_expires
        an_accumulator_is_found_by_batch_id_until_the_batch_is_filed
        accumulators_are_found_by_the_items_of_their_batches;
    adding:
        adding_to_an_open_batch_equals_joining_it
        adding_to_many_open_batches_equals_joining_each;
    adjacent:
        a_range_push_stores_each_entry_once_and_only_for_its_users
        a_range_push_detects_missing_and_full_stacks
        concurrent_pushes_to_one_range_are_all_stored;
    inboxes:
        an_inbox_is_read_back_with_every_field
        a_feed_equals_the_separate_reads_of_its_parts
        an_inbox_replaces_only_the_revision_that_was_read
        concurrent_marks_in_an_inbox_are_all_stored
        concurrent_writes_of_inboxes_each_return_their_own_outcome
        inboxes_without_recent_changes_are_removed;
    change_notices:
        a_subscriber_receives_notices_of_pushes_marks_and_objects
        a_late_subscriber_receives_later_notices;
    batches:
        a_batch_is_filed_once_and_read_back_with_every_field
        filing_a_batch_again_with_other_events_is_a_conflict
        only_a_closing_batch_is_settled
        batches_are_found_by_user_key_and_state_newest_first
        batch_counts_are_exact
        old_settled_batches_are_removed_in_small_steps
        a_limit_of_zero_finds_and_removes_nothing;
    scans:
        a_scan_returns_each_user_once_in_ascending_order
        the_chunks_of_a_scan_have_no_gaps_or_overlaps
        a_scan_returns_all_days_of_a_user_in_order
        a_scan_continues_after_any_user
        a_scan_excludes_days_outside_the_window
        a_scan_of_an_empty_window_is_empty
        a_scan_during_pushes_returns_each_earlier_user
        windows_are_returned_in_the_order_of_the_request
        windows_include_only_the_requested_users
        windows_of_many_users_are_read_in_one_call
        windows_of_no_users_are_empty;
    old_documents:
        events_without_a_fan_out_id_are_read
        a_bare_marker_covers_all_events_before_it
        a_marker_count_of_any_number_type_is_read
        a_marker_without_an_object_id_is_read_as_a_marker
        a_document_with_an_object_id_belongs_to_the_user_of_its_hex_text
        an_object_that_is_an_object_id_is_read_as_its_hex_text
        both_documents_of_a_user_are_returned_together
        users_with_object_ids_are_scanned_in_the_order_of_their_text
        a_marker_is_written_to_the_named_document_form
        a_marker_for_a_missing_old_document_is_ignored
        unknown_entries_keep_their_index
        a_push_onto_an_old_document_keeps_its_entries;
    days:
        days_are_listed_oldest_first_with_exact_counts
        a_dropped_day_is_removed_and_can_be_written_again
        dropping_a_missing_day_keeps_other_days
        an_export_returns_exact_documents_text_ids_first
        an_export_of_many_documents_is_complete
        a_restored_export_is_byte_exact
        a_restored_day_can_be_restored_again
        restoring_a_different_document_is_a_conflict_without_changes
        an_invalid_document_is_rejected
        a_day_is_dropped_only_if_its_sum_matches
        dropping_or_fixing_a_missing_day_succeeds
        writes_during_the_drop_of_a_day_are_never_lost
        an_exported_stack_is_appended_once_and_pending_events_stay_pending;
    people:
        a_user_record_is_read_back_with_every_field
        a_damaged_field_keeps_the_start_of_a_user_record
        every_cadence_weekday_and_route_is_read_back
        type_preferences_with_and_without_a_window_are_read_back
        user_records_are_returned_in_the_order_of_the_request
        writing_a_record_again_replaces_all_fields
        many_user_records_are_written_and_read_in_one_call
        unusual_user_ids_have_records
        a_user_record_replaces_only_the_revision_that_was_read
        outcomes_of_many_writes_are_in_the_order_of_the_request
        concurrent_changes_of_a_user_record_are_all_stored
        one_of_many_concurrent_creators_of_a_record_succeeds
        a_stale_write_does_not_restore_a_deleted_record
        deleting_a_user_record_keeps_stacks_and_deliveries;
    directory:
        followers_are_returned_in_pages_in_ascending_order
        follow_lookups_are_answered_in_the_order_of_the_request
        the_follows_of_a_user_are_returned_in_pages_in_ascending_order
        all_users_with_a_record_are_returned_in_pages
        a_repeated_follow_is_stored_once
        many_follows_are_stored_in_one_call
        unfollowing_removes_a_follower_and_can_be_repeated
        similar_follow_keys_are_distinct
        an_unknown_key_has_no_followers
        deleting_a_user_removes_their_follows
        near_finds_users_within_the_radius
        near_returns_pages_in_ascending_order
        near_crosses_the_antimeridian
        near_a_pole_includes_every_longitude
        near_with_the_maximum_radius_finds_every_user_with_a_location
        near_finds_users_at_their_current_location;
    objects:
        an_object_is_read_back_with_every_field
        very_large_data_is_read_back_as_the_same_text
        data_of_any_json_type_is_read_back
        numbers_are_read_back_exactly
        an_object_that_is_not_notifiable_is_returned
        objects_are_returned_in_the_order_of_the_request
        many_objects_are_written_and_read_in_one_call;
    choices:
        users_are_found_by_their_choices_in_ascending_order
        a_user_is_found_by_their_current_choices
        the_time_zones_of_users_are_returned_once
        the_locales_of_users_are_returned_once;
    details:
        the_details_of_an_event_are_read_back_unchanged
        forgetting_an_actor_changes_only_that_actors_details;
    retractions:
        retractions_are_returned_in_the_order_of_the_request
        the_latest_retraction_wins_in_any_order
        the_latest_of_concurrent_retractions_wins
        a_retraction_sends_its_change_notice
        old_retractions_are_removed_in_small_steps
        old_events_are_removed_once_their_fan_out_is_done;
    accepting:
        an_accepted_fan_out_is_read_back_with_every_field
        batch_keys_are_read_back_unchanged
        a_repeated_key_returns_the_stored_fan_out
        the_first_of_two_equal_keys_in_one_call_is_new
        one_of_many_concurrent_events_with_one_key_is_new
        a_repeated_key_returns_the_progress_of_its_fan_out
        many_events_are_accepted_in_one_call;
    journal:
        fan_outs_are_claimed_oldest_first_up_to_the_limit
        small_fan_outs_are_claimed_together_up_to_a_large_one
        very_many_small_fan_outs_are_claimed_together
        progress_without_a_cursor_keeps_the_saved_cursor
        a_leased_fan_out_is_not_claimed_until_its_lease_expires
        concurrent_claims_of_fan_outs_never_overlap
        saving_progress_extends_the_lease
        a_new_owner_continues_from_the_saved_progress
        a_save_is_rejected_after_the_lease_is_lost
        saves_are_answered_in_the_order_of_the_request
        a_finished_fan_out_leaves_the_backlog_and_is_released
        a_released_fan_out_can_be_claimed_at_once
        busy_days_are_those_with_pending_fan_outs
        an_empty_journal_has_no_work;
    announced:
        the_oldest_pending_event_is_reported_until_it_is_done
        the_newest_events_are_returned_first
        a_long_audience_is_stored_and_claimed_completely;
    deliveries:
        an_opened_delivery_is_read_back_with_every_field
        a_delivery_is_opened_once_for_each_id
        a_slot_has_one_open_delivery
        one_of_many_concurrent_openings_of_a_delivery_succeeds
        a_leased_delivery_is_not_claimed_until_its_lease_expires
        deliveries_are_claimed_in_slot_order_up_to_the_limit
        concurrent_claims_of_deliveries_never_overlap
        a_released_delivery_can_be_claimed_at_once
        the_deliveries_of_a_user_are_returned_newest_first
        deliveries_are_returned_in_the_order_of_the_request
        deliveries_in_a_state_are_returned_newest_first
        empty_requests_for_deliveries_do_nothing;
    settling:
        only_the_holder_marks_a_delivery_sending_and_records_the_call
        a_recalled_delivery_is_pending_and_still_leased
        settling_as_sent_clears_the_reason_of_an_earlier_deferral
        only_the_holder_extends_the_lease_of_a_delivery
        a_deferred_delivery_is_not_claimed_early_and_keeps_its_reason
        taking_over_a_call_leases_all_its_open_rows
        an_unknown_delivery_can_be_resolved_as_sent_or_not_sent
        only_a_closed_unknown_delivery_with_a_free_slot_is_resolved
        the_former_holder_can_neither_send_nor_settle
        a_settled_delivery_records_its_outcome_and_stays_open
        a_delivery_is_settled_once
        a_settled_delivery_is_claimed_until_it_is_closed
        only_settled_deliveries_are_closed_and_closing_can_repeat
        delivery_counts_are_exact_for_each_state
        old_closed_deliveries_are_removed_except_unknown_ones
        many_deliveries_are_sent_settled_and_closed_together;
    transitions:
        each_transition_is_made_only_if_its_condition_holds
        a_delivery_in_no_call_is_deferred_or_settled_only_while_it_is_pending
        equal_transitions_of_many_deliveries_keep_separate_values
        a_concluded_delivery_is_settled_and_closed_and_frees_its_slot;
    reopening:
        only_deferrals_that_spend_a_try_are_counted
        deferred_deliveries_can_be_released_unless_they_are_sending
        a_failed_delivery_is_reopened_as_a_new_one
        a_pending_delivery_is_canceled_even_if_it_is_leased
        only_a_pending_delivery_is_canceled
        only_a_closed_failed_delivery_with_a_free_slot_is_reopened
        the_open_digests_of_users_are_found
        deliveries_in_a_state_are_found_by_creation_time
        deliveries_in_a_state_are_found_by_span_and_feedback;
    leases:
        a_lease_is_exclusive
        an_expired_lease_is_free
        a_holder_extends_its_lease
        a_released_lease_is_free
        one_of_many_concurrent_requests_gets_the_lease
        one_of_many_concurrent_requests_gets_an_expired_lease
        unusual_names_can_be_leased;
    clocks:
        a_lease_from_a_clock_ahead_is_free
        a_fan_out_leased_by_a_clock_ahead_can_be_claimed
        a_delivery_leased_or_deferred_by_a_clock_ahead_can_be_claimed
        an_accumulator_leased_by_a_clock_ahead_is_due;
    notes:
        a_note_is_visible_to_all_handles_until_it_is_deleted
        concurrent_creators_of_a_note_all_read_the_same_text
        a_note_is_changed_only_from_its_current_text
        one_of_many_concurrent_changes_of_a_note_succeeds
        notes_are_found_by_the_prefix_of_their_names
        named_notes_are_returned_once_by_name;
    addresses:
        users_are_found_by_address_in_any_case_and_form
        users_with_one_address_are_returned_in_pages;
    transfer:
        every_record_is_exported_and_imported_whole
        pages_join_without_a_gap
        an_imported_record_replaces_the_stored_one
        a_store_that_an_earlier_version_moves_is_marked
        an_unreadable_record_is_reported_and_stops_no_other
        the_notes_about_the_store_itself_are_not_exported
        one_of_many_concurrent_marks_wins;
    suppressions:
        a_suppression_is_read_back_with_every_field
        an_address_is_suppressed_in_every_spelling
        the_most_serious_reason_wins_in_any_order
        the_most_serious_of_concurrent_reasons_wins
        the_more_serious_reason_in_one_call_wins
        suppressions_are_returned_in_the_order_of_the_request
        suppressions_are_returned_in_pages_in_ascending_order
        a_lifted_address_can_be_suppressed_again
        reports_from_before_a_lift_suppress_nothing
        a_lift_removes_records_of_old_lifts
        suppression_counts_are_exact_for_each_reason
        unusual_addresses_can_be_suppressed
        soft_bounces_count_once_for_each_email_within_the_period
        lifting_an_address_resets_its_soft_bounces;
    feedback:
        a_delivery_is_found_by_its_tag
        deliveries_are_found_by_provider_id_which_several_may_share
        the_most_serious_report_wins_in_any_order
        the_most_serious_of_concurrent_reports_wins
        a_report_about_a_sending_delivery_does_not_prevent_settling
        reports_about_unknown_deliveries_change_nothing
        report_counts_select_deliveries_by_settlement_time;
    webhook_receipts:
        the_first_mark_is_kept_until_it_expires
        concurrent_marks_for_one_key_all_return_the_same_mark
        marks_are_returned_in_the_order_of_the_request;
    condition:
        a_store_reports_its_engine_and_version
        a_new_store_has_every_index
        outstanding_work_is_counted_with_its_oldest_time
        reading_the_server_clock_creates_no_records;
    repeats:
        a_method_that_failed_can_be_repeated
        a_method_whose_reply_was_lost_can_be_repeated
        another_worker_continues_after_a_crash_before_a_method
        another_worker_continues_after_a_crash_after_a_method;
}
