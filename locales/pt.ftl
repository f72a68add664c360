# Portuguese, as spoken in Brazil.

direction = ltr
calendar = pt_BR
thousands = .
    .min = 4
date = %-d de %B
date-year = %-d de %B de %Y
date-next = %A, %-d de %B de %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" e "}
label = { $label }: { $text }
quote = “{ $text }”

things = { $count ->
    [one] novidade
   *[other] novidades
}

count-things = { $count } { $things }
count-new = { $count ->
    [one] { $count } novidade
   *[other] { $count } novidades
}
people = { $count ->
    [one] { $count } pessoa
   *[other] { $count } pessoas
}
list-others = { $count ->
    [one] { $list } e mais { $count } pessoa
   *[other] { $list } e mais { $count } pessoas
}
list-more = { $list } e mais { $count }
said = { $who } { $phrase } { $about }
times = { $count ->
    [one] { $count } vez
   *[other] { $count } vezes
}
said-more = { $said }, e mais { $count }
new = Novo
by = { $label } de { $who }
news-from = { $news } de { $site }
news-by = { $news } de { $who }
news-and-more = { $names } e mais
more = Mais { $count }
more-named = Mais { $count } { $more }
more-on = Mais { $count } sobre { $name }
more-named-on = Mais { $count } { $more } sobre { $name }
open = Abrir { $name }
see-online = Ver on-line

digest-head = { $news } para você
digest-since = Seu resumo: as novidades desde { $since }.
digest-since-daily = Seu resumo diário: as novidades desde { $since }.
digest-since-weekly = Seu resumo semanal: as novidades desde { $since }.
digest-why = Você pediu este resumo de { $site }.
digest-why-daily = Este é o seu resumo diário de { $site }. Ele chega no máximo uma vez por dia, e só quando há novidades.
digest-why-weekly = Este é o seu resumo semanal de { $site }. Ele chega no máximo uma vez por semana, e só quando há novidades.

batch-at = Horário: { $time }.
batch-span = { $since } – { $until }.
batch-why = Você recebe estes e-mails de { $site } à medida que as coisas acontecem; o que acontece em seguida é agrupado. Os horários são os de { $zone }.

because = Porque você segue { $name }.
unfollow = Deixar de seguir
unfollow-name = Deixar de seguir { $name }
mandatory-why = { $reason }. Por isso você recebe este e-mail mesmo que o tenha desativado ou cancelado a inscrição.
choose = Escolher o que você recebe
unsubscribe = Cancelar inscrição
unsubscribe-digest = Cancelar este resumo
unsubscribe-alone = Cancelar e-mails como este
unsubscribe-kinds = { $count ->
    [one] Cancelar este tipo
   *[other] Cancelar estes { $count } tipos
}
unsubscribe-types = Cancelar: { $types }
mute = Silenciar { $name }
mute-this = Silenciar este assunto

coming-digest = Resumo
coming-daily = Todos os dias às { $hour }:00 ({ $zone }), se houver novidades
coming-weekly = { $days } às { $hour }:00 ({ $zone }), se houver novidades
coming-alone = Quando acontece
coming-always = Sempre
coming-locked = (não pode ser desativado)
coming-nothing = Nada: você não recebe e-mails de { $site }.
held-back = Os e-mails para este endereço estão retidos no momento, seja qual for a escolha feita aqui.
stop-digest = Cancelar o resumo
stop-all = Cancelar tudo

