//! Tests of catalogs: completeness, plurals, fallbacks, and errors in a folder's own catalogs.
//!
//! Long because the plural forms and the errors are lists of cases.

use fluent_bundle::FluentResource;

use super::super::catalog_files::{BUILT_IN, Messages, REGIONAL, messages};
use super::super::locale_formatter::{Medium, MessageValue};
use super::super::tests::{at, digest, email, site, titled, work};
use super::super::{Renderer, sample};
use super::*;
use crate::domain::{EventType, Policies, Policy, User, UserId};

fn ours() -> Catalogs {
    Catalogs::load(None).unwrap()
}

fn format_in(locale: &str, id: &str, values: &[(&str, MessageValue<'_>)]) -> String {
    ours().formatter(Some(locale)).format(id, values, Medium::Text).unwrap()
}

/// Loads a folder with one catalog.
fn with(file: &str, text: &str) -> Result<Renderer, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locales")).unwrap();
    std::fs::write(folder.path().join("locales").join(file), text).unwrap();
    Renderer::new(site(), Some(folder.path().to_owned())).map_err(|error| error.to_string())
}

fn reader(locale: &str) -> User {
    User { locale: Some(locale.into()), ..User::new(UserId::stored("ada")) }
}

/// Returns the messages of a catalog that are missing, unknown, or have other variables than in
/// English.
fn differences(text: &str) -> Vec<String> {
    let read = |text: &str| -> Messages {
        match FluentResource::try_new(text.to_owned()) {
            Ok(resource) => messages(&resource),
            Err((_, errors)) => panic!("{errors:?}"),
        }
    };
    let english = BUILT_IN.iter().find(|(tag, _)| *tag == ENGLISH).unwrap();
    let (english, other) = (read(english.1), read(text));
    let ids = english.keys().chain(other.keys());
    let mut different: Vec<String> = ids
        .filter(|id| english.get(*id) != other.get(*id))
        .map(|id| format!("{id}: {:?}", other.get(id)))
        .collect();
    different.dedup();
    different
}

#[test]
fn every_catalog_has_all_messages_with_the_same_variables() {
    for (tag, text) in BUILT_IN {
        assert_eq!(differences(text), Vec::<String>::new(), "{tag}");
    }
}

#[test]
fn a_regional_catalog_has_only_messages_that_english_has() {
    for (tag, text) in REGIONAL {
        let mut unknown = differences(text);
        unknown.retain(|difference| !difference.ends_with(": None"));
        assert_eq!(unknown, Vec::<String>::new(), "{tag}");
    }
}

#[test]
fn missing_messages_and_wrong_variables_are_detected() {
    let english = BUILT_IN.iter().find(|(tag, _)| *tag == ENGLISH).unwrap().1;

    let missing = differences(&english.replace("see-online = See it online\n", ""));
    let other = differences(&english.replace("{ $since } to", "{ $sinse } to"));

    assert_eq!(missing, ["see-online: None"]);
    assert_eq!(other, [r#"batch-span: Some({"sinse", "until"})"#]);
}

#[test]
fn emails_and_pages_render_in_every_catalog() {
    let user = |tag: &str| reader(tag);
    let renderer = Renderer::new(site(), None).unwrap();
    for (tag, _) in BUILT_IN {
        let user = user(tag);
        assert_eq!(renderer.locale_of(&user), *tag);
        let try_out = |email: &super::super::EmailInput<'_>| {
            let email = super::super::EmailInput { user: &user, ..email.clone() };
            let rendered = renderer.render(&email)?;
            let html = format!(r#"<html lang="{tag}" dir=""#);
            assert!(rendered.html.contains(&html), "{}", rendered.html);
            let words = format!("{} {}", rendered.subject, rendered.text);
            assert!(!words.contains(['{', '\u{e000}', '\u{e001}']), "{words}");
            Ok(())
        };
        sample::try_all(try_out).unwrap();
    }
}

#[test]
fn plurals_follow_the_language() {
    let people = |locale: &str, count: u64| {
        let text = format_in(locale, "people", &[("count", MessageValue::Count(count))]);
        text.replace(['\u{a0}', '\u{202f}'], " ")
    };
    let all = |locale: &str, counts: &[u64]| -> Vec<String> {
        counts.iter().map(|count| people(locale, *count)).collect()
    };

    assert_eq!(all("de", &[1, 2, 1_000]), ["1 Person", "2 Personen", "1.000 Personen"]);
    assert_eq!(all("fr", &[0, 1, 2]), ["0 personne", "1 personne", "2 personnes"]);
    assert_eq!(all("ja", &[1, 2, 5]), ["1人", "2人", "5人"]);
    assert_eq!(
        all("pl", &[1, 2, 4, 5, 12, 22, 25]),
        ["1 osoba", "2 osoby", "4 osoby", "5 osób", "12 osób", "22 osoby", "25 osób"]
    );
    assert_eq!(
        all("ru", &[1, 2, 5, 11, 21, 22, 25]),
        [
            "1 человек",
            "2 человека",
            "5 человек",
            "11 человек",
            "21 человек",
            "22 человека",
            "25 человек"
        ]
    );
    assert_eq!(
        all("ar", &[0, 1, 2, 3, 10, 11, 99, 100, 102, 103]),
        [
            "لا أحد",
            "شخص واحد",
            "شخصان",
            "3 أشخاص",
            "10 أشخاص",
            "11 شخصًا",
            "99 شخصًا",
            "100 شخص",
            "102 شخص",
            "103 أشخاص"
        ]
    );
}

#[test]
fn plurals_of_large_numbers_depend_on_their_last_digits() {
    let plural = |locale: &str, ftl: &str, counts: &[u64]| -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("locales")).unwrap();
        std::fs::write(folder.path().join(format!("locales/{locale}.ftl")), ftl).unwrap();
        let catalogs = Catalogs::load(Some(folder.path())).unwrap();
        let formatter = catalogs.formatter(Some(locale));
        let format = |count: &u64| {
            let count = [("count", MessageValue::Count(*count))];
            formatter.format("people", &count, Medium::Text).unwrap()
        };
        counts.iter().map(format).collect()
    };
    let all = "people = { $count ->\n    [zero] zero\n    [one] one\n    [two] two\n    [few] few\n    \
               [many] many\n   *[other] other\n}\n";

    assert_eq!(
        plural("ar", all, &[102, 103, 110, 111, 199, 200, 211]),
        ["other", "few", "few", "many", "many", "other", "many"]
    );
    assert_eq!(
        plural("be", all, &[1, 3, 5, 11, 12, 15, 20, 21, 22, 111, 123]),
        ["one", "few", "many", "many", "many", "many", "many", "one", "few", "many", "few"]
    );
    assert_eq!(
        plural("lt", all, &[1, 2, 10, 11, 12, 21, 29, 30, 111, 121]),
        ["one", "few", "other", "other", "other", "one", "few", "other", "other", "one"]
    );
    assert_eq!(
        plural("lv", all, &[1, 2, 10, 11, 21, 111]),
        ["one", "other", "zero", "zero", "one", "zero"]
    );
    assert_eq!(
        plural("ro", all, &[1, 2, 19, 20, 101, 119, 120]),
        ["one", "few", "few", "other", "few", "few", "other"]
    );
    assert_eq!(
        plural("mt", all, &[3, 11, 20, 103, 111, 120]),
        ["few", "many", "other", "few", "many", "other"]
    );
}

#[test]
fn numbers_and_dates_follow_the_language() {
    let catalogs = ours();
    let formatter = |tag: &str| catalogs.formatter(Some(tag));
    for (tag, number, day, next) in [
        ("en", "39,389", "22 April 2014", "Tuesday 22 April 2014, 08:00"),
        ("de", "39.389", "22. April 2014", "Dienstag, 22. April 2014, 08:00"),
        ("fr", "39\u{202f}389", "22 avril 2014", "mardi 22 avril 2014, 08:00"),
        ("es", "39.389", "22 de abril de 2014", "martes, 22 de abril de 2014, 08:00"),
        ("pt", "39.389", "22 de abril de 2014", "terça, 22 de abril de 2014, 08:00"),
        ("ja", "39,389", "2014年4月22日", "2014年4月22日(火曜日) 08:00"),
        ("pl", "39\u{a0}389", "22 kwietnia 2014", "wtorek, 22 kwietnia 2014, 08:00"),
        ("ru", "39\u{a0}389", "22 апреля 2014", "22 апреля 2014, 08:00"),
        ("ar", "39,389", "22 أبريل 2014", "الثلاثاء، 22 أبريل 2014، 08:00"),
    ] {
        assert_eq!(formatter(tag).grouped(39_389), number, "{tag}");
        assert_eq!(formatter(tag).day_in_full(at(), chrono_tz::UTC), day, "{tag}");
        assert_eq!(formatter(tag).next_digest_time(at(), chrono_tz::UTC), next, "{tag}");
    }
    let english: Vec<String> =
        [0, 999, 1_000, 1_234_567].iter().map(|n| formatter("en").grouped(*n)).collect();
    assert_eq!(english, ["0", "999", "1,000", "1,234,567"]);
    assert_eq!([999, 4_500, 45_000].map(|n| formatter("es").grouped(n)), ["999", "4500", "45.000"]);
}

#[test]
fn a_locale_falls_back_to_its_language_and_then_to_english() {
    let catalogs = ours();
    for (requested, near) in [
        ("pt-BR", Some("pt")),
        ("pt_br", Some("pt")),
        ("PT", Some("pt")),
        ("de_AT.UTF-8", Some("de")),
        ("ar-Arab-EG", Some("ar")),
        ("en-GB", Some("en")),
        ("xx", None),
        ("", None),
        ("../../etc/passwd", None),
        ("d", None),
    ] {
        assert_eq!(catalogs.nearest_locale(requested), near, "{requested}");
        let formatter = catalogs.formatter(Some(requested));
        assert_eq!(formatter.tag(), near.unwrap_or("en"), "{requested}");
    }
    assert_eq!(catalogs.formatter(None).tag(), "en");
}

#[test]
fn the_accept_language_header_selects_the_first_available_catalog() {
    let catalogs = ours();
    for (header, best) in [
        ("de-CH,de;q=0.9,en;q=0.8", Some("de")),
        ("nl, ja;q=0.7, fr;q=0.4", Some("ja")),
        ("de;q=0, fr; q=0.000, ja;q=0.05", Some("ja")),
        ("nl", None),
        ("*", None),
        ("", None),
    ] {
        assert_eq!(catalogs.locale_of_header(header).as_deref(), best, "{header}");
    }
}

#[test]
fn a_new_language_is_one_file_and_missing_messages_fall_back() {
    let digest = digest(at(), [("ArtworkPublished", "New works", vec![work(0), work(1)], 9)]);
    let swedish = "calendar = sv_SE\ndigest-head = { $news } till dig\n\
                   things = { $count ->\n    [one] nyhet\n   *[other] nyheter\n}\n\
                   type-ArtworkPublished = Nya verk\n    .new = nya verk\n";
    let renderer = with("sv.ftl", swedish).unwrap();

    let rendered = renderer.render(&email(&reader("sv-FI"), &digest)).unwrap();

    assert_eq!(renderer.locale_of(&reader("sv-FI")), "sv");
    assert!(rendered.html.contains(r#"<html lang="sv" dir="ltr""#));
    assert!(rendered.html.contains(">11 nya verk till dig</h1>"), "{}", rendered.html);
    assert!(rendered.text.contains("Your weekly digest: what is new since 21 april."));
    assert!(rendered.text.contains("Nya verk · 11\n"), "{}", rendered.text);
}

#[test]
fn a_regional_file_overrides_its_language_and_built_in_messages() {
    let digest = digest(at(), [("Show", "Shows", vec![titled("Ruins")], 4)]);
    let austrian = with("de-AT.ftl", "digest-head = { $news } für Sie, servus\n").unwrap();
    let german = with("de.ftl", "digest-head = { $news } für dich\n").unwrap();

    let text = |renderer: &Renderer, locale: &str| {
        renderer.render(&email(&reader(locale), &digest)).unwrap().text
    };

    assert!(text(&austrian, "de-AT").contains("5 Neuigkeiten für Sie, servus\nIhre wöchentliche"));
    assert!(text(&austrian, "de-CH").contains("5 Neuigkeiten für Sie\n"));
    assert!(text(&german, "de").contains("5 Neuigkeiten für dich\nIhre wöchentliche"));
    assert!(text(&german, "en").contains("5 new things for you\n"));
}

#[test]
fn missing_attributes_of_a_message_come_from_the_built_in_catalog() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locales")).unwrap();
    std::fs::write(folder.path().join("locales/de.ftl"), "notice-gone = Kein Konto\n").unwrap();
    let catalogs = Catalogs::load(Some(folder.path())).unwrap();

    let format = |id: &str| catalogs.formatter(Some("de")).format(id, &[], Medium::Text).unwrap();

    assert_eq!(format("notice-gone"), "Kein Konto");
    assert!(format("notice-gone.text").starts_with("Wir haben keine Daten"));
}

#[test]
fn problems_of_a_catalog_are_reported_with_file_and_line() {
    for (text, line, why) in [
        ("new = Ny\nopen = { $name\n", 3, "Expected"),
        (
            "new = Ny\n\nopenn = Öppna { $name }\n",
            3,
            "there is no message openn; did you mean open?",
        ),
        ("open = Öppna { $nam }\n", 1, "open has no variable $nam"),
        ("type-A = A\n    .fraze = b\n", 1, "there is no message type-A.fraze"),
        ("new = { -brand }\n", 1, "new uses brand, which is no term here"),
        ("new = { NUMBER($x) }\n", 1, "new uses NUMBER"),
        ("date = %Q\n", 1, "not a date format of strftime"),
        ("calendar = sweden\n", 1, "\"sweden\" is not a known locale"),
        ("direction = up\n", 1, "is not ltr or rtl"),
    ] {
        let error = with("sv.ftl", text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(error.contains(&format!("locales/sv.ftl, line {line}: ")), "{error}");
        assert!(error.contains(why), "{error}");
    }
    let error = with("my words.ftl", "").err().unwrap();
    assert!(error.contains("is no locale"), "{error}");
    assert!(with("sv.ftl", "own-words = Egna { $ord }\n-brand = Tate\nnew = { -brand }\n").is_ok());
}

#[test]
fn a_value_cannot_imitate_message_syntax() {
    let formatter = |tag: &str| Arc::clone(ours().formatter(Some(tag)));
    let evil = "{ $site } <b>\u{e000}\u{e101}\u{e001}9\u{e002}";
    let values = [("news", MessageValue::words(evil)), ("site", MessageValue::words("Tate"))];

    let html = formatter("en").format("news-from", &values, Medium::Html).unwrap();

    assert_eq!(html, "{ $site } &lt;b&gt;\u{e000}\u{e101}\u{e001}9\u{e002} from Tate");
}

#[test]
fn names_are_isolated_if_their_direction_may_differ() {
    let format = |tag: &str, who: &str, medium| {
        let values = [("label", MessageValue::words("X")), ("who", MessageValue::words(who))];
        ours().formatter(Some(tag)).format("by", &values, medium).unwrap()
    };

    assert_eq!(format("en", "Ada", Medium::Text), "X by Ada");
    assert_eq!(format("en", "ليلى", Medium::Text), "X by \u{2068}ليلى\u{2069}");
    assert_eq!(format("en", "ليلى", Medium::Html), "X by <span dir=\"auto\">ليلى</span>");
    assert!(!format("ar", "ليلى", Medium::Text).contains("\u{2068}ليلى"));
    assert!(
        format("ar", "09:30", Medium::Text).ends_with(" 09:30"),
        "the parts of a time stay together"
    );
    let arabic = format("ar", "Ada", Medium::Text);
    assert!(arabic.contains("\u{2068}Ada\u{2069}") && arabic.contains("\u{2068}X\u{2069}"));
}

#[test]
fn a_truncated_subject_keeps_its_direction_isolates_balanced() {
    let long = format!("ליאת {}", "x".repeat(70));
    let objects = vec![titled(&long), titled(&format!("{long} y")), titled("Z")];
    let digest = digest(at(), [("Show", "Shows", objects, 4)]);
    let renderer = Renderer::new(site(), None).unwrap();

    let subject = renderer.render(&email(&reader("ar"), &digest)).unwrap().subject;

    let count = |c| subject.matches(c).count();
    assert!(count('\u{2068}') > 0, "{subject:?}");
    assert_eq!(count('\u{2068}'), count('\u{2069}'), "{subject:?}");
}

#[test]
fn a_feed_gets_a_sentence_only_in_a_language_that_has_the_phrase() {
    let renderer = with("de.ftl", "type-Comment = Kommentare\n    .phrase = lobte\n").unwrap();
    let kind = EventType::stored("Comment");
    let policy = Policy { phrase: Some("commented on".parse().unwrap()), ..Policy::default() };
    let policies = Policies::new([(kind.clone(), policy)]);
    let words = |locale: &str| {
        let catalogs = renderer.catalogs();
        let (heading, phrase) = catalogs.feed_texts(Some(locale), &kind, &policies);
        (heading, phrase.unwrap_or_default())
    };
    let both = |heading: &str, phrase: &str| (heading.to_owned(), phrase.to_owned());

    assert_eq!(words("de-CH"), both("Kommentare", "{who} lobte {what}"));
    assert_eq!(words("fr"), both("Comment", ""));
    let english = both("Comment", "{who} commented on {what}");
    assert_eq!(words("en"), english);
    assert_eq!(words("tlh"), english);
}

#[test]
fn the_widget_has_the_same_texts_in_every_language() {
    let catalogs = ours();
    let english = catalogs.widget_texts(Some("en"));
    assert_eq!(english["rest"], "+{n} more");
    for (tag, _) in BUILT_IN {
        let texts = catalogs.widget_texts(Some(tag));
        assert!(texts.keys().eq(english.keys()), "{tag}");
        for (name, text) in &texts {
            let has_number = ["new", "rest"].contains(name);
            assert_eq!(text.contains("{n}"), has_number, "{tag}: {text}");
        }
    }
}
