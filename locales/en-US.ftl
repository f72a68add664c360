# American English: what differs from the English catalog.

calendar = en_US
date = %B %-d
date-year = %B %-d, %Y
date-next = %A, %B %-d, %Y, %-I:%M %p
time = %-I:%M %p
