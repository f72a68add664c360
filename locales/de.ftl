# German. Formal: "Sie".

direction = ltr
calendar = de_DE
thousands = .
    .min = 4
date = %-d. %B
date-year = %-d. %B %Y
date-next = %A, %-d. %B %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" und "}
label = { $label }: { $text }
quote = „{ $text }“

things = { $count ->
    [one] Neuigkeit
   *[other] Neuigkeiten
}

count-things = { $count } { $things }
count-new = { $count } neu
people = { $count ->
    [one] { $count } Person
   *[other] { $count } Personen
}
list-others = { $count ->
    [one] { $list } und { $count } weitere Person
   *[other] { $list } und { $count } weitere
}
list-more = { $list } und { $count } weitere
said = { $who } { $phrase } { $about }
times = ({ $count }-mal)
said-more = { $said } und { $count } weitere
new = Neu
by = { $label } von { $who }
news-from = { $news } von { $site }
news-by = { $news } von { $who }
news-and-more = { $names } und mehr
more = { $count } weitere
more-named = { $count } { $more }
more-on = { $count ->
    [one] { $count } weiterer Eintrag zu { $name }
   *[other] { $count } weitere Einträge zu { $name }
}
more-named-on = { $count } { $more } zu { $name }
open = { $name } öffnen
see-online = Online ansehen

digest-head = { $news } für Sie
digest-since = Ihre Übersicht: was seit dem { $since } neu ist.
digest-since-daily = Ihre tägliche Übersicht: was seit dem { $since } neu ist.
digest-since-weekly = Ihre wöchentliche Übersicht: was seit dem { $since } neu ist.
digest-why = Sie haben diese Übersicht von { $site } angefordert.
digest-why-daily = Das ist Ihre tägliche Übersicht von { $site }. Sie kommt höchstens einmal am Tag und nur, wenn es etwas Neues gibt.
digest-why-weekly = Das ist Ihre wöchentliche Übersicht von { $site }. Sie kommt höchstens einmal in der Woche und nur, wenn es etwas Neues gibt.

batch-at = Zeit: { $time }.
batch-span = Zeit: { $since } bis { $until }.
batch-why = Sie erhalten diese E-Mails von { $site }, sobald etwas geschieht; was kurz nacheinander geschieht, wird zusammengefasst. Die Uhrzeiten gelten für { $zone }.

because = Weil Sie { $name } folgen.
unfollow = Nicht mehr folgen
unfollow-name = { $name } nicht mehr folgen
mandatory-why = { $reason }. Deshalb erhalten Sie diese E-Mail, auch wenn Sie sie abgeschaltet oder sich abgemeldet haben.
choose = Auswählen, was Sie erhalten
unsubscribe = Abmelden
unsubscribe-digest = Diese Übersicht abbestellen
unsubscribe-alone = E-Mails wie diese abbestellen
unsubscribe-kinds = { $count ->
    [one] Diese { $count } Art abbestellen
   *[other] Diese { $count } Arten abbestellen
}
unsubscribe-types = { $types } abbestellen
mute = { $name } stummschalten
mute-this = Stummschalten

coming-digest = Übersicht
coming-daily = Täglich um { $hour }:00 Uhr ({ $zone }), wenn es etwas Neues gibt
coming-weekly = { $days } um { $hour }:00 Uhr ({ $zone }), wenn es etwas Neues gibt
coming-alone = Sobald es geschieht
coming-always = Immer
coming-locked = (lässt sich nicht abschalten)
coming-nothing = Nichts: Sie erhalten keine E-Mails von { $site }.
held-back = E-Mails an diese Adresse werden zurzeit zurückgehalten, was auch immer hier ausgewählt ist.
stop-digest = Übersicht abbestellen
stop-all = Alles abbestellen

