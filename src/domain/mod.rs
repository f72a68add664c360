//! The values and rules of tidings.
//!
//! Everything here is pure and synchronous: no I/O, no clock, no randomness. Times and ids are
//! arguments, and constructors validate, so a value that exists is valid. Start with
//! [`day_stack`] (the entries of a user's day) and [`digest_content`] (the events that an email
//! includes).

pub mod address;
pub mod audience;
pub mod backlog;
pub mod batch;
pub mod coordination;
pub mod day;
pub mod day_stack;
pub mod delivery;
pub mod details;
pub mod digest_content;
pub mod durations_and_times;
pub mod eligibility;
pub mod email_sections;
pub mod error_chain;
pub mod fanout;
pub mod feed_marks;
pub mod feed_page;
pub mod feedback;
pub mod json_text;
pub mod mutes_and_quiet_hours;
pub mod name;
pub mod object;
pub mod schedule;
pub mod secrets;
pub mod send_settings;
pub mod site;
pub mod stop_action;
pub mod text_checks;
pub mod timed_id;
pub mod type_policy;
pub mod user;
pub mod user_id_reuse;

pub use address::Address;
pub use audience::{Audience, Point, Selector, distinct};
pub use backlog::{Backlog, DayNote, DigestDays, PendingCounts};
pub use batch::{Batch, BatchKey, BatchPolicy, BatchState, ChosenKey};
pub use coordination::{ChangeNotice, Lease, NoticeKey, Pause};
pub use day::{Day, DaySet};
pub use day_stack::{
    BatchMarker, Defect, DefectiveStack, DigestMarker, Entry, Event, IdForm, Position, Retraction,
    Stack, StackId, UserStacks, Watermarks, count_covered,
};
pub use delivery::{Delivery, DeliveryId, DeliverySource, Tag};
pub use details::Details;
pub use eligibility::{EligibilityFacts, Exclusion, ObjectState, Purpose, classify};
pub use email_sections::EmailContent;
pub use fanout::{Fanout, FanoutCounts, FanoutProgress, FanoutState};
pub use feed_marks::Inbox;
pub use feedback::{
    DeliveryState, EnhancedStatus, FailureKind, Feedback, ReportCounts, ReportKind, Suppression,
    SuppressionReason,
};
pub use json_text::Json;
pub use mutes_and_quiet_hours::{Mute, Mutes, QuietHours};
pub use name::{
    BrandName, EventType, FollowKey, InvalidKind, InvalidValue, KeyName, ModelName, ObjectId,
    Subject, UserId, most_similar,
};
pub use object::{Object, ObjectKey};
pub use schedule::{Cadence, DuePeriod, DueUserFilter, Schedule};
pub use secrets::{KeyRecord, Scope, Secret, TokenKey};
pub use send_settings::{SendSettings, Share};
pub use site::Site;
pub use stop_action::StopAction;
pub use text_checks::{Category, Mandate, Phrase};
pub use timed_id::Id;
pub use type_policy::{EmailScope, Policies, Policy, Route, UnknownObjects};
pub use user::User;
pub use user_id_reuse::RecordStart;
