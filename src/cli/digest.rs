//! `tidings digest`: sends the digests that are due; made for a cron line.
//!
//! It prints its result on one line, and problems with their counts on standard error.

use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::exit::causes;
use super::remaining_work::{FanOutEnd, backlog_lines, read_waits, show_rest};
use super::session::{Access, App, Exit, Refusal, Screen, Session};
use super::session::{last_write, phrases, within_grace};
use crate::domain::{Pause, UserId};
use crate::engine::digest::DigestRequest;
use crate::private;
use crate::render::dry_run_page::DryRunPage;
use crate::wire::delivery::WaitingEmails;
use crate::wire::run_report::{DigestReport, DigestRun, Ended, Tally};
use crate::wire::status::DigestActivity;

/// Send the digests that are due
///
/// Fans out accepted events that no worker holds, finishes what an earlier run left, and sends each
/// due user one email per period, however often it runs. So an hourly cron line is enough:
/// 0 * * * *  tidings digest --config FILE
///
/// It ends when every email is settled, or when waiting cannot help, and accounts for every user
/// who was due. When too many emails fail, or the provider rejects everything, sending pauses for
/// all processes until --resume.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Only digests of this cadence
    #[arg(long, value_parser = ["weekly", "daily"])]
    cadence: Option<String>,
    /// Count the emails that would be sent, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: write an HTML page with the counts, the sizes and sample emails
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    report: Option<PathBuf>,
    /// Only these users
    #[arg(long, value_name = "USER", num_args = 1..)]
    user: Vec<UserId>,
    /// Act as if it were this time
    #[arg(long, value_name = "TIME", value_parser = phrases::parse_time)]
    at: Option<DateTime<Utc>>,
    /// Maximum number of emails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Do not wait for emails that the provider delays; the next run or a worker continues
    #[arg(long)]
    no_wait: bool,
    /// End a pause of sending, then run
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Do not wait for each user's hour: include every user with pending events and no email this
    /// period
    #[arg(long)]
    now: bool,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let access = match self.dry_run {
            true => Access::Read,
            false => Access::Write,
        };
        let (app, stop) = session.open_to_send(access).await?;
        let (app, screen) = (&app, &mut *session.screen);
        let now = app.context.clock.now();
        if let Some(at) = self.at.filter(|at| *at > now && !self.dry_run) {
            let why = "lies ahead, and an email cannot be sent before its time";
            let what = format!("--at {} UTC {why}", phrases::minute(at));
            let next = "--dry-run, which says what would be sent then; or leaving --at out";
            return Err(Refusal::new(what, next).into());
        }
        let request = self.request(app);
        self.report.as_deref().map_or(Ok(()), check_page)?;
        if self.resume {
            let pause = app.deliveries().resume().await?;
            let was = pause.map(|pause| format!("resumed; it was {}", paused(&pause)));
            screen.warning(was.unwrap_or_else(|| "nothing was paused".to_owned()))?;
        }
        let (mut fanned_out, mut report) = (FanOutEnd::default(), DigestReport::default());
        let mut found = None;
        let work = async {
            if !self.dry_run {
                let bar = screen.bar("people reached").until(stop.clone());
                fanned_out = FanOutEnd::all(app, &bar).await;
            }
            let bar = screen.bar("people looked at").until(stop.clone());
            if self.report.is_some() {
                let (counts, emails) = app.dry_run().run(&request, &bar).await?;
                (report, found) = (counts, Some(emails));
            } else {
                let digests = app.digests();
                digests.run_into(&mut report, &request, &bar).await?;
            }
            anyhow::Ok(())
        };
        let done = within_grace(app, &stop, work).await;
        let stopped = *stop.borrow();
        if done.is_none() && self.dry_run {
            return self.stopped(screen);
        }
        let is_cut_off = done.is_none();
        // If emails were sent before a failure, their counts come first.
        let failure = match done.transpose() {
            Err(failure) if report.emails == Tally::default() => return Err(failure),
            done => done.err(),
        };
        let ends_early = stopped || failure.is_some();
        // Report the failures of the last writes beside the result.
        let mut notes = Vec::new();
        if ends_early {
            report.ended.get_or_insert(Ended::Stopped);
            // At the end of the grace, `within_grace` has released the leases.
            if !is_cut_off
                && !self.dry_run
                && let Err(error) = last_write(true, app.worker().release()).await
            {
                let then = "other processes can send its emails once its leases expire";
                notes.push(format!("{then}: {}", causes(&error)));
            }
        }
        report.emails.bad_stacks += std::mem::take(&mut fanned_out.done.bad_stacks);
        let mut waits = Ok(WaitingEmails::default());
        if self.dry_run {
            // A pause stops the emails that it counts, and it misses pending events.
            let pause = app.deliveries().pause().await?;
            notes.extend(pause.map(|pause| format!("no email is sent: {}", paused(&pause))));
            let pending = app.status().not_fanned_out().await?;
            if pending > 0 {
                let events = phrases::count(pending, "accepted event", "accepted events");
                let next = "`tidings worker --once` fans them out";
                let why = format!("{events} not fanned out yet and missing here; {next}");
                notes.push(why);
            }
        } else {
            let run = DigestActivity::of(&report, app.context.clock.now());
            let activity = app.activity();
            if let Err(error) = last_write(ends_early, activity.record_digests(&run)).await {
                notes.push(causes(&error));
            }
            waits = read_waits(app, request.users.as_deref(), ends_early).await;
        }
        notes.extend(found.iter().flat_map(|found| found.failures.clone()));
        notes.extend(report.unknown_names.warnings(&app.config.policies));
        notes.extend(report.dry_run.warnings());
        notes.extend(backlog_lines(&report.backlog));
        if report.due.users > 0 && app.identities.lacks_links() {
            let why = "these emails contain no unsubscribe link, because server.public_url is not \
                       set: people will report them as spam";
            notes.push(why.into());
        }
        let at = request.at.unwrap_or(now);
        let done = sentence(&report, &request, app.identities.outbox());
        let mut lines = vec![format!("digest {} UTC: {done}", phrases::minute(at))];
        // A page about part of the users would mislead.
        let page = self.report.as_deref().filter(|_| !stopped);
        if let (Some(path), Some(found)) = (page, found) {
            let page = DryRunPage {
                at: at.format("%-d %B %Y, %H:%M UTC").to_string(),
                counts: lines.clone(),
                warnings: notes.clone(),
                found,
            };
            let page = page.render(&app.config.site)?;
            let (written, path) = (private::replace(path, page), path.display());
            written.with_context(|| format!("writing the report {path}"))?;
            lines.push(format!("report: {path}"));
        }
        let run = DigestRun {
            at,
            dry_run: self.dry_run,
            page,
            emails_waiting: waits.as_ref().ok(),
            bad_fanouts: &fanned_out.done.bad_fanouts,
            report: &report,
        };
        if !screen.answer(&run)? {
            lines.iter().try_for_each(|line| screen.line(line))?;
        }
        let is_whole = show_rest(app, (&report.emails, &fanned_out, &waits), screen)?;
        screen.warnings(notes)?;
        screen.warnings(report.ended.as_ref().map(why_ended))?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if stopped {
            return self.stopped(screen);
        }
        Ok(exit(&report).if_whole(is_whole))
    }

    fn stopped(&self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let next = "the next run goes on from there";
        screen.warning(format!("stopped before everything was done; {next}"))?;
        let part = "no report was written, as it would be of a part of the people";
        screen.warnings(self.report.as_ref().map(|_| part))?;
        Ok(Exit::Partly)
    }

    fn request(&self, app: &App) -> DigestRequest {
        let cadence = self.cadence.as_ref();
        DigestRequest {
            at: self.at,
            cadence: cadence.and_then(|cadence| cadence.parse().ok()),
            users: Some(self.user.clone()).filter(|users| !users.is_empty()),
            limit: self.limit,
            patience: (!self.no_wait).then_some(app.config.delivery.patience),
            now: self.now,
            dry_run: self.dry_run,
        }
    }
}

