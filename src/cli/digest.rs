//! `tidings digest`: sends the digests that are due; made for a cron line.
//!
//! It prints its result on one line, and problems with their counts on standard error.

use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::failure_text::causes;
use super::fan_out::FanOutResult;
use super::remaining_work::{WaitingResult, backlog_lines, read_waiting_emails, show_unfinished};
use super::session::{Access, App, Exit, Refusal, Screen, Session, phrases};
use super::stop::{Stop, last_write, within_grace};
use crate::domain::{Pause, UserId};
use crate::engine::digest::DigestRequest;
use crate::private;
use crate::render::dry_run_page::{DryRunEmails, DryRunPage};
use crate::wire::delivery::WaitingEmails;
use crate::wire::run_report::{DigestReport, DigestRun, EarlyEnd, Tally};
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

/// The result of a run, to be recorded and shown.
#[derive(Default)]
struct DigestResult {
    at: DateTime<Utc>,
    /// The counts on one line.
    summary: String,
    fanned_out: FanOutResult,
    report: DigestReport,
    /// The emails that a dry run would send, for its page.
    dry_run_emails: DryRunEmails,
    /// Whether a signal or a failure ended the work.
    ends_early: bool,
    /// The failure that ended the work after some emails were sent.
    failure: Option<anyhow::Error>,
    notes: Vec<String>,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let access = if self.dry_run { Access::Read } else { Access::Write };
        let (app, stop) = session.open_to_send(access).await?;
        let (app, screen) = (&app, &mut *session.screen);
        self.check(app.context.clock.now())?;
        if self.resume {
            let pause = app.deliveries().resume().await?;
            let resumed = pause.map(|pause| format!("resumed; it was {}", pause_text(&pause)));
            screen.warning(resumed.unwrap_or_else(|| "nothing was paused".to_owned()))?;
        }
        let request = self.request(app);
        let Some(mut result) = self.work(app, &request, &stop, screen).await? else {
            return self.show_stopped(screen);
        };
        let waiting = if self.dry_run {
            result.notes.extend(dry_run_notes(app, &result.dry_run_emails).await?);
            Ok(WaitingEmails::default())
        } else {
            let note = record(app, &result).await;
            result.notes.extend(note);
            read_waiting_emails(app, request.users.as_deref(), result.ends_early).await
        };
        result.notes.extend(report_notes(app, &result.report));
        let page = self.write_page(&mut result, app)?;
        let is_complete = self.show(&result, &waiting, page, app, screen)?;
        match result.failure {
            Some(failure) => Err(failure),
            None if result.ends_early => self.show_stopped(screen),
            None => Ok(exit_of_report(&result.report).partly_unless(is_complete)),
        }
    }

    /// Fans out accepted events and runs the digests. Fails if no email was sent before a failure.
    /// Returns `None` for a dry run that `server.grace` cut off: its counts are incomplete.
    async fn work(
        &self,
        app: &App,
        request: &DigestRequest,
        stop: &Stop,
        screen: &Screen,
    ) -> anyhow::Result<Option<DigestResult>> {
        let at = request.at.unwrap_or_else(|| app.context.clock.now());
        let mut result = DigestResult { at, ..DigestResult::default() };
        let work = async {
            if !self.dry_run {
                let bar = screen.progress_bar("users reached").until(stop.clone());
                result.fanned_out = FanOutResult::run(app, &bar).await;
            }
            let bar = screen.progress_bar("users checked").until(stop.clone());
            if self.report.is_some() {
                (result.report, result.dry_run_emails) = app.dry_run().run(request, &bar).await?;
            } else {
                app.digests().run_into(&mut result.report, request, &bar).await?;
            }
            anyhow::Ok(())
        };
        let outcome = within_grace(app, stop, work).await;
        let is_cut_off = outcome.is_none();
        if is_cut_off && self.dry_run {
            return Ok(None);
        }
        let (report, fanned_out) = (&mut result.report, &mut result.fanned_out);
        result.failure = match outcome.transpose() {
            Err(failure) if report.emails == Tally::default() => return Err(failure),
            outcome => outcome.err(),
        };
        result.ends_early = *stop.borrow() || result.failure.is_some();
        if result.ends_early {
            report.ended.get_or_insert(EarlyEnd::Stopped);
            // At the end of the grace, `within_grace` has released the leases.
            if !is_cut_off && !self.dry_run {
                result.notes.extend(release_leases(app).await);
            }
        }
        report.emails.bad_stacks += std::mem::take(&mut fanned_out.done.bad_stacks);
        let summary = summarize(report, request, app.identities.outbox());
        result.summary = format!("digest {} UTC: {summary}", phrases::minute(at));
        Ok(Some(result))
    }

    /// Writes the page of a dry run, and returns its path. After an early end, there is none: a
    /// page about part of the users would mislead.
    fn write_page(&self, result: &mut DigestResult, app: &App) -> anyhow::Result<Option<&Path>> {
        let Some(path) = self.report.as_deref().filter(|_| !result.ends_early) else {
            return Ok(None);
        };
        let page = DryRunPage {
            at: result.at.format("%-d %B %Y, %H:%M UTC").to_string(),
            counts: vec![result.summary.clone()],
            warnings: result.notes.clone(),
            dry_run: std::mem::take(&mut result.dry_run_emails),
        };
        let written = private::replace(path, page.render(&app.config.site)?);
        written.with_context(|| format!("writing the report {}", path.display()))?;
        Ok(Some(path))
    }

    /// Prints the counts, the unfinished work and the notes. Returns whether all work is done.
    fn show(
        &self,
        result: &DigestResult,
        waiting: &WaitingResult,
        page: Option<&Path>,
        app: &App,
        screen: &mut Screen,
    ) -> anyhow::Result<bool> {
        let DigestResult { fanned_out, report, .. } = result;
        let run = DigestRun {
            at: result.at,
            dry_run: self.dry_run,
            page,
            emails_waiting: waiting.as_ref().ok(),
            bad_fanouts: &fanned_out.done.bad_fanouts,
            report,
        };
        if !screen.answer(&run)? {
            screen.line(&result.summary)?;
            if let Some(page) = page {
                screen.line(format!("report: {}", page.display()))?;
            }
        }
        let is_complete = show_unfinished(app, &report.emails, fanned_out, waiting, screen)?;
        screen.warnings(&result.notes)?;
        screen.warnings(report.ended.as_ref().map(why_ended))?;
        Ok(is_complete)
    }

    /// Rejects a run in the future, and a report that cannot be written.
    fn check(&self, now: DateTime<Utc>) -> Result<(), Refusal> {
        if let Some(at) = self.at.filter(|at| *at > now && !self.dry_run) {
            let why = "lies ahead, and an email cannot be sent before its time";
            let what = format!("--at {} UTC {why}", phrases::minute(at));
            let next = "--dry-run, which shows what would be sent then; or omitting --at";
            return Err(Refusal::new(what, next));
        }
        self.report.as_deref().map_or(Ok(()), check_page)
    }

    fn show_stopped(&self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let next = "the next run continues the work";
        screen.warning(format!("stopped before everything was done; {next}"))?;
        let no_report = "no report was written, because only some users were checked";
        screen.warnings(self.report.as_ref().map(|_| no_report))?;
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
            ignore_hours: self.now,
            dry_run: self.dry_run,
        }
    }
}

