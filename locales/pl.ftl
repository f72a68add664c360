# Polish. Without forms that tell men from women.

direction = ltr
calendar = pl_PL
thousands = {"\u00A0"}
    .min = 5
date = %-d %B
date-year = %-d %B %Y
date-next = %A, %-d %B %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" i "}
label = { $label }: { $text }
quote = „{ $text }”

things = { $count ->
    [one] nowość
    [few] nowości
   *[many] nowości
}

count-things = { $count } { $things }
count-new = { $count ->
    [one] { $count } nowość
    [few] { $count } nowości
   *[many] { $count } nowości
}
people = { $count ->
    [one] { $count } osoba
    [few] { $count } osoby
   *[many] { $count } osób
}
list-others = { $count ->
    [one] { $list } i { $count } inna osoba
    [few] { $list } i { $count } inne osoby
   *[many] { $list } i { $count } innych osób
}
list-more = { $count ->
    [one] { $list } i { $count } inny
    [few] { $list } i { $count } inne
   *[many] { $list } i { $count } innych
}
said = { $who } { $phrase } { $about }
times = { $count ->
    [one] { $count } raz
   *[many] { $count } razy
}
said-more = { $said } i { $count } więcej
new = Nowość
by = { $label } – { $who }
news-from = { $news } – { $site }
news-by = { $news } – { $who }
news-and-more = { $names } i więcej
more = Jeszcze { $count }
more-named = Jeszcze { $count } { $more }
more-on = Jeszcze { $count }: { $name }
more-named-on = Jeszcze { $count } { $more }: { $name }
open = Otwórz { $name }
see-online = Zobacz online

digest-head = { $news } dla Ciebie
digest-since = Twoje podsumowanie: co nowego od { $since }.
digest-since-daily = Twoje codzienne podsumowanie: co nowego od { $since }.
digest-since-weekly = Twoje cotygodniowe podsumowanie: co nowego od { $since }.
digest-why = To podsumowanie z { $site } wysłano na Twoją prośbę.
digest-why-daily = To Twoje codzienne podsumowanie z { $site }. Przychodzi najwyżej raz dziennie i tylko wtedy, gdy jest coś nowego.
digest-why-weekly = To Twoje cotygodniowe podsumowanie z { $site }. Przychodzi najwyżej raz w tygodniu i tylko wtedy, gdy jest coś nowego.

batch-at = Czas: { $time }.
batch-span = Od { $since } do { $until }.
batch-why = Te wiadomości z { $site } przychodzą na bieżąco; zdarzenia następujące krótko po sobie są łączone. Godziny według { $zone }.

because = Obserwujesz: { $name }.
unfollow = Przestań obserwować
unfollow-name = Przestań obserwować: { $name }
mandatory-why = { $reason }. Dlatego ta wiadomość przychodzi nawet po jej wyłączeniu lub rezygnacji z subskrypcji.
choose = Wybierz, co otrzymujesz
unsubscribe = Wypisz się
unsubscribe-digest = Zrezygnuj z tego podsumowania
unsubscribe-alone = Zrezygnuj z takich wiadomości
unsubscribe-kinds = { $count ->
    [one] Zrezygnuj z tego { $count } rodzaju
   *[many] Zrezygnuj z tych { $count } rodzajów
}
unsubscribe-types = Zrezygnuj: { $types }
mute = Wycisz: { $name }
mute-this = Wycisz ten temat

coming-digest = Podsumowanie
coming-daily = Codziennie o { $hour }:00 ({ $zone }), jeśli jest coś nowego
coming-weekly = { $days } o { $hour }:00 ({ $zone }), jeśli jest coś nowego
coming-alone = Na bieżąco
coming-always = Zawsze
coming-locked = (nie można wyłączyć)
coming-nothing = Nic: nie otrzymujesz wiadomości z { $site }.
held-back = Wiadomości na ten adres są obecnie wstrzymane, niezależnie od wyboru tutaj.
stop-digest = Zrezygnuj z podsumowania
stop-all = Zrezygnuj ze wszystkiego

