//! Dry runs show when batches will be sent: leads at once, and deferred batches when quiet hours
//! end. Sent batches are not counted.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::delivery::{Settlement, Transition};
use tidings::domain::{DeliveryState, Quiet};
use tidings::engine::Silent;
use tidings::engine::digest::Request;
use tidings::operate::preview::Kind;
use tidings::store::Claim;

use super::dry_run_batches::{CONFIG, after, ahead, dry_run_of};
use super::mandatory::happens;
use crate::support::town::{Town, mostly_on_sqlite, to};
use crate::support::{Fresh, user};

mostly_on_sqlite! {
    a_dry_run_shows_when_batches_close
    a_pending_lead_is_a_separate_email
    settled_emails_and_empty_batches_are_not_counted
    quiet_hours_defer_the_batch_after_a_mandatory_lead
}

async fn a_dry_run_shows_when_batches_close(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    // Ben has quiet hours until noon.
    town.change("ben", |ben| {
        ben.tz = Some(chrono_tz::UTC);
        let (from, to) = ("09:00".parse().unwrap(), "12:00".parse().unwrap());
        ben.quiet = Quiet::new(from, to).ok();
    })
    .await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    happens(&town, "Show", &["a2"], to(&["ada"])).await;
    // Cem's batch has closed, and its email is pending.
    let app = town.process();
    let theirs = tidings::store::BatchFilter {
        user: Some(user("cem")),
        ..Default::default()
    };
    let of_cem = town.store.find_batches(&theirs, None, 1).await.unwrap();
    let end = tidings::engine::batches::End::Close;
    app.batches().end(of_cem[0].id, end).await.unwrap();
    app.batches().drain(&Silent).await.unwrap();
    town.clock.set(after(5));

    let (now, page) = ahead(&town).await;
    let later = Request {
        at: Some(after(60)),
        ..Request::default()
    };
    let (report, _) = dry_run_of(&town, &later).await;
    let later = report.dry_run.batches.unwrap();
    let noon = Request {
        at: Some(after(121)),
        ..Request::default()
    };
    let (report, _) = dry_run_of(&town, &noon).await;
    let noon = report.dry_run.batches.unwrap();
    // Ada's first batch closes before her quiet hours begin.
    town.change("ada", |ada| {
        ada.tz = Some(chrono_tz::UTC);
        let (from, to) = ("11:30".parse().unwrap(), "13:00".parse().unwrap());
        ada.quiet = Quiet::new(from, to).ok();
    })
    .await;
    let night = Request {
        at: Some(after(119)),
        ..Request::default()
    };
    let (report, _) = dry_run_of(&town, &night).await;
    let night = report.dry_run.batches.unwrap();
    // The clock advances, but no worker runs.
    town.clock.set(after(125));
    let (late, _) = ahead(&town).await;

    assert_eq!(
        (noon.due, noon.later, noon.held, noon.next),
        (3, 0, 0, None),
        "{noon:?}"
    );
    assert_eq!((night.due, night.held), (2, 1), "{night:?}");
    assert_eq!((late.due, late.held), (1, 2), "{late:?}");
    assert_eq!(
        (now.closing, now.due, now.later, now.held, now.next),
        (1, 1, 2, 1, Some(after(60))),
        "{now:?}"
    );
    assert_eq!(page.mails, 4);
    assert_eq!(
        (
            later.closing,
            later.due,
            later.later,
            later.held,
            later.next
        ),
        (1, 2, 1, 1, Some(after(120))),
        "{later:?}"
    );
}

async fn a_pending_lead_is_a_separate_email(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "Lead", &["a1"], to(&["ada"])).await;
    let (alone, _) = ahead(&town).await;
    happens(&town, "Lead", &["a2"], to(&["ada"])).await;
    happens(&town, "Lead", &["a3"], to(&["ada"])).await;

    let (both, page) = ahead(&town).await;
    let drafts = town
        .process()
        .of_person()
        .drafts(&user("ada"), None)
        .await
        .unwrap();
    town.send_due_at(after(1)).await;
    let (rest, _) = ahead(&town).await;
    town.send_due_at(after(61)).await;

    assert_eq!((alone.batches, alone.mails, alone.events), (1, 1, 1));
    assert_eq!((both.batches, both.mails, both.events), (2, 2, 3));
    assert_eq!((both.closing, both.later), (1, 1));
    assert_eq!((rest.mails, rest.events, rest.later), (1, 2, 1));
    let subjects: BTreeSet<String> = town
        .mails()
        .into_iter()
        .map(|mail| mail.content.subject.clone())
        .collect();
    let shown = page.samples.into_iter().map(|one| one.subject);
    let shown: BTreeSet<String> = shown.collect();
    assert_eq!((subjects.len(), shown), (2, subjects));
    let previewed: BTreeSet<String> = drafts
        .iter()
        .filter(|draft| draft.kind() == Kind::Batch)
        .map(|draft| draft.name.clone())
        .collect();
    assert_eq!(
        previewed.len(),
        2,
        "a look at a person has both: {previewed:?}"
    );
}

async fn settled_emails_and_empty_batches_are_not_counted(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "Lead", &["a1"], to(&["ada"])).await;
    happens(&town, "Alarm", &["a2"], to(&["ben", "cem"])).await;
    let app = town.process();
    app.batches().drain(&Silent).await.unwrap();
    let (waiting, _) = ahead(&town).await;

    // Ada's lead is settled. A worker crashes after it settles Ben's email and before his batch.
    let until = town.clock.now() + TimeDelta::hours(1);
    let (now, limit) = (town.clock.now(), 10);
    let free = Claim::Free { now, limit };
    let rows = town.store.claim("dead", until, &free).await.unwrap();
    let settled = rows.iter().filter(|row| row.user != user("cem"));
    let settled = settled.map(|row| {
        let canceled = Settlement::of(row, DeliveryState::Canceled, 0, None);
        Transition::Settle(canceled)
    });
    let settled: Vec<Transition> = settled.collect();
    let advanced = town.store.advance("dead", now, until, &settled).await;
    let (left, page) = ahead(&town).await;

    assert_eq!(advanced.unwrap(), [true, true]);
    assert_eq!(
        (waiting.batches, waiting.mails, waiting.closing),
        (3, 3, 3),
        "{waiting:?}"
    );
    assert_eq!(
        (left.batches, left.mails, left.closing),
        (1, 1, 1),
        "{left:?}"
    );
    assert_eq!(page.samples.len(), 1);
    assert_eq!(page.mails, left.batches);
}

async fn quiet_hours_defer_the_batch_after_a_mandatory_lead(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "First", &["a1"], to(&["ada"])).await;
    happens(&town, "Next", &["a2"], to(&["ada"])).await;
    town.change("ada", |ada| {
        ada.tz = Some(chrono_tz::UTC);
        let (from, to) = ("10:30".parse().unwrap(), "13:00".parse().unwrap());
        ada.quiet = Quiet::new(from, to).ok();
    })
    .await;

    let (counts, _) = ahead(&town).await;
    town.send_due_at(after(61)).await;
    let by_night = town.mails().len();
    town.send_due_at(after(180)).await;

    assert_eq!(
        (counts.mails, counts.closing, counts.held, counts.next),
        (2, 1, 1, Some(after(180))),
        "{counts:?}"
    );
    assert_eq!((by_night, town.mails().len()), (1, 2));
}
