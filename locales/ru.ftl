# Russian. Formal: «вы».

direction = ltr
calendar = ru_RU
thousands = {"\u00A0"}
    .min = 5
date = %-d %B
date-year = %-d %B %Y
date-next = %-d %B %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" и "}
label = { $label }: { $text }
quote = «{ $text }»

things = { $count ->
    [one] новость
    [few] новости
   *[many] новостей
}

count-things = { $count } { $things }
count-new = { $count ->
    [one] { $count } новость
    [few] { $count } новости
   *[many] { $count } новостей
}
people = { $count ->
    [one] { $count } человек
    [few] { $count } человека
   *[many] { $count } человек
}
list-others = { $list } и ещё { $count }
list-more = { $list } и ещё { $count }
said = { $who } { $phrase } { $about }
times = { $count ->
    [one] { $count } раз
    [few] { $count } раза
   *[many] { $count } раз
}
said-more = { $said }, и ещё { $count }
new = Новое
by = { $label } – { $who }
news-from = { $news } от { $site }
news-by = { $news }: { $who }
news-and-more = { $names } и другое
more = Ещё { $count }
more-named = Ещё { $count } { $more }
more-on = Ещё { $count }: { $name }
more-named-on = Ещё { $count } { $more }: { $name }
open = Открыть { $name }
see-online = Посмотреть на сайте

digest-head = { $news } для вас
digest-since = Ваша подборка: что нового (начиная с { $since }).
digest-since-daily = Ваша ежедневная подборка: что нового (начиная с { $since }).
digest-since-weekly = Ваша еженедельная подборка: что нового (начиная с { $since }).
digest-why = Вы запросили эту подборку от { $site }.
digest-why-daily = Это ваша ежедневная подборка от { $site }. Она приходит не чаще раза в день и только тогда, когда есть что-то новое.
digest-why-weekly = Это ваша еженедельная подборка от { $site }. Она приходит не чаще раза в неделю и только тогда, когда есть что-то новое.

batch-at = Время: { $time }.
batch-span = С { $since } до { $until }.
batch-why = Вы получаете эти письма от { $site } по мере событий; близкие по времени события объединяются. Время указано по { $zone }.

because = Вы подписаны на обновления: { $name }.
unfollow = Не следить
unfollow-name = Не следить: { $name }
mandatory-why = { $reason }. Поэтому это письмо приходит, даже если вы его отключили или отписались.
choose = Выбрать, что получать
unsubscribe = Отписаться
unsubscribe-digest = Отписаться от этой подборки
unsubscribe-alone = Отписаться от таких писем
unsubscribe-kinds = { $count ->
    [one] Отписаться от этого { $count } вида писем
   *[many] Отписаться от этих { $count } видов писем
}
unsubscribe-types = Отписаться: { $types }
mute = Отключить уведомления: { $name }
mute-this = Отключить уведомления

coming-digest = Подборка
coming-daily = Каждый день в { $hour }:00 ({ $zone }), если есть что-то новое
coming-weekly = { $days } в { $hour }:00 ({ $zone }), если есть что-то новое
coming-alone = По мере событий
coming-always = Всегда
coming-locked = (нельзя отключить)
coming-nothing = Ничего: вы не получаете писем от { $site }.
held-back = Письма на этот адрес сейчас не отправляются, что бы ни было выбрано здесь.
stop-digest = Отписаться от подборки
stop-all = Отписаться от всего

preferences = Ваши письма
preferences-of = Что { $address } получает от { $site }.
preferences-you = Что вы получаете от { $site }.
saved = Сохранено.
state-unsubscribed = Вы отписаны (дата: { $date }) и не получаете писем. Чтобы вернуться, выберите, как часто.
state-unsubscribed-kept = Вы отписаны (дата: { $date }) и получаете только письма, которые нельзя отключить. Чтобы вернуться, выберите, как часто.
state-never = Вы не получаете подборку.
state-never-kept = Вы получаете подборку только того, что нельзя отключить.
state-daily = Вы получаете не больше одной подборки в день, в { $hour }:00 ({ $zone }).
state-weekly = Вы получаете не больше одной подборки в неделю, { $days } в { $hour }:00 ({ $zone }).
next-digest = Следующая подборка: { $date }, если будет что-то новое.
turned-off = Вы отключили: { $types }.
mails-held-back = Письма на этот адрес сейчас не отправляются, что бы ни было выбрано здесь.
how-often = Как часто
cadence-daily = Каждый день, когда есть что-то новое
cadence-weekly = Раз в неделю
cadence-never = Без подборки
when = Когда
weekday = День, если раз в неделю
hour = Час
time-zone = Часовой пояс
quiet-hours = Тихие часы
quiet-why = Письма по мере событий ждут их окончания. Чтобы тихих часов не было, оставьте оба поля пустыми.
quiet-from = С
quiet-to = До
what = Что
locked = Это нельзя отключить
route-digest = В подборке
route-batch = Скоро, по нескольку вместе
route-immediate = Сразу
route-never = Никогда
save = Сохранить
end-all = Или отпишитесь от всех писем сразу:
end-all-kept = Или отпишитесь сразу от всех писем, которые можно отключить:
weekday-mon = понедельник
    .each = по понедельникам
weekday-tue = вторник
    .each = по вторникам
weekday-wed = среда
    .each = по средам
weekday-thu = четверг
    .each = по четвергам
weekday-fri = пятница
    .each = по пятницам
weekday-sat = суббота
    .each = по субботам
weekday-sun = воскресенье
    .each = по воскресеньям
region-Africa = Африка
region-America = Америка
region-Antarctica = Антарктида
region-Asia = Азия
region-Atlantic = Атлантический океан
region-Australia = Австралия
region-Europe = Европа
region-Indian = Индийский океан
region-Pacific = Тихий океан
region-Other = Другие