/// Checks before the run that a page can be written to this path, as far as this is known then.
fn check_page(path: &Path) -> Result<(), Refusal> {
    if path.is_dir() || path.file_name().is_none() {
        let what = format!("--report: {} is a folder", path.display());
        return Err(Refusal::new(what, "name a file in it, such as report.html"));
    }
    Refusal::check_folder("--report", path)
}

/// Returns 3 if only some emails were sent, and 1 if none was. A pause is never a success.
fn exit(report: &DigestReport) -> Exit {
    let held = report.due.held + u64::from(matches!(report.ended, Some(Ended::Paused(_))));
    exit_of(&report.emails, held)
}

/// Does the same for emails only, with this number of emails that were held back.
pub(super) fn exit_of(tally: &Tally, held: u64) -> Exit {
    let bad = tally.failed + tally.unknown + tally.deferred + held;
    // An operator has to repair these documents.
    Exit::of(tally.sent, bad).if_whole(tally.bad_stacks.is_empty())
}

/// Describes a pause: `paused since 2014-04-21 09:30 UTC: 12 of the last 50 emails failed`.
pub(super) fn paused(pause: &Pause) -> String {
    let since = phrases::minute(pause.at);
    format!("paused since {since} UTC: {}", pause.reason)
}

fn why_ended(ended: &Ended) -> String {
    match ended {
        Ended::Paused(pause) => {
            let next =
                "fix that, then `tidings digest --resume`; until then no process sends anything";
            format!("{}\n  try: {next}", paused(pause))
        }
        Ended::Patience => {
            let next = "the next run goes on with them";
            format!("some emails still wait, and nothing moved for delivery.patience; {next}")
        }
        Ended::Stopped => "stopped while some emails wait; the next run goes on with them".into(),
    }
}

