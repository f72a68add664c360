# Spanish. Formal: "usted".

direction = ltr
calendar = es_ES
thousands = .
    .min = 5
date = %-d de %B
date-year = %-d de %B de %Y
date-next = %A, %-d de %B de %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" y "}
label = { $label }: { $text }
quote = «{ $text }»

things = { $count ->
    [one] novedad
   *[other] novedades
}

count-things = { $count } { $things }
count-new = { $count ->
    [one] { $count } novedad
   *[other] { $count } novedades
}
people = { $count ->
    [one] { $count } persona
   *[other] { $count } personas
}
list-others = { $count ->
    [one] { $list } y { $count } persona más
   *[other] { $list } y { $count } personas más
}
list-more = { $list } y { $count } más
said = { $who } { $phrase } { $about }
times = { $count ->
    [one] { $count } vez
   *[other] { $count } veces
}
said-more = { $said }, y { $count } más
new = Nuevo
by = { $label } de { $who }
news-from = { $news } de { $site }
news-by = { $news } de { $who }
news-and-more = { $names } y más
more = { $count } más
more-named = { $count } { $more }
more-on = { $count } más sobre { $name }
more-named-on = { $count } { $more } sobre { $name }
open = Abrir { $name }
see-online = Ver en línea

digest-head = { $news } para usted
digest-since = Su resumen: las novedades desde el { $since }.
digest-since-daily = Su resumen diario: las novedades desde el { $since }.
digest-since-weekly = Su resumen semanal: las novedades desde el { $since }.
digest-why = Usted pidió este resumen de { $site }.
digest-why-daily = Este es su resumen diario de { $site }. Llega como máximo una vez al día, y solo cuando hay algo nuevo.
digest-why-weekly = Este es su resumen semanal de { $site }. Llega como máximo una vez por semana, y solo cuando hay algo nuevo.

batch-at = Hora: { $time }.
batch-span = { $since } – { $until }.
batch-why = Usted recibe estos correos de { $site } a medida que ocurren las cosas; lo que ocurre seguido se agrupa. Las horas son las de { $zone }.

because = Porque usted sigue a { $name }.
unfollow = Dejar de seguir
unfollow-name = Dejar de seguir a { $name }
mandatory-why = { $reason }. Por eso recibe este correo aunque lo haya desactivado o se haya dado de baja.
choose = Elegir lo que recibe
unsubscribe = Cancelar la suscripción
unsubscribe-digest = Cancelar este resumen
unsubscribe-alone = Cancelar los correos como este
unsubscribe-kinds = { $count ->
    [one] Cancelar este tipo
   *[other] Cancelar estos { $count } tipos
}
unsubscribe-types = Cancelar: { $types }
mute = Silenciar { $name }
mute-this = Silenciar este tema

coming-digest = Resumen
coming-daily = Cada día a las { $hour }:00 ({ $zone }), si hay algo nuevo
coming-weekly = { $days } a las { $hour }:00 ({ $zone }), si hay algo nuevo
coming-alone = Cuando ocurre
coming-always = Siempre
coming-locked = (no se puede desactivar)
coming-nothing = Nada: usted no recibe correos de { $site }.
held-back = Los correos a esta dirección están retenidos por el momento, sea cual sea la elección hecha aquí.
stop-digest = Cancelar el resumen
stop-all = Cancelar todo

