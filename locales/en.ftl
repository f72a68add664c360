# The texts of emails and pages in English. Tests compare all other catalogs with this one. A folder
# of templates may hold locales/TAG.ftl with its own texts (docs/guides/languages.md).
# $names are filled in; a message keeps those that it has here.

### How the language is written

# ltr or rtl
direction = ltr
# Whose names of months and days: a locale of the C library
calendar = en_GB
# What parts thousands; .min is how many digits a number has at least that is parted
thousands = ,
    .min = 4
# Days and times as strftime writes them
date = %-d %B
date-year = %-d %B %Y
date-next = %A %-d %B %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" and "}
label = { $label }: { $text }
quote = “{ $text }”

### Types. type-NAME says what a type is called, .new what its events are called after a number,
### .more what follows the number of further ones ("more comments"), .phrase what people do in it,
### .category and .reason what the preferences page says of it. What is not said here is the
### configuration's.

things = { $count ->
   *[other] new things
}

### Sentences of emails

count-things = { $count } { $things }
count-new = { $count } new
people = { $count } people
list-others = { $list } and { $count } others
list-more = { $list } and { $count } more
said = { $who } { $phrase } { $about }
times = { $count ->
    [2] twice
   *[other] { $count } times
}
said-more = { $said }, and { $count } more
new = New
by = { $label } by { $who }
news-from = { $news } from { $site }
news-by = { $news } by { $who }
news-and-more = { $names } and more
more = { $count } more
more-named = { $count } { $more }
more-on = { $count } more on { $name }
more-named-on = { $count } { $more } on { $name }
open = Open { $name }
see-online = See it online

### Digests

digest-head = { $news } for you
digest-since = Your digest: what is new since { $since }.
digest-since-daily = Your daily digest: what is new since { $since }.
digest-since-weekly = Your weekly digest: what is new since { $since }.
digest-why = You asked for this digest from { $site }.
digest-why-daily = This is your daily digest from { $site }. It comes at most once a day, and only when there is something new.
digest-why-weekly = This is your weekly digest from { $site }. It comes at most once a week, and only when there is something new.

### Batches

batch-at = At { $time }.
batch-span = From { $since } to { $until }.
batch-why = You get these emails from { $site } as things happen; events close together are combined. Times are those of { $zone }.

### The end of an email

because = Because you follow { $name }.
unfollow = Unfollow
unfollow-name = Unfollow { $name }
mandatory-why = { $reason }. That is why we send this email even if you turned it off or unsubscribed.
choose = Choose what you get
unsubscribe = Unsubscribe
unsubscribe-digest = Unsubscribe from this digest
unsubscribe-alone = Unsubscribe from emails like this
unsubscribe-kinds = Unsubscribe from these { $count } kinds
unsubscribe-types = Unsubscribe from { $types }
mute = Mute { $name }
mute-this = Mute this

### What comes, on all pages

coming-digest = Digest
coming-daily = Every day at { $hour }:00 ({ $zone }), if there is anything new
coming-weekly = { $days } at { $hour }:00 ({ $zone }), if there is anything new
coming-alone = As it happens
coming-always = Always
coming-locked = (cannot be turned off)
coming-nothing = Nothing: you get no email from { $site }.
held-back = Email to this address is held back at the moment, whatever is chosen here.
stop-digest = Stop the digest
stop-all = Unsubscribe from everything

### The page of choices

preferences = Your emails
preferences-of = What { $address } gets from { $site }.
preferences-you = What you get from { $site }.
saved = Saved.
state-unsubscribed = You are unsubscribed since { $date } and get no emails. Choose how often to come back.
state-unsubscribed-kept = You are unsubscribed since { $date } and get no emails but those that cannot be turned off. Choose how often to come back.
state-never = You get no digest.
state-never-kept = You get no digest but of what cannot be turned off.
state-daily = You get at most one digest a day, at { $hour }:00 ({ $zone }).
state-weekly = You get at most one digest a week, on { $days } at { $hour }:00 ({ $zone }).
next-digest = Your next digest comes on { $date }, if there is anything new.
turned-off = You turned off: { $types }.
mails-held-back = Emails to this address are held back at the moment, whatever is chosen here.
how-often = How often
cadence-daily = Every day there is something new
cadence-weekly = Once a week
cadence-never = No digest
when = When
weekday = Day, if once a week
hour = Hour
time-zone = Time zone
quiet-hours = Quiet hours
quiet-why = Emails about single events wait until they end. Leave both empty for none.
quiet-from = From
quiet-to = Until
what = What
locked = This cannot be turned off
route-digest = In the digest
route-batch = Soon, a few together
route-immediate = At once
route-never = Not at all
save = Save
end-all = Or end all emails at once:
end-all-kept = Or end all emails that can be turned off at once:
weekday-mon = Monday
    .each = Mondays
weekday-tue = Tuesday
    .each = Tuesdays
weekday-wed = Wednesday
    .each = Wednesdays
weekday-thu = Thursday
    .each = Thursdays
weekday-fri = Friday
    .each = Fridays
weekday-sat = Saturday
    .each = Saturdays
weekday-sun = Sunday
    .each = Sundays