/// Summarizes the run: `1,234 due, 1,230 sent, 2 failed; 310 waiting (next due 2014-04-29 09:00),
/// 12 unconfirmed`.
fn sentence(report: &DigestReport, request: &DigestRequest, outbox: Option<&Path>) -> String {
    let done = match request.dry_run {
        true => would_be_sent(report),
        false => phrases::list([
            Some(due(report)),
            Some(sent(&report.emails, outbox)),
            phrases::some(report.due.held, "not begun"),
            report.limited.then(|| "stopped at the limit".to_owned()),
        ]),
    };
    phrases::clauses([done, left(report, request)])
}

fn due(report: &DigestReport) -> String {
    match report.due.users {
        0 if report.users.scanned == 0 && report.ended == Some(Ended::Stopped) => {
            "no user was checked".into()
        }
        0 if report.users.scanned == 0 => "no user has new events".into(),
        0 => "no user is due".into(),
        due => format!("{} due", phrases::number(due)),
    }
}

fn would_be_sent(report: &DigestReport) -> String {
    let (due, events) = (due(report), phrases::events(report.due.events));
    let emails = phrases::count(report.emails_ahead(), "email", "emails");
    match (report.due.users, report.dry_run.no_brand) {
        (0, _) => format!("{due} (dry run)"),
        (_, 0) if report.limited => {
            format!("{due}, would send {emails} ({events}); dry run, up to the limit")
        }
        (_, 0) => format!("{due}, would send {emails} ({events}); dry run"),
        (_, waiting) => {
            let emailed = match report.emails_ahead() {
                0 => "none".to_owned(),
                emails => phrases::number(emails),
            };
            let wait = phrases::count(waiting, "waits", "wait");
            format!(
                "{due} with {events}: {emailed} would be emailed, {wait} for a brand that is not \
                 configured (dry run)"
            )
        }
    }
}

/// Returns the outcomes of emails, with the folder if they were written to files; empty if there
/// were no emails.
pub(super) fn sent(tally: &Tally, outbox: Option<&Path>) -> String {
    let sent = phrases::some(tally.sent, "sent").map(|sent| {
        let events = phrases::events(tally.events);
        match outbox {
            Some(folder) => format!("{sent} into {} ({events})", folder.display()),
            None => format!("{sent} ({events})"),
        }
    });
    let others = [
        (tally.failed, "failed"),
        (tally.unknown, "unknown"),
        (tally.canceled, "canceled"),
        (tally.deferred, "not settled yet"),
    ];
    let others = others.map(|(count, what)| phrases::some(count, what));
    phrases::list(std::iter::once(sent).chain(others))
}

/// Returns who gets no email now, and why.
fn left(report: &DigestReport, request: &DigestRequest) -> String {
    let users = &report.users;
    let hint = match report.due.users == 0 && !request.now {
        true => "; --now does not wait",
        false => "",
    };
    let next = users.next_due.map(phrases::minute);
    let next = next.map(|next| format!(" (next due {next}{hint})"));
    let waiting = phrases::some(users.waiting, "waiting");
    let waiting = waiting.map(|waiting| waiting + &next.unwrap_or_default());
    let unmailable = users.unmailable.iter().map(|(why, count)| match *why {
        "unknown" => phrases::some(*count, "without a record"),
        why => phrases::some(*count, why),
    });
    let busy = "with an email that waits, or that another worker handles";
    let others = [
        waiting,
        phrases::some(users.mailed_already, "emailed this period already"),
        failed(report),
        phrases::some(users.withdrawn, "with nothing left that applies"),
        phrases::some(report.due.busy, busy),
    ];
    phrases::list(others.into_iter().chain(unmailable))
}

/// Describes failed digests: `2 failed this period (tried again from 2014-04-21 11:00; tidings
/// deliveries retry does it now)`.
fn failed(report: &DigestReport) -> Option<String> {
    let failed = phrases::some(report.users.failed_already, "failed this period")?;
    let again = report.users.tried_again.map(|at| {
        let at = phrases::minute(at);
        format!(" (tried again from {at}; tidings deliveries retry does it now)")
    });
    Some(failed + &again.unwrap_or_default())
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