preferences = Seus e-mails
preferences-of = O que { $address } recebe de { $site }.
preferences-you = O que você recebe de { $site }.
saved = Salvo.
state-unsubscribed = Você cancelou sua inscrição em { $date } e não recebe e-mails. Para voltar a recebê-los, escolha com que frequência.
state-unsubscribed-kept = Você cancelou sua inscrição em { $date } e só recebe os e-mails que não podem ser desativados. Para voltar a receber outros, escolha com que frequência.
state-never = Você não recebe nenhum resumo.
state-never-kept = Você só recebe um resumo do que não pode ser desativado.
state-daily = Você recebe no máximo um resumo por dia, às { $hour }:00 ({ $zone }).
state-weekly = Você recebe no máximo um resumo por semana, { $days } às { $hour }:00 ({ $zone }).
next-digest = Seu próximo resumo chega em { $date }, se houver novidades.
turned-off = Você desativou: { $types }.
mails-held-back = Os e-mails para este endereço estão retidos no momento, seja qual for a escolha feita aqui.
how-often = Com que frequência
cadence-daily = Todo dia em que houver novidades
cadence-weekly = Uma vez por semana
cadence-never = Nenhum resumo
when = Quando
weekday = Dia, se for uma vez por semana
hour = Hora
time-zone = Fuso horário
quiet-hours = Horas de silêncio
quiet-why = Os e-mails sobre o que acontece esperam até que terminem. Deixe os dois campos vazios para não ter nenhuma.
quiet-from = De
quiet-to = Até
what = O quê
locked = Isto não pode ser desativado
route-digest = No resumo
route-batch = Em breve, agrupados
route-immediate = Na hora
route-never = Nunca
save = Salvar
end-all = Ou cancele todos os e-mails de uma vez:
end-all-kept = Ou cancele de uma vez todos os e-mails que podem ser desativados:
weekday-mon = segunda-feira
    .each = às segundas-feiras
weekday-tue = terça-feira
    .each = às terças-feiras
weekday-wed = quarta-feira
    .each = às quartas-feiras
weekday-thu = quinta-feira
    .each = às quintas-feiras
weekday-fri = sexta-feira
    .each = às sextas-feiras
weekday-sat = sábado
    .each = aos sábados
weekday-sun = domingo
    .each = aos domingos
region-Africa = África
region-America = América
region-Antarctica = Antártida
region-Asia = Ásia
region-Atlantic = Atlântico
region-Australia = Austrália
region-Europe = Europa
region-Indian = Oceano Índico
region-Pacific = Pacífico
region-Other = Outras