preferences = Sus correos
preferences-of = Lo que { $address } recibe de { $site }.
preferences-you = Lo que usted recibe de { $site }.
saved = Guardado.
state-unsubscribed = Usted canceló su suscripción el { $date } y no recibe correos. Para volver a recibirlos, elija con qué frecuencia.
state-unsubscribed-kept = Usted canceló su suscripción el { $date } y solo recibe los correos que no se pueden desactivar. Para volver a recibir otros, elija con qué frecuencia.
state-never = Usted no recibe ningún resumen.
state-never-kept = Usted solo recibe un resumen de lo que no se puede desactivar.
state-daily = Usted recibe como máximo un resumen al día, a las { $hour }:00 ({ $zone }).
state-weekly = Usted recibe como máximo un resumen por semana, { $days } a las { $hour }:00 ({ $zone }).
next-digest = Su próximo resumen llega el { $date }, si hay algo nuevo.
turned-off = Usted desactivó: { $types }.
mails-held-back = Los correos a esta dirección están retenidos por el momento, sea cual sea la elección hecha aquí.
how-often = Con qué frecuencia
cadence-daily = Cada día que haya algo nuevo
cadence-weekly = Una vez por semana
cadence-never = Ningún resumen
when = Cuándo
weekday = Día, si es una vez por semana
hour = Hora
time-zone = Zona horaria
quiet-hours = Horas de silencio
quiet-why = Los correos sobre lo que ocurre esperan hasta que terminen. Deje ambos campos vacíos si no desea ninguna.
quiet-from = Desde
quiet-to = Hasta
what = Qué
locked = Esto no se puede desactivar
route-digest = En el resumen
route-batch = Pronto, agrupados
route-immediate = Al momento
route-never = Nunca
save = Guardar
end-all = O cancele todos los correos a la vez:
end-all-kept = O cancele a la vez todos los correos que se pueden desactivar:
weekday-mon = lunes
    .each = los lunes
weekday-tue = martes
    .each = los martes
weekday-wed = miércoles
    .each = los miércoles
weekday-thu = jueves
    .each = los jueves
weekday-fri = viernes
    .each = los viernes
weekday-sat = sábado
    .each = los sábados
weekday-sun = domingo
    .each = los domingos
region-Africa = África
region-America = América
region-Antarctica = Antártida
region-Asia = Asia
region-Atlantic = Atlántico
region-Australia = Australia
region-Europe = Europa
region-Indian = Océano Índico
region-Pacific = Pacífico
region-Other = Otras

ask-digest = ¿Cancelar el resumen?
ask-follow = ¿Dejar de seguir a { $name }?
ask-types = ¿Cancelar estos correos?
ask-digest-of = { $address } no recibirá más resúmenes de { $site }.
ask-digest-you = Usted no recibirá más resúmenes de { $site }.
ask-follow-of = { $address } no recibirá más novedades de { $name } por parte de { $site }. Lo ocurrido antes puede llegar todavía una vez.
ask-follow-you = Usted no recibirá más novedades de { $name } por parte de { $site }. Lo ocurrido antes puede llegar todavía una vez.
ask-alone-of = { $address } no recibirá más correos de { $site } cuando ocurra algo.
ask-alone-you = Usted no recibirá más correos de { $site } cuando ocurra algo.
ask-types-of = { $count ->
    [one] { $address } no recibirá más correos de este tipo de { $site }:
   *[other] { $address } no recibirá más correos de estos tipos de { $site }:
}
ask-types-you = { $count ->
    [one] Usted no recibirá más correos de este tipo de { $site }:
   *[other] Usted no recibirá más correos de estos tipos de { $site }:
}
stop-types = Cancelar estos correos
comes-now = Lo que usted recibe ahora
unsubscribed = Suscripción cancelada
stopped-digest = No habrá más resúmenes
stopped-follow = Usted ya no sigue a { $name }
stopped-types = No habrá más correos de este tipo
stopped-digest-of = { $address } ya no recibe resúmenes de { $site }.
stopped-digest-you = Usted ya no recibe resúmenes de { $site }.
stopped-follow-of = { $address } ya no recibe novedades de { $name } por parte de { $site }. Lo ocurrido antes puede llegar todavía una vez.
stopped-follow-you = Usted ya no recibe novedades de { $name } por parte de { $site }. Lo ocurrido antes puede llegar todavía una vez.
stopped-alone-of = { $address } ya no recibe correos de { $site } cuando ocurre algo.
stopped-alone-you = Usted ya no recibe correos de { $site } cuando ocurre algo.
stopped-types-of = { $count ->
    [one] { $address } ya no recibe correos de este tipo de { $site }:
   *[other] { $address } ya no recibe correos de estos tipos de { $site }:
}
stopped-types-you = { $count ->
    [one] Usted ya no recibe correos de este tipo de { $site }:
   *[other] Usted ya no recibe correos de estos tipos de { $site }:
}
still-comes = Lo que sigue llegando
undo = Deshacer
ask-mute = ¿Silenciar este tema?
ask-subject-of = { $address } no recibirá más correos de { $site } sobre esto:
ask-subject-you = Usted no recibirá más correos de { $site } sobre esto:
muted = Silenciado
stopped-subject-of = { $address } ya no recibe correos de { $site } sobre esto:
stopped-subject-you = Usted ya no recibe correos de { $site } sobre esto:
muted-until = Hasta el { $date }
unmute = Dejar de silenciar
ask-all = ¿Cancelar la suscripción?
ask-all-of = { $address } no recibirá más correos de { $site }.
ask-all-you = Usted no recibirá más correos de { $site }.
ask-all-of-kept = { $address } no recibirá más correos de { $site }, salvo los que no se pueden desactivar: { $types }.
ask-all-you-kept = Usted no recibirá más correos de { $site }, salvo los que no se pueden desactivar: { $types }.
ask-all-instead = ¿Demasiados correos, o no los que quería? { $choose }
stopped-all = Su suscripción está cancelada
stopped-all-of = { $address } ya no recibe correos de { $site }.
stopped-all-you = Usted ya no recibe correos de { $site }.
stopped-all-of-kept = { $address } ya no recibe correos de { $site }, salvo los que no se pueden desactivar: { $types }.
stopped-all-you-kept = Usted ya no recibe correos de { $site }, salvo los que no se pueden desactivar: { $types }.
stopped-since = Desde el { $date }.
stopped-mistake = ¿Fue un error? { $choose }, y a partir de entonces volverán a llegar.

