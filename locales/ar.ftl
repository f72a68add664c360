# Arabic (Modern Standard Arabic), with European digits.

direction = rtl
calendar = ar_EG
thousands = ,
    .min = 4
date = %-d %B
date-year = %-d %B %Y
date-next = %A، %-d %B %Y، %H:%M
date-time = { $date }، { $time }
time = %H:%M
comma = {"، "}
and = {" و"}
label = { $label }: { $text }
quote = «{ $text }»

things = { $count ->
    [zero] جديد
    [one] خبر جديد
    [two] خبران جديدان
    [few] أخبار جديدة
    [many] خبرًا جديدًا
   *[other] خبر جديد
}

count-things = { $count ->
    [one] { $things }
    [two] { $things }
   *[other] { $count } { $things }
}
count-new = { $count } من الجديد
people = { $count ->
    [zero] لا أحد
    [one] شخص واحد
    [two] شخصان
    [few] { $count } أشخاص
    [many] { $count } شخصًا
   *[other] { $count } شخص
}
list-others = { $count ->
    [one] { $list } وشخص آخر
    [two] { $list } وشخصان آخران
    [few] { $list } و{ $count } آخرون
    [many] { $list } و{ $count } آخر
   *[other] { $list } و{ $count } آخرين
}
list-more = { $list } و{ $count } غير ذلك
said = { $who } { $phrase } { $about }
times = { $count ->
    [one] مرة واحدة
    [two] مرتين
    [few] { $count } مرات
   *[other] { $count } مرة
}
said-more = { $said }، و{ $count } غير ذلك
new = جديد
by = { $label } من { $who }
news-from = { $news } من { $site }
news-by = { $news } من { $who }
news-and-more = { $names } والمزيد
more = { $count } أخرى
more-named = { $count } { $more }
more-on = { $count } أخرى حول { $name }
more-named-on = { $count } { $more } حول { $name }
open = فتح { $name }
see-online = العرض على الإنترنت

digest-head = { $news } لك
digest-since = ملخصك: الجديد منذ { $since }.
digest-since-daily = ملخصك اليومي: الجديد منذ { $since }.
digest-since-weekly = ملخصك الأسبوعي: الجديد منذ { $since }.
digest-why = لقد طلبت هذا الملخص من { $site }.
digest-why-daily = هذا ملخصك اليومي من { $site }. يصلك مرة واحدة في اليوم على الأكثر، وفقط عندما يكون هناك جديد.
digest-why-weekly = هذا ملخصك الأسبوعي من { $site }. يصلك مرة واحدة في الأسبوع على الأكثر، وفقط عندما يكون هناك جديد.

batch-at = الوقت: { $time }.
batch-span = من { $since } إلى { $until }.
batch-why = تصلك هذه الرسائل من { $site } عند وقوع الأحداث، وتُجمع الأحداث المتقاربة معًا. الأوقات بحسب { $zone }.

because = لأنك تتابع { $name }.
unfollow = إلغاء المتابعة
unfollow-name = إلغاء متابعة { $name }
mandatory-why = { $reason }. لذلك تصلك هذه الرسالة حتى إن أوقفتها أو ألغيت اشتراكك.
choose = اختيار ما يصلك
unsubscribe = إلغاء الاشتراك
unsubscribe-digest = إلغاء الاشتراك في هذا الملخص
unsubscribe-alone = إلغاء الاشتراك في الرسائل المشابهة
unsubscribe-kinds = { $count ->
    [few] إلغاء الاشتراك في هذه الأنواع الـ{ $count }
   *[other] إلغاء الاشتراك في هذه الأنواع ({ $count })
}
unsubscribe-types = إلغاء الاشتراك في { $types }
mute = كتم { $name }
mute-this = كتم هذا الموضوع

coming-digest = الملخص
coming-daily = كل يوم في الساعة { $hour }:00 ({ $zone })، إذا كان هناك جديد
coming-weekly = { $days } في الساعة { $hour }:00 ({ $zone })، إذا كان هناك جديد
coming-alone = عند الحدوث
coming-always = دائمًا
coming-locked = (لا يمكن إيقافه)
coming-nothing = لا شيء: لا تصلك أي رسائل من { $site }.
held-back = الرسائل إلى هذا العنوان محجوزة حاليًا، مهما كانت الخيارات هنا.
stop-digest = إيقاف الملخص
stop-all = إلغاء الاشتراك في كل شيء