ask-digest = Отписаться от подборки?
ask-follow = Больше не следить: { $name }?
ask-types = Отписаться от этих писем?
ask-digest-of = { $address } больше не будет получать подборки от { $site }.
ask-digest-you = Вы больше не будете получать подборки от { $site }.
ask-follow-of = { $address } больше не будет получать от { $site } новости по теме «{ $name }». То, что произошло раньше, может прийти ещё раз.
ask-follow-you = Вы больше не будете получать от { $site } новости по теме «{ $name }». То, что произошло раньше, может прийти ещё раз.
ask-alone-of = { $address } больше не будет получать письма от { $site } по мере событий.
ask-alone-you = Вы больше не будете получать письма от { $site } по мере событий.
ask-types-of = { $count ->
    [one] { $address } больше не будет получать письма этого вида от { $site }:
   *[many] { $address } больше не будет получать письма этих видов от { $site }:
}
ask-types-you = { $count ->
    [one] Вы больше не будете получать письма этого вида от { $site }:
   *[many] Вы больше не будете получать письма этих видов от { $site }:
}
stop-types = Отписаться от этих писем
comes-now = Что вы получаете сейчас
unsubscribed = Вы отписались
stopped-digest = Подборок больше не будет
stopped-follow = Вы больше не следите: { $name }
stopped-types = Этих писем больше не будет
stopped-digest-of = { $address } больше не получает подборки от { $site }.
stopped-digest-you = Вы больше не получаете подборки от { $site }.
stopped-follow-of = { $address } больше не получает от { $site } новости по теме «{ $name }». То, что произошло раньше, может прийти ещё раз.
stopped-follow-you = Вы больше не получаете от { $site } новости по теме «{ $name }». То, что произошло раньше, может прийти ещё раз.
stopped-alone-of = { $address } больше не получает письма от { $site } по мере событий.
stopped-alone-you = Вы больше не получаете письма от { $site } по мере событий.
stopped-types-of = { $count ->
    [one] { $address } больше не получает письма этого вида от { $site }:
   *[many] { $address } больше не получает письма этих видов от { $site }:
}
stopped-types-you = { $count ->
    [one] Вы больше не получаете письма этого вида от { $site }:
   *[many] Вы больше не получаете письма этих видов от { $site }:
}
still-comes = Что по-прежнему приходит
undo = Отменить
ask-mute = Отключить уведомления об этом?
ask-subject-of = { $address } больше не будет получать письма от { $site } на эту тему:
ask-subject-you = Вы больше не будете получать письма от { $site } на эту тему:
muted = Без уведомлений
stopped-subject-of = { $address } больше не получает письма от { $site } на эту тему:
stopped-subject-you = Вы больше не получаете письма от { $site } на эту тему:
muted-until = До { $date }
unmute = Включить уведомления
ask-all = Отписаться?
ask-all-of = { $address } больше не будет получать письма от { $site }.
ask-all-you = Вы больше не будете получать письма от { $site }.
ask-all-of-kept = { $address } будет получать от { $site } только письма, которые нельзя отключить: { $types }.
ask-all-you-kept = Вы будете получать от { $site } только письма, которые нельзя отключить: { $types }.
ask-all-instead = Слишком много писем или не те? { $choose }
stopped-all = Вы отписаны
stopped-all-of = { $address } больше не получает писем от { $site }.
stopped-all-you = Вы больше не получаете писем от { $site }.
stopped-all-of-kept = { $address } получает от { $site } только письма, которые нельзя отключить: { $types }.
stopped-all-you-kept = Вы получаете от { $site } только письма, которые нельзя отключить: { $types }.
stopped-since = Дата: { $date }.
stopped-mistake = Это ошибка? { $choose }: письма снова начнут приходить.

notice-forged = Эта ссылка не работает
    .text = Она неполная или не наша. Некоторые почтовые программы разрывают длинные ссылки: скопируйте ссылку из письма целиком или воспользуйтесь ссылкой из более нового письма. Ничего не изменено.
notice-expired = Эта ссылка устарела
    .text = Ссылки в наших письмах действуют год. Воспользуйтесь ссылкой в конце более нового письма. Ничего не изменено.
notice-gone = Вы не получаете от нас писем
    .text = У нас больше нет данных о вас, поэтому выбирать и отключать нечего.
notice-not-followed = Вы за этим не следите
    .text = Здесь не от чего отказываться: вы уже не следите за этим или никогда не следили. Ничего не изменено.
notice-mandatory = Это нельзя отключить
    .text = { $reason }. Все остальные письма отключить можно. Ничего не изменено.
notice-form = Не получилось
    .text = { $why } Ничего не изменено.
notice-choice = Это нельзя выбрать
    .text = { $why }. Ничего не изменено; вернитесь и выберите снова.
notice-quiet = Для тихих часов нужны оба времени или ни одного
    .text = Заполните «С» и «До» или оставьте оба поля пустыми. Ничего не изменено.
notice-inside = Попробуйте ещё раз
    .text = Сейчас мы не можем обратиться к нашим данным и не знаем, изменилось ли что-нибудь. Попробуйте ещё раз через минуту: повтор не повредит.

widget-bell = Уведомления
widget-new = Новых: { $n }
widget-current = Все
widget-unread = Непрочитанные
widget-read-all = Отметить все как прочитанные
widget-preferences = Настройки
widget-close = Закрыть
widget-more = Показать ещё
widget-rest = +{ $n }
widget-archive = В архив
widget-archived = В архиве.
widget-undo = Отменить
widget-empty = Всё прочитано
widget-error = Сейчас не удаётся загрузить.
widget-expired = Войдите ещё раз.
widget-refused = Недоступно.
widget-retry = Повторить