preferences = Twoje wiadomości
preferences-of = Co { $address } otrzymuje z { $site }.
preferences-you = Co otrzymujesz z { $site }.
saved = Zapisano.
state-unsubscribed = Od { $date } nie otrzymujesz żadnych wiadomości. Aby wrócić, wybierz częstotliwość.
state-unsubscribed-kept = Od { $date } otrzymujesz tylko wiadomości, których nie można wyłączyć. Aby wrócić, wybierz częstotliwość.
state-never = Nie otrzymujesz podsumowania.
state-never-kept = Otrzymujesz podsumowanie tylko tego, czego nie można wyłączyć.
state-daily = Otrzymujesz najwyżej jedno podsumowanie dziennie, o { $hour }:00 ({ $zone }).
state-weekly = Otrzymujesz najwyżej jedno podsumowanie w tygodniu, { $days } o { $hour }:00 ({ $zone }).
next-digest = Następne podsumowanie: { $date }, jeśli będzie coś nowego.
turned-off = Wyłączone: { $types }.
mails-held-back = Wiadomości na ten adres są obecnie wstrzymane, niezależnie od wyboru tutaj.
how-often = Jak często
cadence-daily = Każdego dnia, gdy jest coś nowego
cadence-weekly = Raz w tygodniu
cadence-never = Bez podsumowania
when = Kiedy
weekday = Dzień, jeśli raz w tygodniu
hour = Godzina
time-zone = Strefa czasowa
quiet-hours = Godziny ciszy
quiet-why = Bieżące wiadomości czekają, aż się skończą. Pozostaw oba pola puste, aby ich nie było.
quiet-from = Od
quiet-to = Do
what = Co
locked = Tego nie można wyłączyć
route-digest = W podsumowaniu
route-batch = Wkrótce, po kilka razem
route-immediate = Od razu
route-never = Wcale
save = Zapisz
end-all = Albo zrezygnuj ze wszystkich wiadomości naraz:
end-all-kept = Albo zrezygnuj naraz ze wszystkich wiadomości, które można wyłączyć:
weekday-mon = poniedziałek
    .each = w poniedziałki
weekday-tue = wtorek
    .each = we wtorki
weekday-wed = środa
    .each = w środy
weekday-thu = czwartek
    .each = w czwartki
weekday-fri = piątek
    .each = w piątki
weekday-sat = sobota
    .each = w soboty
weekday-sun = niedziela
    .each = w niedziele
region-Africa = Afryka
region-America = Ameryka
region-Antarctica = Antarktyda
region-Asia = Azja
region-Atlantic = Atlantyk
region-Australia = Australia
region-Europe = Europa
region-Indian = Ocean Indyjski
region-Pacific = Pacyfik
region-Other = Inne

ask-digest = Zrezygnować z podsumowania?
ask-follow = Przestać obserwować: { $name }?
ask-types = Zrezygnować z tych wiadomości?
ask-digest-of = { $address } nie będzie już otrzymywać podsumowań z { $site }.
ask-digest-you = Nie będziesz już otrzymywać podsumowań z { $site }.
ask-follow-of = { $address } nie będzie już otrzymywać z { $site } nowości na temat: { $name }. To, co zdarzyło się wcześniej, może jeszcze raz przyjść.
ask-follow-you = Nie będziesz już otrzymywać z { $site } nowości na temat: { $name }. To, co zdarzyło się wcześniej, może jeszcze raz przyjść.
ask-alone-of = { $address } nie będzie już otrzymywać bieżących wiadomości z { $site }.
ask-alone-you = Nie będziesz już otrzymywać bieżących wiadomości z { $site }.
ask-types-of = { $count ->
    [one] { $address } nie będzie już otrzymywać wiadomości tego rodzaju z { $site }:
   *[many] { $address } nie będzie już otrzymywać wiadomości tych rodzajów z { $site }:
}
ask-types-you = { $count ->
    [one] Nie będziesz już otrzymywać wiadomości tego rodzaju z { $site }:
   *[many] Nie będziesz już otrzymywać wiadomości tych rodzajów z { $site }:
}
stop-types = Zrezygnuj z tych wiadomości
comes-now = Co teraz otrzymujesz
unsubscribed = Wypisano
stopped-digest = Koniec podsumowań
stopped-follow = Nie obserwujesz już: { $name }
stopped-types = Koniec tych wiadomości
stopped-digest-of = { $address } nie otrzymuje już podsumowań z { $site }.
stopped-digest-you = Nie otrzymujesz już podsumowań z { $site }.
stopped-follow-of = { $address } nie otrzymuje już z { $site } nowości na temat: { $name }. To, co zdarzyło się wcześniej, może jeszcze raz przyjść.
stopped-follow-you = Nie otrzymujesz już z { $site } nowości na temat: { $name }. To, co zdarzyło się wcześniej, może jeszcze raz przyjść.
stopped-alone-of = { $address } nie otrzymuje już bieżących wiadomości z { $site }.
stopped-alone-you = Nie otrzymujesz już bieżących wiadomości z { $site }.
stopped-types-of = { $count ->
    [one] { $address } nie otrzymuje już wiadomości tego rodzaju z { $site }:
   *[many] { $address } nie otrzymuje już wiadomości tych rodzajów z { $site }:
}
stopped-types-you = { $count ->
    [one] Nie otrzymujesz już wiadomości tego rodzaju z { $site }:
   *[many] Nie otrzymujesz już wiadomości tych rodzajów z { $site }:
}
still-comes = Co nadal przychodzi
undo = Cofnij
ask-mute = Wyciszyć ten temat?
ask-subject-of = { $address } nie będzie już otrzymywać wiadomości z { $site } na ten temat:
ask-subject-you = Nie będziesz już otrzymywać wiadomości z { $site } na ten temat:
muted = Wyciszone
stopped-subject-of = { $address } nie otrzymuje już wiadomości z { $site } na ten temat:
stopped-subject-you = Nie otrzymujesz już wiadomości z { $site } na ten temat:
muted-until = Do { $date }
unmute = Wyłącz wyciszenie
ask-all = Wypisać się?
ask-all-of = { $address } nie będzie już otrzymywać wiadomości z { $site }.
ask-all-you = Nie będziesz już otrzymywać wiadomości z { $site }.
ask-all-of-kept = { $address } będzie otrzymywać z { $site } tylko wiadomości, których nie można wyłączyć: { $types }.
ask-all-you-kept = Będziesz otrzymywać z { $site } tylko wiadomości, których nie można wyłączyć: { $types }.
ask-all-instead = Za dużo wiadomości albo nie te? { $choose }.
stopped-all = Wypisano
stopped-all-of = { $address } nie otrzymuje już wiadomości z { $site }.
stopped-all-you = Nie otrzymujesz już wiadomości z { $site }.
stopped-all-of-kept = { $address } otrzymuje z { $site } tylko wiadomości, których nie można wyłączyć: { $types }.
stopped-all-you-kept = Otrzymujesz z { $site } tylko wiadomości, których nie można wyłączyć: { $types }.
stopped-since = Od { $date }.
stopped-mistake = To pomyłka? { $choose }, a od tej chwili znów będą przychodzić.