notice-forged = Este enlace no funciona
    .text = No está completo o no es nuestro. Algunos programas de correo cortan los enlaces largos: copie el enlace entero del correo o use el de un correo más reciente. No se cambió nada.
notice-expired = Este enlace es demasiado antiguo
    .text = Los enlaces de nuestros correos sirven durante un año. Use el de un correo más reciente; está al final. No se cambió nada.
notice-gone = Usted no recibe correos nuestros
    .text = Ya no tenemos datos suyos, así que no hay nada que elegir ni que cancelar.
notice-not-followed = Usted no sigue esto
    .text = No hay nada que dejar de seguir: usted ya no lo sigue o nunca lo siguió. No se cambió nada.
notice-mandatory = Esto no se puede desactivar
    .text = { $reason }. Todos los demás correos sí se pueden desactivar. No se cambió nada.
notice-form = Eso no funcionó
    .text = { $why } No se cambió nada.
notice-choice = Eso no se puede elegir
    .text = { $why }. No se cambió nada; vuelva atrás y elija de nuevo.
notice-quiet = Las horas de silencio necesitan ambas horas o ninguna
    .text = Rellene «Desde» y «Hasta», o deje ambos campos vacíos. No se cambió nada.
notice-inside = Inténtelo de nuevo
    .text = En este momento no podemos acceder a nuestros datos y no sabemos si se cambió algo. Inténtelo de nuevo dentro de un minuto: hacerlo dos veces no tiene consecuencias.

widget-bell = Notificaciones
widget-new = Nuevas: { $n }
widget-current = Todas
widget-unread = Sin leer
widget-read-all = Marcar todo como leído
widget-preferences = Preferencias
widget-close = Cerrar
widget-more = Mostrar más
widget-rest = +{ $n } más
widget-archive = Archivar
widget-archived = Archivado.
widget-undo = Deshacer
widget-empty = Está al día
widget-error = No se puede cargar en este momento.
widget-expired = Vuelva a iniciar sesión.
widget-refused = No disponible.
widget-retry = Intentar de nuevo
