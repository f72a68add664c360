# French. Formal: "vous".

direction = ltr
calendar = fr_FR
thousands = {"\u202F"}
    .min = 4
date = %-d %B
date-year = %-d %B %Y
date-next = %A %-d %B %Y, %H:%M
date-time = { $date }, { $time }
time = %H:%M
comma = {", "}
and = {" et "}
label = { $label } : { $text }
quote = « { $text } »

things = { $count ->
    [one] nouveauté
   *[other] nouveautés
}

count-things = { $count } { $things }
count-new = { $count ->
    [one] { $count } nouveauté
   *[other] { $count } nouveautés
}
people = { $count ->
    [one] { $count } personne
   *[other] { $count } personnes
}
list-others = { $count ->
    [one] { $list } et { $count } autre personne
   *[other] { $list } et { $count } autres personnes
}
list-more = { $count ->
    [one] { $list } et { $count } autre
   *[other] { $list } et { $count } autres
}
said = { $who } { $phrase } { $about }
times = { $count } fois
said-more = { $count ->
    [one] { $said }, et { $count } autre
   *[other] { $said }, et { $count } autres
}
new = Nouveau
by = { $label } par { $who }
news-from = { $news } de { $site }
news-by = { $news } par { $who }
news-and-more = { $names } et plus encore
more = { $count ->
    [one] { $count } autre
   *[other] { $count } autres
}
more-named = { $count } { $more }
more-on = { $count ->
    [one] { $count } autre à propos de { $name }
   *[other] { $count } autres à propos de { $name }
}
more-named-on = { $count } { $more } sur { $name }
open = Ouvrir { $name }
see-online = Voir en ligne

digest-head = { $news } pour vous
digest-since = Votre récapitulatif : les nouveautés depuis le { $since }.
digest-since-daily = Votre récapitulatif quotidien : les nouveautés depuis le { $since }.
digest-since-weekly = Votre récapitulatif hebdomadaire : les nouveautés depuis le { $since }.
digest-why = Vous avez demandé ce récapitulatif de { $site }.
digest-why-daily = Ceci est votre récapitulatif quotidien de { $site }. Il arrive au plus une fois par jour, et seulement s’il y a du nouveau.
digest-why-weekly = Ceci est votre récapitulatif hebdomadaire de { $site }. Il arrive au plus une fois par semaine, et seulement s’il y a du nouveau.

batch-at = Heure : { $time }.
batch-span = { $since } – { $until }.
batch-why = Vous recevez ces e-mails de { $site } au fil des événements ; ceux qui se suivent de près sont regroupés. Les heures sont celles de { $zone }.

because = Parce que vous suivez { $name }.
unfollow = Ne plus suivre
unfollow-name = Ne plus suivre { $name }
mandatory-why = { $reason }. C’est pourquoi vous recevez cet e-mail même si vous l’avez désactivé ou si vous vous êtes désabonné.
choose = Choisir ce que vous recevez
unsubscribe = Se désabonner
unsubscribe-digest = Se désabonner de ce récapitulatif
unsubscribe-alone = Se désabonner des e-mails de ce genre
unsubscribe-kinds = { $count ->
    [one] Se désabonner de ce type
   *[other] Se désabonner de ces { $count } types
}
unsubscribe-types = Se désabonner : { $types }
mute = Mettre { $name } en sourdine
mute-this = Mettre en sourdine

coming-digest = Récapitulatif
coming-daily = Tous les jours à { $hour }:00 ({ $zone }), s’il y a du nouveau
coming-weekly = { $days } à { $hour }:00 ({ $zone }), s’il y a du nouveau
coming-alone = Au fil des événements
coming-always = Toujours
coming-locked = (ne peut pas être désactivé)
coming-nothing = Rien : vous ne recevez aucun e-mail de { $site }.
held-back = Les e-mails à cette adresse sont retenus pour le moment, quels que soient les choix faits ici.
stop-digest = Arrêter le récapitulatif
stop-all = Se désabonner de tout

