# Japanese. Polite: です and ます.

direction = ltr
calendar = ja_JP
thousands = ,
    .min = 4
date = %-m月%-d日
date-year = %Y年%-m月%-d日
date-next = %Y年%-m月%-d日(%A) %H:%M
date-time = { $date } { $time }
time = %H:%M
comma = 、
and = と
label = { $label }：{ $text }
quote = 「{ $text }」

things = { $count ->
   *[other] 件の新着
}

count-things = { $count }{ $things }
count-new = 新着{ $count }件
people = { $count }人
list-others = { $list }、ほか{ $count }人
list-more = { $list }、ほか{ $count }件
said = { $who }：{ $phrase } { $about }
times = （{ $count }回）
said-more = { $said }、ほか{ $count }件
new = 新着
by = { $label }（{ $who }）
news-from = { $site }：{ $news }
news-by = { $who }：{ $news }
news-and-more = { $names } ほか
more = ほか{ $count }件
more-named = ほか{ $count }{ $more }
more-on = { $name }：ほか{ $count }件
more-named-on = { $name }：ほか{ $count }{ $more }
open = { $name } を開く
see-online = オンラインで見る

digest-head = { $news }があります
digest-since = ダイジェスト：{ $since }以降の新着情報です。
digest-since-daily = 毎日のダイジェスト：{ $since }以降の新着情報です。
digest-since-weekly = 毎週のダイジェスト：{ $since }以降の新着情報です。
digest-why = ご希望により { $site } からお送りしたダイジェストです。
digest-why-daily = { $site } からの毎日のダイジェストです。新しい情報があるときに限り、多くても1日1回お送りします。
digest-why-weekly = { $site } からの毎週のダイジェストです。新しい情報があるときに限り、多くても週1回お送りします。

batch-at = { $time }
batch-span = { $since }から{ $until }まで
batch-why = このメールは、何かが起きたときに { $site } からお送りしています。続けて起きたことは1通にまとめます。時刻は { $zone } のものです。

because = { $name } をフォローしているため、お送りしています。
unfollow = フォローを解除
unfollow-name = { $name } のフォローを解除
mandatory-why = { $reason }。そのため、停止や配信解除をされた場合でもこのメールをお送りしています。
choose = 受け取る内容を選ぶ
unsubscribe = 配信を停止する
unsubscribe-digest = このダイジェストの配信を停止する
unsubscribe-alone = このようなメールの配信を停止する
unsubscribe-kinds = これら{ $count }種類の配信を停止する
unsubscribe-types = { $types } の配信を停止する
mute = { $name } をミュートする
mute-this = この話題をミュートする

coming-digest = ダイジェスト
coming-daily = 毎日 { $hour }:00（{ $zone }）、新しい情報があるとき
coming-weekly = { $days } { $hour }:00（{ $zone }）、新しい情報があるとき
coming-alone = その都度
coming-always = 常に
coming-locked = （停止できません）
coming-nothing = { $site } からメールは届きません。
held-back = ここでの選択にかかわらず、現在このアドレスへのメールは保留されています。
stop-digest = ダイジェストを停止する
stop-all = すべての配信を停止する

preferences = メールの設定
preferences-of = { $site } から { $address } に届くメールの設定です。
preferences-you = { $site } から届くメールの設定です。
saved = 保存しました。
state-unsubscribed = { $date }から配信を停止しており、メールは届きません。再開するには頻度を選んでください。
state-unsubscribed-kept = { $date }から配信を停止しており、停止できないメールのみ届きます。再開するには頻度を選んでください。
state-never = ダイジェストは届きません。
state-never-kept = 停止できないもののダイジェストのみ届きます。
state-daily = ダイジェストは多くても1日1回、{ $hour }:00（{ $zone }）に届きます。
state-weekly = ダイジェストは多くても週1回、{ $days } { $hour }:00（{ $zone }）に届きます。
next-digest = 新しい情報があれば、次のダイジェストは{ $date }に届きます。
turned-off = 停止しているもの：{ $types }
mails-held-back = ここでの選択にかかわらず、現在このアドレスへのメールは保留されています。
how-often = 頻度
cadence-daily = 新しい情報がある日は毎日
cadence-weekly = 週1回
cadence-never = ダイジェストなし
when = 日時
weekday = 曜日（週1回の場合）
hour = 時刻
time-zone = タイムゾーン
quiet-hours = おやすみ時間
quiet-why = 都度のメールは、この時間が終わるまで届きません。設定しない場合は両方を空欄にしてください。
quiet-from = 開始
quiet-to = 終了
what = 内容
locked = これは停止できません
route-digest = ダイジェストで
route-batch = まもなく、まとめて
route-immediate = すぐに
route-never = 受け取らない
save = 保存する
end-all = すべてのメールを一度に停止することもできます：
end-all-kept = 停止できるすべてのメールを一度に停止することもできます：
weekday-mon = 月曜日
    .each = 毎週月曜日
weekday-tue = 火曜日
    .each = 毎週火曜日
weekday-wed = 水曜日
    .each = 毎週水曜日
weekday-thu = 木曜日
    .each = 毎週木曜日
weekday-fri = 金曜日
    .each = 毎週金曜日
weekday-sat = 土曜日
    .each = 毎週土曜日
weekday-sun = 日曜日
    .each = 毎週日曜日
region-Africa = アフリカ
region-America = アメリカ
region-Antarctica = 南極
region-Asia = アジア
region-Atlantic = 大西洋
region-Australia = オーストラリア
region-Europe = ヨーロッパ
region-Indian = インド洋
region-Pacific = 太平洋
region-Other = その他

