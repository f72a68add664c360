//! The values and rules of tidings.
//!
//! Everything here is pure and synchronous: no I/O, no clock, no randomness. Times and ids are
//! arguments, and constructors validate, so a value that exists is valid. Start with [`stack`] (the
//! entries of a user's day) and [`digest`] (the events that an email includes).

pub mod about;
pub mod acceptance;
pub mod address;
pub mod audience;
pub mod batch;
pub mod brand;
pub mod cadence;
pub mod content;
pub mod day;
pub mod delivery;
mod delivery_state;
pub mod details;
pub mod digest;
pub mod digest_row;
pub mod due_choices;
pub mod duration;
pub mod eligibility;
pub mod enhanced_status;
pub mod event;
pub mod fanout;
pub mod feed;
pub mod feedback;
pub mod group;
pub mod id;
pub mod inbox;
mod item_state;
pub mod json;
pub mod lease;
pub mod link;
pub mod locale;
pub mod moment;
pub mod mute;
pub mod name;
mod nearest;
pub mod object;
pub mod owed;
pub mod pause;
pub mod poke;
pub mod policy;
pub mod quiet;
pub mod retraction;
pub mod secret;
pub mod sending;
pub mod server_key;
pub mod share;
pub mod stack;
pub mod start;
pub mod stop;
pub mod suppression;
pub mod user;
pub mod user_token;

pub use acceptance::Acceptance;
pub use address::Address;
pub use audience::{Audience, Point, Selector};
pub use batch::{Batch, BatchKey, BatchPolicy, BatchState, ChosenKey};
pub use brand::{BrandName, Brands};
pub use cadence::{Cadence, Due, Period, Schedule};
pub use content::Content;
pub use day::{Day, Window};
pub use delivery::{Delivery, DeliveryId, DeliveryState, Occasion, Tag};
pub use details::Details;
pub use due_choices::DueChoices;
pub use eligibility::{Exclusion, Facts, ObjectState, Purpose, classify};
pub use enhanced_status::{EnhancedStatus, FailureKind};
pub use event::{Entry, Event, Mailed, Marker};
pub use fanout::{Counts, Fanout, FanoutState, Progress};
pub use feedback::{Feedback, ReportCounts, ReportKind};
pub use id::Id;
pub use inbox::Inbox;
pub use json::Json;
pub use lease::Lease;
pub use mute::{Mute, Mutes};
pub use name::{
    EventType, FollowKey, Invalid, KeyName, Kind, ModelName, ObjectId, Subject, UserId,
};
pub use nearest::nearest;
pub use object::{Object, ObjectKey};
pub use owed::{Backlog, DayNote, DaysRead, LastLook, Owed};
pub use pause::Pause;
pub use poke::{Poke, PokeKey};
pub use policy::{Category, EmailScope, Mandate, Phrase, Policies, Policy, Route, UnknownObjects};
pub use quiet::Quiet;
pub use retraction::Retraction;
pub use secret::Secret;
pub use sending::Sending;
pub use server_key::{KeyRecord, Scope};
pub use share::Share;
pub use stack::{
    BadStack, Defect, Form, PersonStacks, Position, Stack, StackId, Watermarks, covered,
};
pub use start::Start;
pub use stop::Stop;
pub use suppression::{Reason, Suppression};
pub use user::User;
pub use user_token::TokenKey;