preferences = Vos e-mails
preferences-of = Ce que { $address } reçoit de { $site }.
preferences-you = Ce que vous recevez de { $site }.
saved = Enregistré.
state-unsubscribed = Vous êtes désabonné depuis le { $date } et ne recevez aucun e-mail. Pour en recevoir de nouveau, choisissez la fréquence.
state-unsubscribed-kept = Vous êtes désabonné depuis le { $date } et ne recevez que les e-mails qui ne peuvent pas être désactivés. Pour en recevoir d’autres, choisissez la fréquence.
state-never = Vous ne recevez aucun récapitulatif.
state-never-kept = Vous ne recevez de récapitulatif que de ce qui ne peut pas être désactivé.
state-daily = Vous recevez au plus un récapitulatif par jour, à { $hour }:00 ({ $zone }).
state-weekly = Vous recevez au plus un récapitulatif par semaine, { $days } à { $hour }:00 ({ $zone }).
next-digest = Votre prochain récapitulatif arrive le { $date }, s’il y a du nouveau.
turned-off = Vous avez désactivé : { $types }.
mails-held-back = Les e-mails à cette adresse sont retenus pour le moment, quels que soient les choix faits ici.
how-often = Fréquence
cadence-daily = Chaque jour où il y a du nouveau
cadence-weekly = Une fois par semaine
cadence-never = Aucun récapitulatif
when = Quand
weekday = Jour, si une fois par semaine
hour = Heure
time-zone = Fuseau horaire
quiet-hours = Heures calmes
quiet-why = Les e-mails envoyés au fil des événements attendent leur fin. Laissez les deux champs vides pour ne pas en avoir.
quiet-from = De
quiet-to = À
what = Quoi
locked = Ceci ne peut pas être désactivé
route-digest = Dans le récapitulatif
route-batch = Bientôt, regroupés
route-immediate = Immédiatement
route-never = Jamais
save = Enregistrer
end-all = Ou arrêter tous les e-mails en une fois :
end-all-kept = Ou arrêter en une fois tous les e-mails qui peuvent être désactivés :
weekday-mon = lundi
    .each = le lundi
weekday-tue = mardi
    .each = le mardi
weekday-wed = mercredi
    .each = le mercredi
weekday-thu = jeudi
    .each = le jeudi
weekday-fri = vendredi
    .each = le vendredi
weekday-sat = samedi
    .each = le samedi
weekday-sun = dimanche
    .each = le dimanche
region-Africa = Afrique
region-America = Amérique
region-Antarctica = Antarctique
region-Asia = Asie
region-Atlantic = Atlantique
region-Australia = Australie
region-Europe = Europe
region-Indian = Océan Indien
region-Pacific = Pacifique
region-Other = Autres

ask-digest = Arrêter le récapitulatif ?
ask-follow = Ne plus suivre { $name } ?
ask-types = Arrêter ces e-mails ?
ask-digest-of = { $address } ne recevra plus de récapitulatifs de { $site }.
ask-digest-you = Vous ne recevrez plus de récapitulatifs de { $site }.
ask-follow-of = { $address } ne recevra plus de nouvelles de { $name } de la part de { $site }. Ce qui s’est passé avant peut encore arriver une fois.
ask-follow-you = Vous ne recevrez plus de nouvelles de { $name } de la part de { $site }. Ce qui s’est passé avant peut encore arriver une fois.
ask-alone-of = { $address } ne recevra plus d’e-mails de { $site } au fil des événements.
ask-alone-you = Vous ne recevrez plus d’e-mails de { $site } au fil des événements.
ask-types-of = { $count ->
    [one] { $address } ne recevra plus d’e-mails de ce type de { $site } :
   *[other] { $address } ne recevra plus d’e-mails de ces types de { $site } :
}
ask-types-you = { $count ->
    [one] Vous ne recevrez plus d’e-mails de ce type de { $site } :
   *[other] Vous ne recevrez plus d’e-mails de ces types de { $site } :
}
stop-types = Arrêter ces e-mails
comes-now = Ce que vous recevez maintenant
unsubscribed = Désabonnement effectué
stopped-digest = Plus de récapitulatifs
stopped-follow = Vous ne suivez plus { $name }
stopped-types = Plus d’e-mails de ce genre
stopped-digest-of = { $address } ne reçoit plus de récapitulatifs de { $site }.
stopped-digest-you = Vous ne recevez plus de récapitulatifs de { $site }.
stopped-follow-of = { $address } ne reçoit plus de nouvelles de { $name } de la part de { $site }. Ce qui s’est passé avant peut encore arriver une fois.
stopped-follow-you = Vous ne recevez plus de nouvelles de { $name } de la part de { $site }. Ce qui s’est passé avant peut encore arriver une fois.
stopped-alone-of = { $address } ne reçoit plus d’e-mails de { $site } au fil des événements.
stopped-alone-you = Vous ne recevez plus d’e-mails de { $site } au fil des événements.
stopped-types-of = { $count ->
    [one] { $address } ne reçoit plus d’e-mails de ce type de { $site } :
   *[other] { $address } ne reçoit plus d’e-mails de ces types de { $site } :
}
stopped-types-you = { $count ->
    [one] Vous ne recevez plus d’e-mails de ce type de { $site } :
   *[other] Vous ne recevez plus d’e-mails de ces types de { $site } :
}
still-comes = Ce qui arrive encore
undo = Annuler
ask-mute = Mettre en sourdine ?
ask-subject-of = { $address } ne recevra plus d’e-mails de { $site } à ce sujet :
ask-subject-you = Vous ne recevrez plus d’e-mails de { $site } à ce sujet :
muted = En sourdine
stopped-subject-of = { $address } ne reçoit plus d’e-mails de { $site } à ce sujet :
stopped-subject-you = Vous ne recevez plus d’e-mails de { $site } à ce sujet :
muted-until = Jusqu’au { $date }
unmute = Ne plus mettre en sourdine
ask-all = Se désabonner ?
ask-all-of = { $address } ne recevra plus d’e-mails de { $site }.
ask-all-you = Vous ne recevrez plus d’e-mails de { $site }.
ask-all-of-kept = { $address } ne recevra plus d’e-mails de { $site }, sauf ceux qui ne peuvent pas être désactivés : { $types }.
ask-all-you-kept = Vous ne recevrez plus d’e-mails de { $site }, sauf ceux qui ne peuvent pas être désactivés : { $types }.
ask-all-instead = Trop d’e-mails, ou pas les bons ? { $choose }
stopped-all = Vous êtes désabonné
stopped-all-of = { $address } ne reçoit plus d’e-mails de { $site }.
stopped-all-you = Vous ne recevez plus d’e-mails de { $site }.
stopped-all-of-kept = { $address } ne reçoit plus d’e-mails de { $site }, sauf ceux qui ne peuvent pas être désactivés : { $types }.
stopped-all-you-kept = Vous ne recevez plus d’e-mails de { $site }, sauf ceux qui ne peuvent pas être désactivés : { $types }.
stopped-since = Depuis le { $date }.
stopped-mistake = Était-ce une erreur ? { $choose } : les envois reprendront à partir de là.