ask-digest = ダイジェストを停止しますか？
ask-follow = { $name } のフォローを解除しますか？
ask-types = これらのメールを停止しますか？
ask-digest-of = { $address } に { $site } からのダイジェストが届かなくなります。
ask-digest-you = { $site } からのダイジェストが届かなくなります。
ask-follow-of = { $address } に { $site } から { $name } のお知らせが届かなくなります。これまでの出来事は、あと一度届くことがあります。
ask-follow-you = { $site } から { $name } のお知らせが届かなくなります。これまでの出来事は、あと一度届くことがあります。
ask-alone-of = { $address } に { $site } からの都度のメールが届かなくなります。
ask-alone-you = { $site } からの都度のメールが届かなくなります。
ask-types-of = { $count ->
   *[other] { $address } に { $site } からの次の種類のメールが届かなくなります：
}
ask-types-you = { $count ->
   *[other] { $site } からの次の種類のメールが届かなくなります：
}
stop-types = これらのメールを停止する
comes-now = 現在届くもの
unsubscribed = 配信を停止しました
stopped-digest = ダイジェストを停止しました
stopped-follow = { $name } のフォローを解除しました
stopped-types = これらのメールを停止しました
stopped-digest-of = { $address } に { $site } からのダイジェストは届きません。
stopped-digest-you = { $site } からのダイジェストは届きません。
stopped-follow-of = { $address } に { $site } から { $name } のお知らせは届きません。これまでの出来事は、あと一度届くことがあります。
stopped-follow-you = { $site } から { $name } のお知らせは届きません。これまでの出来事は、あと一度届くことがあります。
stopped-alone-of = { $address } に { $site } からの都度のメールは届きません。
stopped-alone-you = { $site } からの都度のメールは届きません。
stopped-types-of = { $count ->
   *[other] { $address } に { $site } からの次の種類のメールは届きません：
}
stopped-types-you = { $count ->
   *[other] { $site } からの次の種類のメールは届きません：
}
still-comes = 引き続き届くもの
undo = 元に戻す
ask-mute = この話題をミュートしますか？
ask-subject-of = { $address } に、次の話題についての { $site } からのメールが届かなくなります：
ask-subject-you = 次の話題についての { $site } からのメールが届かなくなります：
muted = ミュート中
stopped-subject-of = { $address } に、次の話題についての { $site } からのメールは届きません：
stopped-subject-you = 次の話題についての { $site } からのメールは届きません：
muted-until = { $date }まで
unmute = ミュートを解除する
ask-all = 配信を停止しますか？
ask-all-of = { $address } に { $site } からのメールが届かなくなります。
ask-all-you = { $site } からのメールが届かなくなります。
ask-all-of-kept = { $address } に { $site } から届くメールは、停止できないもののみになります：{ $types }。
ask-all-you-kept = { $site } から届くメールは、停止できないもののみになります：{ $types }。
ask-all-instead = メールが多すぎたり、内容が合わなかったりしますか？ { $choose }こともできます。
stopped-all = 配信を停止しました
stopped-all-of = { $address } に { $site } からのメールは届きません。
stopped-all-you = { $site } からのメールは届きません。
stopped-all-of-kept = { $address } に { $site } から届くメールは、停止できないもののみです：{ $types }。
stopped-all-you-kept = { $site } から届くメールは、停止できないもののみです：{ $types }。
stopped-since = 停止日：{ $date }
stopped-mistake = お間違いでしたか？ { $choose }と、その時点から配信を再開します。

notice-forged = このリンクは使えません
    .text = リンクが途中で切れているか、当方のものではありません。メールソフトによっては長いリンクが途切れることがあります。メールからリンク全体をコピーするか、新しいメールのリンクをお使いください。何も変更されていません。
notice-expired = このリンクは古すぎます
    .text = メールのリンクは1年間有効です。新しいメールの末尾にあるリンクをお使いください。何も変更されていません。
notice-gone = 当方からメールは届きません
    .text = お客様の記録はもうないため、選んだり停止したりするものはありません。
notice-not-followed = フォローしていません
    .text = 解除するものはありません。すでに解除したか、フォローしたことがありません。何も変更されていません。
notice-mandatory = これは停止できません
    .text = { $reason }。ほかのメールはすべて停止できます。何も変更されていません。
notice-form = うまくいきませんでした
    .text = { $why } 何も変更されていません。
notice-choice = その選択はできません
    .text = { $why }。何も変更されていません。前のページに戻って選び直してください。
notice-quiet = おやすみ時間には開始と終了の両方が必要です
    .text = 「開始」と「終了」の両方を入力するか、両方を空欄にしてください。何も変更されていません。
notice-inside = もう一度お試しください
    .text = 現在記録にアクセスできず、変更されたかどうか分かりません。1分後にもう一度お試しください。2回行っても問題ありません。

widget-bell = お知らせ
widget-new = 新着{ $n }件
widget-current = すべて
widget-unread = 未読
widget-read-all = すべて既読にする
widget-preferences = 設定
widget-close = 閉じる
widget-more = もっと見る
widget-rest = ほか{ $n }件
widget-archive = アーカイブ
widget-archived = アーカイブしました。
widget-undo = 元に戻す
widget-empty = 未読はありません
widget-error = 現在読み込めません。
widget-expired = もう一度ログインしてください。
widget-refused = 利用できません。
widget-retry = 再試行