/// Records the run for `status`. Returns a note if that fails.
async fn record(app: &App, result: &DigestResult) -> Option<String> {
    let run = DigestActivity::from_report(&result.report, app.context.clock.now());
    let recorded = last_write(result.ends_early, app.activity().record_digests(&run)).await;
    Some(causes(&recorded.err()?))
}

/// Releases the leases of this process. Returns a note if that fails.
async fn release_leases(app: &App) -> Option<String> {
    let error = last_write(true, app.worker().release_leases()).await.err()?;
    let effect = "other processes can send its emails once its leases expire";
    Some(format!("{effect}: {}", causes(&error)))
}

/// Returns notes on what a dry run does not show: a pause stops the emails that it counts, it does
/// not include pending events, and some emails cannot be rendered.
async fn dry_run_notes(app: &App, emails: &DryRunEmails) -> anyhow::Result<Vec<String>> {
    let pause = app.deliveries().current_pause().await?;
    let paused = pause.map(|pause| format!("no email is sent: {}", pause_text(&pause)));
    let pending = app.status().not_fanned_out().await?;
    let events = phrases::nonzero_count(pending, "accepted event", "accepted events");
    let next = "`tidings worker --once` fans them out";
    let not_included =
        events.map(|events| format!("{events} not fanned out yet and missing here; {next}"));
    let failures = emails.failures.iter().cloned();
    Ok(paused.into_iter().chain(not_included).chain(failures).collect())
}

/// Returns notes on the problems that a run has found.
fn report_notes(app: &App, report: &DigestReport) -> Vec<String> {
    let mut notes = report.unknown_names.warnings(&app.config.policies);
    notes.extend(report.dry_run.warnings());
    notes.extend(backlog_lines(&report.backlog));
    if report.due.users > 0 && app.identities.lacks_links() {
        let why = "because server.public_url is not set: people will report them as spam";
        notes.push(format!("these emails contain no unsubscribe link, {why}"));
    }
    notes
}

/// Rejects a path that is a folder, or in a folder that does not exist.
fn check_page(path: &Path) -> Result<(), Refusal> {
    if path.is_dir() || path.file_name().is_none() {
        let what = format!("--report: {} is a folder", path.display());
        return Err(Refusal::new(what, "name a file in it, such as report.html"));
    }
    Refusal::check_folder("--report", path)
}

/// Returns 3 if only some emails were sent, and 1 if none was. A pause is never a success.
fn exit_of_report(report: &DigestReport) -> Exit {
    let paused = u64::from(matches!(report.ended, Some(EarlyEnd::Paused(_))));
    exit_of_tally(&report.emails, report.due.not_started + paused)
}

/// Does the same for the outcomes of emails. `not_started` emails are not among them.
pub(super) fn exit_of_tally(tally: &Tally, not_started: u64) -> Exit {
    let bad = tally.failed + tally.unknown + tally.deferred + not_started;
    // An operator has to repair these documents.
    Exit::of(tally.sent, bad).partly_unless(tally.bad_stacks.is_empty())
}