ask-digest = Cancelar o resumo?
ask-follow = Deixar de seguir { $name }?
ask-types = Cancelar estes e-mails?
ask-digest-of = { $address } não receberá mais resumos de { $site }.
ask-digest-you = Você não receberá mais resumos de { $site }.
ask-follow-of = { $address } não receberá mais novidades de { $name } por { $site }. O que aconteceu antes ainda pode chegar uma vez.
ask-follow-you = Você não receberá mais novidades de { $name } por { $site }. O que aconteceu antes ainda pode chegar uma vez.
ask-alone-of = { $address } não receberá mais e-mails de { $site } quando algo acontecer.
ask-alone-you = Você não receberá mais e-mails de { $site } quando algo acontecer.
ask-types-of = { $count ->
    [one] { $address } não receberá mais e-mails deste tipo de { $site }:
   *[other] { $address } não receberá mais e-mails destes tipos de { $site }:
}
ask-types-you = { $count ->
    [one] Você não receberá mais e-mails deste tipo de { $site }:
   *[other] Você não receberá mais e-mails destes tipos de { $site }:
}
stop-types = Cancelar estes e-mails
comes-now = O que você recebe agora
unsubscribed = Inscrição cancelada
stopped-digest = Sem mais resumos
stopped-follow = Você não segue mais { $name }
stopped-types = Sem mais e-mails deste tipo
stopped-digest-of = { $address } não recebe mais resumos de { $site }.
stopped-digest-you = Você não recebe mais resumos de { $site }.
stopped-follow-of = { $address } não recebe mais novidades de { $name } por { $site }. O que aconteceu antes ainda pode chegar uma vez.
stopped-follow-you = Você não recebe mais novidades de { $name } por { $site }. O que aconteceu antes ainda pode chegar uma vez.
stopped-alone-of = { $address } não recebe mais e-mails de { $site } quando algo acontece.
stopped-alone-you = Você não recebe mais e-mails de { $site } quando algo acontece.
stopped-types-of = { $count ->
    [one] { $address } não recebe mais e-mails deste tipo de { $site }:
   *[other] { $address } não recebe mais e-mails destes tipos de { $site }:
}
stopped-types-you = { $count ->
    [one] Você não recebe mais e-mails deste tipo de { $site }:
   *[other] Você não recebe mais e-mails destes tipos de { $site }:
}
still-comes = O que continua chegando
undo = Desfazer
ask-mute = Silenciar este assunto?
ask-subject-of = { $address } não receberá mais e-mails de { $site } sobre isto:
ask-subject-you = Você não receberá mais e-mails de { $site } sobre isto:
muted = Silenciado
stopped-subject-of = { $address } não recebe mais e-mails de { $site } sobre isto:
stopped-subject-you = Você não recebe mais e-mails de { $site } sobre isto:
muted-until = Até { $date }
unmute = Deixar de silenciar
ask-all = Cancelar inscrição?
ask-all-of = { $address } não receberá mais e-mails de { $site }.
ask-all-you = Você não receberá mais e-mails de { $site }.
ask-all-of-kept = { $address } não receberá mais e-mails de { $site }, exceto os que não podem ser desativados: { $types }.
ask-all-you-kept = Você não receberá mais e-mails de { $site }, exceto os que não podem ser desativados: { $types }.
ask-all-instead = E-mails demais, ou não os que você queria? { $choose }
stopped-all = Sua inscrição está cancelada
stopped-all-of = { $address } não recebe mais e-mails de { $site }.
stopped-all-you = Você não recebe mais e-mails de { $site }.
stopped-all-of-kept = { $address } não recebe mais e-mails de { $site }, exceto os que não podem ser desativados: { $types }.
stopped-all-you-kept = Você não recebe mais e-mails de { $site }, exceto os que não podem ser desativados: { $types }.
stopped-since = Desde { $date }.
stopped-mistake = Foi um engano? { $choose }, e a partir daí eles voltam a chegar.

notice-forged = Este link não funciona
    .text = Ele não está completo ou não é nosso. Alguns programas de e-mail cortam links longos: copie o link inteiro do e-mail ou use o de um e-mail mais recente. Nada foi alterado.
notice-expired = Este link é antigo demais
    .text = Os links dos nossos e-mails funcionam por um ano. Use o de um e-mail mais recente; ele fica no final. Nada foi alterado.
notice-gone = Você não recebe e-mails nossos
    .text = Não temos mais dados sobre você, portanto não há nada para escolher nem para cancelar.
notice-not-followed = Você não segue isto
    .text = Não há nada para deixar de seguir: você já deixou de seguir ou nunca seguiu. Nada foi alterado.
notice-mandatory = Isto não pode ser desativado
    .text = { $reason }. Todos os outros e-mails podem. Nada foi alterado.
notice-form = Isso não funcionou
    .text = { $why } Nada foi alterado.
notice-choice = Isso não pode ser escolhido
    .text = { $why }. Nada foi alterado; volte e escolha novamente.
notice-quiet = As horas de silêncio precisam dos dois horários ou de nenhum
    .text = Preencha “De” e “Até” ou deixe os dois campos vazios. Nada foi alterado.
notice-inside = Tente novamente
    .text = No momento não conseguimos acessar nossos dados e não sabemos se algo foi alterado. Tente novamente em um minuto: fazer isso duas vezes não causa problemas.

widget-bell = Notificações
widget-new = Novas: { $n }
widget-current = Todas
widget-unread = Não lidas
widget-read-all = Marcar tudo como lido
widget-preferences = Preferências
widget-close = Fechar
widget-more = Mostrar mais
widget-rest = +{ $n }
widget-archive = Arquivar
widget-archived = Arquivado.
widget-undo = Desfazer
widget-empty = Tudo em dia
widget-error = Não é possível carregar neste momento.
widget-expired = Inicie sessão novamente.
widget-refused = Indisponível.
widget-retry = Tentar novamente