preferences = رسائلك
preferences-of = ما يصل إلى { $address } من { $site }.
preferences-you = ما يصلك من { $site }.
saved = تم الحفظ.
state-unsubscribed = اشتراكك ملغى منذ { $date } ولا تصلك أي رسائل. للعودة، اختر عدد المرات.
state-unsubscribed-kept = اشتراكك ملغى منذ { $date } ولا تصلك إلا الرسائل التي لا يمكن إيقافها. للعودة، اختر عدد المرات.
state-never = لا يصلك أي ملخص.
state-never-kept = لا يصلك ملخص إلا بما لا يمكن إيقافه.
state-daily = يصلك ملخص واحد في اليوم على الأكثر، في الساعة { $hour }:00 ({ $zone }).
state-weekly = يصلك ملخص واحد في الأسبوع على الأكثر، { $days } في الساعة { $hour }:00 ({ $zone }).
next-digest = يصلك الملخص التالي في { $date }، إذا كان هناك جديد.
turned-off = ما أوقفته: { $types }.
mails-held-back = الرسائل إلى هذا العنوان محجوزة حاليًا، مهما كانت الخيارات هنا.
how-often = عدد المرات
cadence-daily = كل يوم يكون فيه جديد
cadence-weekly = مرة في الأسبوع
cadence-never = بلا ملخص
when = الموعد
weekday = اليوم، إذا كان مرة في الأسبوع
hour = الساعة
time-zone = المنطقة الزمنية
quiet-hours = ساعات الهدوء
quiet-why = تنتظر الرسائل التي تصل عند وقوع الأحداث حتى تنتهي. اترك الحقلين فارغين إذا كنت لا تريدها.
quiet-from = من
quiet-to = إلى
what = المحتوى
locked = لا يمكن إيقاف هذا
route-digest = في الملخص
route-batch = قريبًا، مجمّعة
route-immediate = فورًا
route-never = أبدًا
save = حفظ
end-all = أو أوقف جميع الرسائل دفعة واحدة:
end-all-kept = أو أوقف جميع الرسائل التي يمكن إيقافها دفعة واحدة:
weekday-mon = الاثنين
    .each = كل اثنين
weekday-tue = الثلاثاء
    .each = كل ثلاثاء
weekday-wed = الأربعاء
    .each = كل أربعاء
weekday-thu = الخميس
    .each = كل خميس
weekday-fri = الجمعة
    .each = كل جمعة
weekday-sat = السبت
    .each = كل سبت
weekday-sun = الأحد
    .each = كل أحد
region-Africa = أفريقيا
region-America = أمريكا
region-Antarctica = القارة القطبية الجنوبية
region-Asia = آسيا
region-Atlantic = المحيط الأطلسي
region-Australia = أستراليا
region-Europe = أوروبا
region-Indian = المحيط الهندي
region-Pacific = المحيط الهادئ
region-Other = غير ذلك

ask-digest = هل تريد إيقاف الملخص؟
ask-follow = هل تريد إلغاء متابعة { $name }؟
ask-types = هل تريد إيقاف هذه الرسائل؟
ask-digest-of = لن تصل إلى { $address } ملخصات من { $site } بعد الآن.
ask-digest-you = لن تصلك ملخصات من { $site } بعد الآن.
ask-follow-of = لن تصل إلى { $address } أخبار { $name } من { $site } بعد الآن. قد يصل ما حدث من قبل مرة أخرى.
ask-follow-you = لن تصلك أخبار { $name } من { $site } بعد الآن. قد يصل ما حدث من قبل مرة أخرى.
ask-alone-of = لن تصل إلى { $address } رسائل من { $site } عند وقوع الأحداث.
ask-alone-you = لن تصلك رسائل من { $site } عند وقوع الأحداث.
ask-types-of = { $count ->
    [one] لن تصل إلى { $address } رسائل من هذا النوع من { $site } بعد الآن:
    [two] لن تصل إلى { $address } رسائل من هذين النوعين من { $site } بعد الآن:
   *[other] لن تصل إلى { $address } رسائل من هذه الأنواع من { $site } بعد الآن:
}
ask-types-you = { $count ->
    [one] لن تصلك رسائل من هذا النوع من { $site } بعد الآن:
    [two] لن تصلك رسائل من هذين النوعين من { $site } بعد الآن:
   *[other] لن تصلك رسائل من هذه الأنواع من { $site } بعد الآن:
}
stop-types = إيقاف هذه الرسائل
comes-now = ما يصلك الآن
unsubscribed = تم إلغاء الاشتراك
stopped-digest = لا مزيد من الملخصات
stopped-follow = لم تعد تتابع { $name }
stopped-types = لا مزيد من هذه الرسائل
stopped-digest-of = لم تعد تصل إلى { $address } ملخصات من { $site }.
stopped-digest-you = لم تعد تصلك ملخصات من { $site }.
stopped-follow-of = لم تعد تصل إلى { $address } أخبار { $name } من { $site }. قد يصل ما حدث من قبل مرة أخرى.
stopped-follow-you = لم تعد تصلك أخبار { $name } من { $site }. قد يصل ما حدث من قبل مرة أخرى.
stopped-alone-of = لم تعد تصل إلى { $address } رسائل من { $site } عند وقوع الأحداث.
stopped-alone-you = لم تعد تصلك رسائل من { $site } عند وقوع الأحداث.
stopped-types-of = { $count ->
    [one] لم تعد تصل إلى { $address } رسائل من هذا النوع من { $site }:
    [two] لم تعد تصل إلى { $address } رسائل من هذين النوعين من { $site }:
   *[other] لم تعد تصل إلى { $address } رسائل من هذه الأنواع من { $site }:
}
stopped-types-you = { $count ->
    [one] لم تعد تصلك رسائل من هذا النوع من { $site }:
    [two] لم تعد تصلك رسائل من هذين النوعين من { $site }:
   *[other] لم تعد تصلك رسائل من هذه الأنواع من { $site }:
}
still-comes = ما سيستمر في الوصول
undo = تراجع
ask-mute = هل تريد كتم هذا الموضوع؟
ask-subject-of = لن تصل إلى { $address } رسائل أخرى من { $site } عن هذا الموضوع:
ask-subject-you = لن تصلك رسائل أخرى من { $site } عن هذا الموضوع:
muted = تم الكتم
stopped-subject-of = لم تعد تصل إلى { $address } رسائل من { $site } عن هذا الموضوع:
stopped-subject-you = لم تعد تصلك رسائل من { $site } عن هذا الموضوع:
muted-until = حتى { $date }
unmute = إلغاء الكتم
ask-all = هل تريد إلغاء الاشتراك؟
ask-all-of = لن تصل إلى { $address } رسائل من { $site } بعد الآن.
ask-all-you = لن تصلك رسائل من { $site } بعد الآن.
ask-all-of-kept = لن تصل إلى { $address } رسائل من { $site } إلا التي لا يمكن إيقافها: { $types }.
ask-all-you-kept = لن تصلك رسائل من { $site } إلا التي لا يمكن إيقافها: { $types }.
ask-all-instead = هل الرسائل كثيرة أو غير مناسبة؟ يمكنك بدلًا من ذلك { $choose }.
stopped-all = تم إلغاء اشتراكك
stopped-all-of = لم تعد تصل إلى { $address } رسائل من { $site }.
stopped-all-you = لم تعد تصلك رسائل من { $site }.
stopped-all-of-kept = لم تعد تصل إلى { $address } رسائل من { $site } إلا التي لا يمكن إيقافها: { $types }.
stopped-all-you-kept = لم تعد تصلك رسائل من { $site } إلا التي لا يمكن إيقافها: { $types }.
stopped-since = منذ { $date }.
stopped-mistake = هل كان ذلك خطأً؟ يمكنك { $choose }، فتعود الرسائل منذ ذلك الحين.