region-Africa = Africa
region-America = America
region-Antarctica = Antarctica
region-Asia = Asia
region-Atlantic = Atlantic
region-Australia = Australia
region-Europe = Europe
region-Indian = Indian
region-Pacific = Pacific
region-Other = Other

### The pages behind a link to stop something

ask-digest = Stop the digest?
ask-follow = Unfollow { $name }?
ask-types = Stop these emails?
ask-digest-of = { $address } will get no more digests from { $site }.
ask-digest-you = You will get no more digests from { $site }.
ask-follow-of = { $address } will get no more news of { $name } from { $site }. What happened before may still come once.
ask-follow-you = You will get no more news of { $name } from { $site }. What happened before may still come once.
ask-alone-of = { $address } will get no more emails from { $site } as things happen.
ask-alone-you = You will get no more emails from { $site } as things happen.
ask-types-of = { $count ->
    [one] { $address } will get no more emails of this kind from { $site }:
   *[other] { $address } will get no more emails of these kinds from { $site }:
}
ask-types-you = { $count ->
    [one] You will get no more emails of this kind from { $site }:
   *[other] You will get no more emails of these kinds from { $site }:
}
stop-types = Stop these emails
comes-now = What you get now
unsubscribed = Unsubscribed
stopped-digest = No more digests
stopped-follow = You no longer follow { $name }
stopped-types = No more of these emails
stopped-digest-of = { $address } gets no more digests from { $site }.
stopped-digest-you = You get no more digests from { $site }.
stopped-follow-of = { $address } gets no more news of { $name } from { $site }. What happened before may still come once.
stopped-follow-you = You get no more news of { $name } from { $site }. What happened before may still come once.
stopped-alone-of = { $address } gets no more emails from { $site } as things happen.
stopped-alone-you = You get no more emails from { $site } as things happen.
stopped-types-of = { $count ->
    [one] { $address } gets no more emails of this kind from { $site }:
   *[other] { $address } gets no more emails of these kinds from { $site }:
}
stopped-types-you = { $count ->
    [one] You get no more emails of this kind from { $site }:
   *[other] You get no more emails of these kinds from { $site }:
}
still-comes = What still comes
undo = Undo
ask-mute = Mute this?
ask-subject-of = { $address } will get no more emails from { $site } about this:
ask-subject-you = You will get no more emails from { $site } about this:
muted = Muted
stopped-subject-of = { $address } gets no more emails from { $site } about this:
stopped-subject-you = You get no more emails from { $site } about this:
muted-until = Until { $date }
unmute = Unmute
ask-all = Unsubscribe?
ask-all-of = { $address } will get no more emails from { $site }.
ask-all-you = You will get no more emails from { $site }.
ask-all-of-kept = { $address } will get no more emails from { $site } but those that cannot be turned off: { $types }.
ask-all-you-kept = You will get no more emails from { $site } but those that cannot be turned off: { $types }.
ask-all-instead = Too many emails, or the wrong ones? { $choose } instead.
stopped-all = You are unsubscribed
stopped-all-of = { $address } gets no more emails from { $site }.
stopped-all-you = You get no more emails from { $site }.
stopped-all-of-kept = { $address } gets no more emails from { $site } but those that cannot be turned off: { $types }.
stopped-all-you-kept = You get no more emails from { $site } but those that cannot be turned off: { $types }.
stopped-since = Since { $date }.
stopped-mistake = Was that a mistake? { $choose }, and it begins again from then on.

### Errors and special cases

notice-forged = This link does not work
    .text = It is not complete, or it is not one of ours. Some email programs break long links: copy the whole link out of the email, or use the one in a newer email. Nothing was changed.
notice-expired = This link is too old
    .text = Links in our emails work for a year. Please use the one in a newer email; it stands at its end. Nothing was changed.
notice-gone = You get no emails from us
    .text = We no longer have a record of you, so there is nothing to choose and nothing to stop.
notice-not-followed = You do not follow this
    .text = There is nothing to unfollow here: you stopped following it before, or never did. Nothing was changed.
notice-mandatory = This cannot be turned off
    .text = { $reason }. All other email can be. Nothing was changed.
notice-form = That did not work
    .text = { $why } Nothing was changed.
notice-choice = That cannot be chosen
    .text = The { $why }. Nothing was changed; please go back and choose again.
notice-quiet = Quiet hours need both times, or neither
    .text = Fill in both “From” and “Until”, or leave both empty. Nothing was changed.
notice-inside = Please try again
    .text = We cannot reach our records at the moment, and do not know whether something was changed. Please try again in a minute: doing it twice does no harm.

### The widget. {n} is a number.

widget-bell = Notifications
widget-new = { $n } new
widget-current = All
widget-unread = Unread
widget-read-all = Mark all as read
widget-preferences = Preferences
widget-close = Close
widget-more = Show more
widget-rest = +{ $n } more
widget-archive = Archive
widget-archived = Archived.
widget-undo = Undo
widget-empty = All caught up
widget-error = Cannot be loaded right now.
widget-expired = Please sign in again.
widget-refused = Not available.
widget-retry = Try again