preferences = Ihre E-Mails
preferences-of = Was { $address } von { $site } erhält.
preferences-you = Was Sie von { $site } erhalten.
saved = Gespeichert.
state-unsubscribed = Sie sind seit dem { $date } abgemeldet und erhalten keine E-Mails. Um wieder welche zu erhalten, wählen Sie aus, wie oft.
state-unsubscribed-kept = Sie sind seit dem { $date } abgemeldet und erhalten nur E-Mails, die sich nicht abschalten lassen. Um wieder andere zu erhalten, wählen Sie aus, wie oft.
state-never = Sie erhalten keine Übersicht.
state-never-kept = Sie erhalten nur eine Übersicht über das, was sich nicht abschalten lässt.
state-daily = Sie erhalten höchstens eine Übersicht am Tag, um { $hour }:00 Uhr ({ $zone }).
state-weekly = Sie erhalten höchstens eine Übersicht in der Woche, { $days } um { $hour }:00 Uhr ({ $zone }).
next-digest = Ihre nächste Übersicht kommt am { $date }, wenn es etwas Neues gibt.
turned-off = Von Ihnen abgeschaltet: { $types }.
mails-held-back = E-Mails an diese Adresse werden zurzeit zurückgehalten, was auch immer hier ausgewählt ist.
how-often = Wie oft
cadence-daily = An jedem Tag, an dem es etwas Neues gibt
cadence-weekly = Einmal in der Woche
cadence-never = Keine Übersicht
when = Wann
weekday = Tag, falls einmal in der Woche
hour = Uhrzeit
time-zone = Zeitzone
quiet-hours = Ruhezeit
quiet-why = E-Mails zu einzelnen Ereignissen warten, bis sie vorbei ist. Für keine Ruhezeit lassen Sie beides leer.
quiet-from = Von
quiet-to = Bis
what = Was
locked = Das lässt sich nicht abschalten
route-digest = In der Übersicht
route-batch = Bald, zusammengefasst
route-immediate = Sofort
route-never = Gar nicht
save = Speichern
end-all = Oder alle E-Mails auf einmal abbestellen:
end-all-kept = Oder alle E-Mails, die sich abschalten lassen, auf einmal abbestellen:
weekday-mon = Montag
    .each = montags
weekday-tue = Dienstag
    .each = dienstags
weekday-wed = Mittwoch
    .each = mittwochs
weekday-thu = Donnerstag
    .each = donnerstags
weekday-fri = Freitag
    .each = freitags
weekday-sat = Samstag
    .each = samstags
weekday-sun = Sonntag
    .each = sonntags
region-Africa = Afrika
region-America = Amerika
region-Antarctica = Antarktis
region-Asia = Asien
region-Atlantic = Atlantik
region-Australia = Australien
region-Europe = Europa
region-Indian = Indischer Ozean
region-Pacific = Pazifik
region-Other = Andere

ask-digest = Übersicht abbestellen?
ask-follow = { $name } nicht mehr folgen?
ask-types = Diese E-Mails abbestellen?
ask-digest-of = { $address } erhält dann keine Übersichten von { $site } mehr.
ask-digest-you = Sie erhalten dann keine Übersichten von { $site } mehr.
ask-follow-of = { $address } erhält dann keine Neuigkeiten zu { $name } von { $site } mehr. Früheres kann noch einmal kommen.
ask-follow-you = Sie erhalten dann keine Neuigkeiten zu { $name } von { $site } mehr. Früheres kann noch einmal kommen.
ask-alone-of = { $address } erhält dann keine E-Mails zu einzelnen Ereignissen von { $site } mehr.
ask-alone-you = Sie erhalten dann keine E-Mails zu einzelnen Ereignissen von { $site } mehr.
ask-types-of = { $count ->
    [one] { $address } erhält dann keine E-Mails dieser Art von { $site } mehr:
   *[other] { $address } erhält dann keine E-Mails dieser Arten von { $site } mehr:
}
ask-types-you = { $count ->
    [one] Sie erhalten dann keine E-Mails dieser Art von { $site } mehr:
   *[other] Sie erhalten dann keine E-Mails dieser Arten von { $site } mehr:
}
stop-types = Diese E-Mails abbestellen
comes-now = Was Sie jetzt erhalten
unsubscribed = Abbestellt
stopped-digest = Keine Übersichten mehr
stopped-follow = Sie folgen { $name } nicht mehr
stopped-types = Keine E-Mails dieser Art mehr
stopped-digest-of = { $address } erhält keine Übersichten von { $site } mehr.
stopped-digest-you = Sie erhalten keine Übersichten von { $site } mehr.
stopped-follow-of = { $address } erhält keine Neuigkeiten zu { $name } von { $site } mehr. Früheres kann noch einmal kommen.
stopped-follow-you = Sie erhalten keine Neuigkeiten zu { $name } von { $site } mehr. Früheres kann noch einmal kommen.
stopped-alone-of = { $address } erhält keine E-Mails zu einzelnen Ereignissen von { $site } mehr.
stopped-alone-you = Sie erhalten keine E-Mails zu einzelnen Ereignissen von { $site } mehr.
stopped-types-of = { $count ->
    [one] { $address } erhält keine E-Mails dieser Art von { $site } mehr:
   *[other] { $address } erhält keine E-Mails dieser Arten von { $site } mehr:
}
stopped-types-you = { $count ->
    [one] Sie erhalten keine E-Mails dieser Art von { $site } mehr:
   *[other] Sie erhalten keine E-Mails dieser Arten von { $site } mehr:
}
still-comes = Was weiterhin kommt
undo = Rückgängig machen
ask-mute = Stummschalten?
ask-subject-of = { $address } erhält dann keine E-Mails von { $site } mehr zu diesem Thema:
ask-subject-you = Sie erhalten dann keine E-Mails von { $site } mehr zu diesem Thema:
muted = Stummgeschaltet
stopped-subject-of = { $address } erhält keine E-Mails von { $site } mehr zu diesem Thema:
stopped-subject-you = Sie erhalten keine E-Mails von { $site } mehr zu diesem Thema:
muted-until = Bis { $date }
unmute = Nicht mehr stummschalten
ask-all = Abmelden?
ask-all-of = { $address } erhält dann keine E-Mails von { $site } mehr.
ask-all-you = Sie erhalten dann keine E-Mails von { $site } mehr.
ask-all-of-kept = { $address } erhält dann von { $site } nur noch E-Mails, die sich nicht abschalten lassen: { $types }.
ask-all-you-kept = Sie erhalten dann von { $site } nur noch E-Mails, die sich nicht abschalten lassen: { $types }.
ask-all-instead = Zu viele E-Mails, oder die falschen? { $choose }
stopped-all = Sie sind abgemeldet
stopped-all-of = { $address } erhält keine E-Mails von { $site } mehr.
stopped-all-you = Sie erhalten keine E-Mails von { $site } mehr.
stopped-all-of-kept = { $address } erhält von { $site } nur noch E-Mails, die sich nicht abschalten lassen: { $types }.
stopped-all-you-kept = Sie erhalten von { $site } nur noch E-Mails, die sich nicht abschalten lassen: { $types }.
stopped-since = Seit dem { $date }.
stopped-mistake = War das ein Versehen? { $choose }: Ab dann erhalten Sie wieder E-Mails.