notice-forged = Ce lien ne fonctionne pas
    .text = Il est incomplet, ou il ne vient pas de nous. Certains logiciels de messagerie coupent les longs liens : copiez le lien entier depuis l’e-mail, ou utilisez celui d’un e-mail plus récent. Rien n’a été modifié.
notice-expired = Ce lien est trop ancien
    .text = Les liens de nos e-mails sont valables un an. Veuillez utiliser celui d’un e-mail plus récent ; il se trouve à la fin. Rien n’a été modifié.
notice-gone = Vous ne recevez aucun e-mail de nous
    .text = Nous n’avons plus de données vous concernant : il n’y a donc rien à choisir ni à arrêter.
notice-not-followed = Vous ne suivez pas ceci
    .text = Il n’y a rien à arrêter ici : vous ne le suivez plus, ou ne l’avez jamais suivi. Rien n’a été modifié.
notice-mandatory = Ceci ne peut pas être désactivé
    .text = { $reason }. Tous les autres e-mails peuvent l’être. Rien n’a été modifié.
notice-form = Cela n’a pas fonctionné
    .text = { $why } Rien n’a été modifié.
notice-choice = Ce choix n’est pas possible
    .text = { $why }. Rien n’a été modifié ; veuillez revenir en arrière et choisir de nouveau.
notice-quiet = Les heures calmes demandent les deux heures, ou aucune
    .text = Remplissez « De » et « À », ou laissez les deux champs vides. Rien n’a été modifié.
notice-inside = Veuillez réessayer
    .text = Nous ne pouvons pas accéder à nos données pour le moment et ne savons pas si quelque chose a été modifié. Veuillez réessayer dans une minute : le faire deux fois est sans conséquence.

widget-bell = Notifications
widget-new = Nouveautés : { $n }
widget-current = Toutes
widget-unread = Non lues
widget-read-all = Tout marquer comme lu
widget-preferences = Préférences
widget-close = Fermer
widget-more = Afficher plus
widget-rest = +{ $n } de plus
widget-archive = Archiver
widget-archived = Archivé.
widget-undo = Annuler
widget-empty = Vous êtes à jour
widget-error = Chargement impossible pour le moment.
widget-expired = Veuillez vous reconnecter.
widget-refused = Indisponible.
widget-retry = Réessayer