notice-forged = هذا الرابط لا يعمل
    .text = إنه غير مكتمل أو ليس من روابطنا. بعض برامج البريد تقطع الروابط الطويلة: انسخ الرابط كاملًا من الرسالة، أو استخدم الرابط الموجود في رسالة أحدث. لم يتغير شيء.
notice-expired = هذا الرابط قديم جدًا
    .text = تعمل الروابط في رسائلنا لمدة سنة. يرجى استخدام الرابط الموجود في نهاية رسالة أحدث. لم يتغير شيء.
notice-gone = لا تصلك رسائل منا
    .text = لم يعد لدينا سجل عنك، فلا يوجد ما تختاره أو توقفه.
notice-not-followed = أنت لا تتابع هذا
    .text = لا يوجد هنا ما يمكن إلغاء متابعته: توقفت عن متابعته من قبل أو لم تتابعه قط. لم يتغير شيء.
notice-mandatory = لا يمكن إيقاف هذا
    .text = { $reason }. يمكن إيقاف جميع الرسائل الأخرى. لم يتغير شيء.
notice-form = لم ينجح ذلك
    .text = { $why } لم يتغير شيء.
notice-choice = لا يمكن اختيار ذلك
    .text = { $why }. لم يتغير شيء؛ يرجى الرجوع والاختيار مرة أخرى.
notice-quiet = تحتاج ساعات الهدوء إلى الوقتين معًا أو لا شيء
    .text = املأ الحقلين «من» و«إلى» معًا، أو اتركهما فارغين. لم يتغير شيء.
notice-inside = يرجى المحاولة مرة أخرى
    .text = لا يمكننا الوصول إلى سجلاتنا حاليًا، ولا نعرف ما إذا كان قد تغير شيء. يرجى المحاولة مرة أخرى بعد دقيقة: لا ضرر من تكرار ذلك.

widget-bell = الإشعارات
widget-new = الجديد: { $n }
widget-current = الكل
widget-unread = غير مقروء
widget-read-all = تعليم الكل كمقروء
widget-preferences = التفضيلات
widget-close = إغلاق
widget-more = عرض المزيد
widget-rest = +{ $n }
widget-archive = أرشفة
widget-archived = تمت الأرشفة.
widget-undo = تراجع
widget-empty = لا جديد
widget-error = يتعذر التحميل الآن.
widget-expired = يرجى تسجيل الدخول مجددًا.
widget-refused = غير متاح.
widget-retry = إعادة المحاولة
