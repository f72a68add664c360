//! What the traits of `tidings::store` promise, a test for each promise, on every backend.
//!
//! The rule: a law is written once, listed once, and runs everywhere. A law that is not listed is
//! dead code, which the linter refuses; a backend runs the whole list or does not compile. So the
//! stores cannot drift apart.

mod accepting;
mod accumulators;
pub(crate) mod adding;
mod addresses;
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
mod neighbors;
mod notes;
mod objects;
mod old_documents;
mod people;
mod pokes;
mod reopening;
mod repeats;
mod retractions;
mod scans;
mod settling;
mod sightings;
mod stacks;
mod suppressions;
mod transfer;
mod transitions;

/// Expands every law for every backend that is named here.
macro_rules! laws {
    ($($area:ident: $($law:ident)*;)*) => {
        laws! { @on sqlite: $($area: $($law)*;)* }
        laws! { @on mongo: $($area: $($law)*;)* }
    };
    (@on $backend:ident: $($area:ident: $($law:ident)*;)*) => {
        mod $backend {
            $(mod $area {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $law() {
                        crate::support::$backend::run(crate::store_laws::$area::$law).await;
                    }
                )*
            })*
        }
    };
}

laws! {
    stacks:
        entries_stand_in_the_order_they_were_pushed
        a_push_of_nothing_is_no_error
        days_are_kept_apart
        a_repeated_push_adds_nothing
        a_partly_repeated_push_adds_only_what_is_missing
        an_entry_twice_in_one_list_stands_once
        two_fan_outs_about_one_object_both_stand
        one_fan_out_about_an_object_by_two_types_stands_twice
        concurrent_writers_on_a_persons_first_event_of_the_day_lose_nothing
        concurrent_repeats_of_one_push_double_nothing
        a_push_reaches_each_of_many_people_with_their_list
        a_long_list_is_pushed_whole
        the_cap_is_honoured_exactly_and_reported_again_on_repeat
        a_full_stack_takes_nothing_and_all_is_reported
        what_fits_of_a_first_list_is_stored_in_list_order
        entries_that_stand_already_take_no_room_again
        the_capped_are_told_by_their_place_among_the_people
        markers_take_room_under_the_cap
        concurrent_pushes_never_grow_a_stack_past_its_cap
        odd_names_are_kept_as_they_are;
    long_lists:
        concurrent_repeats_of_long_lists_double_nothing
        of_merged_long_lists_only_what_is_missing_is_added
        a_long_list_fits_under_the_cap_exactly_or_in_part
        what_was_mailed_on_its_own_keeps_no_long_list_out;
    marks:
        a_marker_stands_at_the_end_of_each_named_stack
        a_marker_written_twice_stands_once
        concurrent_repeats_of_one_marker_stand_once
        markers_that_differ_in_id_or_reach_all_stand
        a_marker_is_written_past_the_cap
        a_marker_makes_no_stack_and_no_day
        a_marker_for_a_dropped_day_is_no_error
        an_event_pushed_between_read_and_mark_stays_pending
        marks_and_pushes_at_once_lose_nothing
        each_of_many_people_gets_their_own_marker
        people_who_are_marked_alike_are_marked_once_and_nobody_between_them
        no_marks_are_no_error
        what_was_mailed_on_its_own_stands_once_at_the_end
        what_was_mailed_on_its_own_makes_no_stack_and_is_not_pending;
    accumulators:
        a_accumulator_comes_back_with_every_field
        a_accumulator_is_put_in_the_place_of_what_was_read_and_of_nothing_else
        of_a_accumulator_that_is_named_twice_one_is_put
        of_many_who_open_one_accumulator_at_once_one_is_told_yes
        of_many_who_change_a_accumulator_at_once_nobodys_change_is_lost
        an_empty_accumulator_is_removed_and_can_be_taken_again
        odd_keys_and_people_have_accumulators_of_their_own
        many_accumulators_are_put_and_read_at_once
        due_accumulators_come_in_the_order_in_which_they_fell_due
        a_accumulator_that_somebody_holds_is_not_due_until_the_lease_runs_out
        a_batch_is_found_on_its_accumulator_until_it_leaves
        accumulators_are_found_by_what_their_batches_keep;
    adding:
        what_is_added_to_an_open_batch_is_what_joining_comes_to_and_nothing_else_changes
        what_is_added_to_many_open_batches_at_once_is_to_each_what_joining_comes_to;
    neighbors:
        what_is_pushed_to_neighbors_stands_once_on_each_of_their_stacks_and_on_no_others
        who_has_no_stack_or_no_room_is_found_among_neighbors
        of_many_who_push_to_the_same_neighbors_each_does;
    inboxes:
        an_inbox_comes_back_with_every_field
        a_feed_is_what_its_parts_are_by_themselves
        an_inbox_is_put_in_the_place_of_what_was_read_and_of_nothing_else
        of_many_who_mark_at_once_nobodys_mark_is_lost
        of_many_puts_at_once_each_is_told_its_own_end
        inboxes_that_nobody_marked_for_long_are_forgotten;
    pokes:
        whoever_listens_hears_of_pushes_marks_and_objects
        who_listens_late_hears_of_what_comes;
    batches:
        a_batch_is_filed_once_and_comes_back_with_every_field
        a_batch_that_was_filed_with_other_events_is_a_conflict
        only_a_closing_batch_is_settled
        batches_are_found_newest_first_by_person_key_and_state
        counts_are_exact
        what_was_settled_long_ago_is_forgotten_in_small_steps
        with_a_limit_of_none_none_are_found_and_none_forgotten;
    scans:
        a_scan_meets_everybody_once_in_ascending_order
        a_scan_comes_in_chunks_and_the_chunks_join_without_a_seam
        a_scan_brings_each_person_all_their_days_in_order
        a_scan_goes_on_after_any_user
        a_scan_leaves_out_what_is_not_in_the_window
        a_scan_of_an_empty_window_is_empty
        a_scan_while_others_push_meets_everybody_who_was_there
        windows_come_in_the_order_asked
        windows_hold_only_those_asked_for
        windows_of_many_people_come_at_once
        windows_of_nobody_are_none;
    old_documents:
        events_without_a_fan_out_are_read
        a_bare_marker_covers_all_before_it
        a_reach_of_any_number_type_is_read
        a_marker_without_an_id_is_a_marker_all_the_same
        a_document_under_an_object_id_belongs_to_its_hex_text
        an_object_under_an_object_id_is_read_as_its_hex_text
        both_forms_of_a_person_come_together
        people_under_object_ids_are_met_in_the_order_of_their_text
        a_marker_goes_to_the_form_it_names
        a_marker_for_the_old_form_of_somebody_who_has_none_is_no_error
        what_nobody_knows_holds_its_place
        a_push_onto_an_old_document_keeps_what_stood_there;
    days:
        days_are_listed_oldest_first_with_exact_counts
        a_dropped_day_is_gone_and_can_be_written_again
        dropping_a_day_that_does_not_exist_is_no_error
        an_export_shows_documents_as_they_stand_text_before_object_ids
        an_export_of_many_documents_misses_none
        what_was_exported_comes_back_exactly
        a_restored_day_can_be_restored_again
        a_document_that_differs_is_a_conflict_and_changes_nothing
        what_cannot_be_a_document_is_refused
        a_day_is_dropped_only_if_it_is_what_was_seen
        a_day_that_does_not_exist_is_dropped_by_nobody_and_is_no_error
        what_is_written_while_a_day_goes_is_never_lost
        an_exported_stack_is_appended_once_and_its_markers_cover_nothing_that_waits;
    people:
        a_record_comes_back_with_every_field
        every_cadence_weekday_and_route_comes_back
        windows_of_their_own_come_back_beside_choices_without
        records_come_in_the_order_asked_and_the_unknown_are_none
        putting_a_record_again_replaces_it_whole
        many_records_are_put_and_read_at_once
        odd_ids_have_records_like_any_other
        a_record_is_put_in_the_place_of_what_was_read_and_of_nothing_else
        each_of_many_puts_is_answered_in_the_order_asked
        of_many_who_change_a_record_at_once_nobodys_change_is_lost
        of_many_who_create_a_record_at_once_one_is_told_yes
        a_record_that_was_deleted_meanwhile_does_not_come_back
        a_deleted_record_is_gone_and_stacks_stay;
    directory:
        followers_are_paged_in_ascending_order
        whether_follows_stand_is_told_in_the_order_asked
        what_somebody_follows_is_paged_in_ascending_order
        everybody_with_a_record_is_paged_in_ascending_order
        following_twice_is_following_once
        many_follow_at_once
        who_unfollows_is_gone_and_unfollowing_again_is_no_error
        keys_that_look_alike_are_kept_apart
        nobody_follows_an_unknown_key
        whoever_is_deleted_follows_nothing_any_more
        near_respects_the_distance
        near_is_paged_in_ascending_order
        near_crosses_the_antimeridian
        near_a_pole_every_longitude_counts
        near_anywhere_finds_everybody_who_has_a_place
        whoever_moves_or_leaves_is_found_where_they_are;
    objects:
        a_record_comes_back_with_every_field
        data_of_very_many_values_comes_back_as_its_text
        data_of_any_shape_comes_back
        numbers_come_back_as_they_were
        what_is_not_notifiable_comes_back_as_such
        records_come_in_the_order_asked_and_the_unknown_are_none
        many_records_are_put_and_read_at_once;
    choices:
        people_are_found_by_what_they_chose_in_ascending_order
        whose_choices_change_is_found_by_the_new_ones
        the_zones_that_people_chose_are_told_once
        the_locales_of_users_are_returned_once;
    details:
        what_is_said_of_an_event_comes_back_as_it_was
        a_forgotten_actor_is_gone_from_all_details_and_others_stay;
    retractions:
        what_is_taken_back_comes_back_in_the_order_asked
        the_latest_retraction_stands_whatever_comes_first
        of_many_who_take_one_thing_back_at_once_the_latest_stands
        whoever_listens_hears_what_was_taken_back
        old_retractions_are_forgotten_in_small_steps
        events_of_long_ago_are_forgotten_once_they_are_fanned_out;
    accepting:
        what_is_accepted_is_in_the_journal_with_every_field
        batch_keys_come_back_as_they_are_and_none_as_none
        a_key_is_accepted_once_and_answered_with_what_has_it
        of_two_with_one_key_in_one_call_the_first_is_new
        of_many_who_accept_one_key_at_once_one_is_new
        a_known_answer_shows_how_far_it_is
        many_are_accepted_at_once;
    journal:
        fan_outs_are_claimed_oldest_first_up_to_the_limit
        small_fan_outs_are_claimed_with_those_before_them
        very_many_small_fan_outs_are_claimed_together
        a_cursor_that_is_not_said_stays
        what_somebody_holds_is_not_claimed_again_until_the_lease_runs_out
        claimants_at_once_never_share
        progress_is_saved_and_the_lease_goes_on
        a_claimant_goes_on_where_the_last_one_stopped
        a_save_is_refused_after_the_lease_is_lost
        saves_are_answered_in_the_order_asked
        what_is_done_leaves_the_backlog_and_gives_up_its_lease
        what_is_released_can_be_claimed_at_once
        busy_days_are_those_with_pending_fan_outs
        an_empty_journal_has_nothing_to_do;
    announced:
        the_oldest_pending_fan_out_is_told_until_it_is_done
        the_newest_events_come_first
        a_long_audience_is_accepted_claimed_and_known_whole;
    deliveries:
        an_opened_row_comes_back_with_every_field
        a_delivery_is_opened_once_an_id
        a_slot_has_one_open_delivery
        of_many_who_open_one_delivery_at_once_one_wins
        only_rows_whose_lease_has_run_out_are_claimed
        rows_are_claimed_by_slot_up_to_the_limit
        claimants_at_once_never_share
        what_is_released_can_be_claimed_at_once
        a_persons_deliveries_come_newest_first
        rows_come_in_the_order_asked_and_the_unknown_are_none
        the_deliveries_in_a_state_come_newest_first
        nothing_asked_is_nothing_done;
    settling:
        sending_is_for_the_holder_counts_an_attempt_and_notes_the_call
        who_was_surely_not_taken_is_pending_again_and_still_held
        a_mail_that_was_taken_after_all_has_no_reason_any_more
        only_a_holder_holds_on
        what_is_deferred_is_nobodys_before_its_time_and_keeps_its_reason
        a_call_is_taken_over_whole_whoever_holds_its_rows
        who_knows_better_ends_an_unknown_delivery
        only_a_closed_unknown_delivery_is_judged_and_only_where_its_slot_is_free
        a_lost_lease_can_neither_send_nor_settle
        a_settled_row_says_how_it_ended_and_stays_open
        a_row_is_settled_once
        a_settled_row_is_claimed_again_until_it_is_closed
        closing_is_only_for_settled_rows_and_harmless_again
        counts_are_exact_for_each_state
        closed_rows_of_long_ago_are_forgotten_and_unknown_ones_stay
        many_rows_go_all_the_way_at_once;
    transitions:
        of_many_transitions_those_are_made_whose_condition_holds
        where_many_are_changed_alike_each_keeps_what_is_its_own
        what_is_concluded_is_settled_and_closed_and_its_slot_is_free;
    reopening:
        spent_tries_are_counted_and_other_waits_are_not
        what_waits_can_be_let_go_and_what_is_held_or_in_doubt_stays
        what_failed_is_opened_again_as_if_it_were_new
        a_pending_delivery_is_canceled_and_closed_even_while_it_is_leased
        only_a_pending_delivery_is_canceled
        only_a_closed_failed_delivery_is_opened_again_and_only_where_its_slot_is_free
        the_open_digests_of_people_are_found
        rows_in_a_state_are_found_since_some_moment
        rows_in_a_state_are_found_within_a_span_and_by_feedback
        the_digests_of_a_person_since_some_moment_are_found;
    leases:
        a_lease_is_exclusive
        a_lease_that_has_run_out_is_free
        a_holder_extends_their_lease
        a_lease_given_up_is_free
        of_many_who_ask_at_once_one_gets_it
        of_many_who_ask_for_one_that_has_run_out_one_gets_it
        odd_names_are_leased_like_any_other;
    clocks:
        a_lease_taken_by_a_clock_ahead_is_nobodys
        a_fan_out_claimed_by_a_clock_ahead_can_be_claimed
        a_delivery_held_or_put_off_by_a_clock_ahead_can_be_claimed
        a_accumulator_held_by_a_clock_ahead_is_due;
    notes:
        a_note_is_read_by_everybody_until_it_is_forgotten
        of_many_who_write_a_note_first_at_once_all_are_told_the_same
        a_note_is_changed_only_from_what_was_read
        of_many_who_change_a_note_at_once_one_is_told_yes
        notes_are_found_by_how_their_names_begin
        notes_are_read_by_their_names_in_the_given_order;
    addresses:
        people_are_found_by_their_address_in_any_case_and_form
        people_with_one_address_are_paged_in_ascending_order
        addresses_of_several_records_are_counted
        no_more_records_are_counted_than_the_limit;
    transfer:
        every_record_is_exported_and_imported_whole
        pages_join_without_a_gap
        an_imported_record_replaces_the_stored_one
        an_unreadable_record_is_reported_and_stops_no_other
        the_notes_about_the_store_itself_are_not_exported
        one_of_many_concurrent_marks_wins;
    suppressions:
        a_suppressed_address_comes_back_with_every_field
        an_address_is_suppressed_however_it_is_spelt
        the_graver_news_stands_whatever_comes_first
        of_many_who_suppress_one_address_at_once_the_gravest_stands
        of_two_for_one_address_in_one_call_the_graver_stands
        many_addresses_are_looked_up_at_once_in_the_order_asked
        the_list_is_paged_in_ascending_order
        what_is_lifted_can_be_written_to_and_suppressed_again
        news_from_before_a_lift_suppresses_nothing
        lifts_from_long_ago_are_forgotten_at_the_next
        counts_are_exact_for_each_reason
        odd_addresses_are_suppressed_like_any_other
        soft_bounces_count_once_a_mail_and_only_lately
        soft_bounces_are_forgotten_when_an_address_is_lifted;
    feedback:
        a_mail_is_found_by_its_tag
        mails_are_found_by_their_providers_ids_and_several_may_share_one
        the_worst_news_stands_whatever_comes_first
        of_many_who_bring_news_at_once_the_worst_stands
        news_of_a_mail_that_is_being_sent_keeps_nobody_from_settling_it
        news_of_unknown_mails_change_nothing
        the_echo_counts_mails_by_when_they_were_settled
        what_was_settled_since_is_counted_by_cadence_period_and_state;
    sightings:
        the_first_mark_stands_until_it_is_over
        of_many_who_come_with_one_key_at_once_all_are_told_the_same
        marks_come_back_in_the_order_asked;
    condition:
        a_store_says_what_it_runs_on
        a_fresh_store_lacks_no_index
        what_is_to_be_done_is_counted_with_since_when
        the_servers_clock_is_asked_and_nothing_is_left_by_asking;
    repeats:
        what_was_refused_can_be_done_again
        what_was_done_unheard_can_be_done_again
        whoever_dies_before_a_verb_is_replaced
        whoever_dies_after_a_verb_is_replaced;
}