notice-forged = Dieser Link funktioniert nicht
    .text = Er ist unvollständig oder stammt nicht von uns. Manche Mailprogramme zerteilen lange Links: Kopieren Sie den ganzen Link aus der E-Mail, oder verwenden Sie den aus einer neueren. Es wurde nichts geändert.
notice-expired = Dieser Link ist zu alt
    .text = Links in unseren E-Mails gelten ein Jahr lang. Bitte verwenden Sie den aus einer neueren E-Mail; er steht an deren Ende. Es wurde nichts geändert.
notice-gone = Sie erhalten keine E-Mails von uns
    .text = Wir haben keine Daten mehr über Sie; es gibt also nichts auszuwählen und nichts abzubestellen.
notice-not-followed = Sie folgen dem nicht
    .text = Hier gibt es nichts zu beenden: Sie folgen dem nicht mehr oder haben es nie getan. Es wurde nichts geändert.
notice-mandatory = Das lässt sich nicht abschalten
    .text = { $reason }. Alle anderen E-Mails lassen sich abschalten. Es wurde nichts geändert.
notice-form = Das hat nicht funktioniert
    .text = { $why } Es wurde nichts geändert.
notice-choice = Das lässt sich nicht auswählen
    .text = { $why }. Es wurde nichts geändert; bitte gehen Sie zurück und wählen Sie noch einmal aus.
notice-quiet = Die Ruhezeit braucht beide Zeiten oder keine
    .text = Füllen Sie „Von“ und „Bis“ aus, oder lassen Sie beides leer. Es wurde nichts geändert.
notice-inside = Bitte versuchen Sie es noch einmal
    .text = Wir erreichen unsere Daten zurzeit nicht und wissen nicht, ob etwas geändert wurde. Bitte versuchen Sie es in einer Minute noch einmal: Es schadet nicht, wenn es zweimal geschieht.

widget-bell = Benachrichtigungen
widget-new = { $n } neu
widget-current = Alle
widget-unread = Ungelesen
widget-read-all = Alle als gelesen markieren
widget-preferences = Einstellungen
widget-close = Schließen
widget-more = Mehr anzeigen
widget-rest = +{ $n } weitere
widget-archive = Archivieren
widget-archived = Archiviert.
widget-undo = Rückgängig
widget-empty = Alles gelesen
widget-error = Kann gerade nicht geladen werden.
widget-expired = Bitte melden Sie sich neu an.
widget-refused = Nicht verfügbar.
widget-retry = Noch einmal versuchen