notice-forged = Ten link nie działa
    .text = Jest niepełny albo nie pochodzi od nas. Niektóre programy pocztowe dzielą długie linki: skopiuj cały link z wiadomości albo użyj linku z nowszej. Nic nie zostało zmienione.
notice-expired = Ten link jest za stary
    .text = Linki w naszych wiadomościach działają przez rok. Użyj linku z końca nowszej wiadomości. Nic nie zostało zmienione.
notice-gone = Nie otrzymujesz od nas wiadomości
    .text = Nie mamy już Twoich danych, więc nie ma z czego wybierać ani z czego rezygnować.
notice-not-followed = Nie obserwujesz tego
    .text = Nie ma tu czego przestać obserwować: już tego nie obserwujesz lub nigdy nie obserwowano. Nic nie zostało zmienione.
notice-mandatory = Tego nie można wyłączyć
    .text = { $reason }. Wszystkie inne wiadomości można wyłączyć. Nic nie zostało zmienione.
notice-form = To się nie udało
    .text = { $why } Nic nie zostało zmienione.
notice-choice = Tego nie można wybrać
    .text = { $why }. Nic nie zostało zmienione; wróć i wybierz ponownie.
notice-quiet = Godziny ciszy wymagają obu godzin albo żadnej
    .text = Wypełnij pola „Od” i „Do” albo pozostaw oba puste. Nic nie zostało zmienione.
notice-inside = Spróbuj ponownie
    .text = W tej chwili nie mamy dostępu do naszych danych i nie wiemy, czy coś zostało zmienione. Spróbuj ponownie za minutę: powtórzenie nie zaszkodzi.

widget-bell = Powiadomienia
widget-new = Nowe: { $n }
widget-current = Wszystkie
widget-unread = Nieprzeczytane
widget-read-all = Oznacz wszystko jako przeczytane
widget-preferences = Ustawienia
widget-close = Zamknij
widget-more = Pokaż więcej
widget-rest = +{ $n }
widget-archive = Archiwizuj
widget-archived = Zarchiwizowano.
widget-undo = Cofnij
widget-empty = Wszystko przeczytane
widget-error = Nie można teraz wczytać.
widget-expired = Zaloguj się ponownie.
widget-refused = Niedostępne.
widget-retry = Spróbuj ponownie