/// Describes a pause: `paused since 2014-04-21 09:30 UTC: 12 of the last 50 emails failed`.
pub(super) fn pause_text(pause: &Pause) -> String {
    let since = phrases::minute(pause.at);
    format!("paused since {since} UTC: {}", pause.reason)
}

fn why_ended(ended: &EarlyEnd) -> String {
    let why = match ended {
        EarlyEnd::Paused(pause) => {
            let next =
                "fix that, then `tidings digest --resume`; until then no process sends anything";
            return format!("{}\n  try: {next}", pause_text(pause));
        }
        EarlyEnd::Patience => "some emails still wait, and none was settled for delivery.patience",
        EarlyEnd::Stopped => "stopped while some emails wait",
    };
    format!("{why}; the next run continues with them")
}

/// Summarizes the run: `1,234 due, 1,230 sent, 2 failed; 310 waiting (next due 2014-04-29 09:00),
/// 12 unconfirmed`.
fn summarize(report: &DigestReport, request: &DigestRequest, outbox: Option<&Path>) -> String {
    let result = if request.dry_run {
        summarize_dry_run(report)
    } else {
        phrases::list([
            Some(due_users(report)),
            Some(email_outcomes(&report.emails, outbox)),
            phrases::nonzero(report.due.not_started, "not started"),
            report.is_limited.then(|| "stopped at the limit".to_owned()),
        ])
    };
    phrases::clauses([result, not_emailed(report, request)])
}

fn due_users(report: &DigestReport) -> String {
    match report.due.users {
        0 if report.users.scanned == 0 && report.ended == Some(EarlyEnd::Stopped) => {
            "no user was checked".into()
        }
        0 if report.users.scanned == 0 => "no user has new events".into(),
        0 => "no user is due".into(),
        due => format!("{} due", phrases::number(due)),
    }
}

fn summarize_dry_run(report: &DigestReport) -> String {
    let (due, events) = (due_users(report), phrases::events(report.due.events));
    let (sent, waiting) = (report.emails_to_send(), report.dry_run.waits_for_brand);
    if report.due.users == 0 {
        return format!("{due} (dry run)");
    }
    if waiting == 0 {
        let emails = phrases::emails(sent);
        let limit = if report.is_limited { ", up to the limit" } else { "" };
        return format!("{due}, would send {emails} ({events}); dry run{limit}");
    }
    let emailed = if sent == 0 { "none".to_owned() } else { phrases::number(sent) };
    let wait = phrases::count(waiting, "waits", "wait");
    format!(
        "{due} with {events}: {emailed} would be emailed, {wait} for a brand that is not \
         configured (dry run)"
    )
}

/// Returns the outcomes of emails, with the folder if they were written to files; empty if there
/// were no emails.
pub(super) fn email_outcomes(tally: &Tally, outbox: Option<&Path>) -> String {
    let sent = phrases::nonzero(tally.sent, "sent").map(|sent| {
        let events = phrases::events(tally.events);
        match outbox {
            Some(folder) => format!("{sent} into {} ({events})", folder.display()),
            None => format!("{sent} ({events})"),
        }
    });
    phrases::list([
        sent,
        phrases::nonzero(tally.failed, "failed"),
        phrases::nonzero(tally.unknown, "unknown"),
        phrases::nonzero(tally.canceled, "canceled"),
        phrases::nonzero(tally.deferred, "not settled yet"),
    ])
}

/// Returns which users get no email now, and why.
fn not_emailed(report: &DigestReport, request: &DigestRequest) -> String {
    let users = &report.users;
    let has_hint = report.due.users == 0 && !request.ignore_hours;
    let hint = if has_hint { "; --now does not wait" } else { "" };
    let next_due = users.next_due.map(|at| format!(" (next due {}{hint})", phrases::minute(at)));
    let waiting = phrases::nonzero(users.waiting, "waiting");
    let unmailable = users.unmailable.iter().map(|(why, count)| match *why {
        "unknown" => phrases::nonzero(*count, "without a record"),
        why => phrases::nonzero(*count, why),
    });
    let busy = "with an email that waits, or that another worker handles";
    let others = [
        waiting.map(|waiting| waiting + &next_due.unwrap_or_default()),
        phrases::nonzero(users.emailed_already, "emailed this period already"),
        describe_failed(report),
        phrases::nonzero(users.withdrawn, "with nothing left that applies"),
        phrases::nonzero(report.due.busy, busy),
    ];
    phrases::list(others.into_iter().chain(unmailable))
}

/// Describes failed digests: `2 failed this period (tried again from 2014-04-21 11:00; tidings
/// deliveries retry does it now)`.
fn describe_failed(report: &DigestReport) -> Option<String> {
    let failed = phrases::nonzero(report.users.failed_already, "failed this period")?;
    let retry = report.users.next_retry.map(|at| {
        let at = phrases::minute(at);
        format!(" (tried again from {at}; tidings deliveries retry does it now)")
    });
    Some(failed + &retry.unwrap_or_default())
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
