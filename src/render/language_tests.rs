//! Tests of emails in other languages: snapshots, also with type names from catalogs.

use super::batch_tests::{comment_with, content, email as batch_email};
use super::tests::{at, digest, email, site, titled, whole, works};
use super::*;
use crate::domain::email_sections::FollowReason;
use crate::domain::{EmailContent, FollowKey, Object, UserId};

/// The catalogs of a folder, which name its event types.
const OWN: [(&str, &str); 3] = [
    (
        "de",
        "type-Comment = Neue Kommentare\n    .new = { $count ->\n        [one] neuer Kommentar\n       \
         *[other] neue Kommentare\n    }\n    .phrase = { $people ->\n        [one] hat \
         kommentiert:\n       *[other] haben kommentiert:\n    }\ntype-ArtworkPublished = Neue \
         Werke\n    .new = { $count ->\n        [one] neues Werk\n       *[other] neue Werke\n    \
         }\ntype-NearbyShow = Ausstellungen in Ihrer Nähe\n",
    ),
    (
        "ja",
        "type-Comment = 新しいコメント\n    .new = 件の新しいコメント\n    .phrase = コメント：\n\
         type-ArtworkPublished = 新しい作品\n    .new = 点の新しい作品\n\
         type-NearbyShow = 近くの展覧会\n",
    ),
    (
        "ar",
        "type-Comment = تعليقات جديدة\n    .new = { $count ->\n        [few] تعليقات جديدة\n       \
         *[other] تعليقًا جديدًا\n    }\n    .phrase = { $people ->\n        [one] كتب تعليقًا على\n\
         \u{20}      *[other] كتبوا تعليقات على\n    }\ntype-ArtworkPublished = أعمال جديدة\n    \
         .new = { $count ->\n        [few] أعمال جديدة\n       *[other] عملًا جديدًا\n    }\n\
         type-NearbyShow = معارض قريبة منك\n",
    ),
];

fn renderer() -> Renderer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locales")).unwrap();
    for (tag, own) in OWN {
        std::fs::write(folder.path().join(format!("locales/{tag}.ftl")), own).unwrap();
    }
    Renderer::new(site(), Some(folder.path().to_owned())).unwrap()
}

fn readers() -> impl Iterator<Item = User> {
    OWN.into_iter()
        .map(|(tag, _)| User { locale: Some(tag.into()), ..User::new(UserId::stored("ada")) })
}

#[test]
fn a_digest_is_entirely_in_the_language_of_its_user() {
    let renderer = renderer();
    let shows = vec![titled("Ruins and Rooms"), titled("ضوء القمر فوق النهر")];
    let sections = [
        ("ArtworkPublished", "New works", works(0..2), 9),
        ("NearbyShow", "Shows near you", shows, 0),
    ];
    let followed = |key: &str, name: &str, url: Option<&str>| FollowReason {
        key: FollowKey::stored(key),
        name: name.to_owned(),
        url: url.map(str::to_owned),
    };
    let digest = EmailContent {
        follow_reasons: vec![
            followed("artist:7", "Eleanor Whitcombe", Some("https://a.example/7")),
            followed("مكان:3", "متحف الرمل", None),
        ],
        ..digest(at(), sections)
    };
    for user in readers() {
        let rendered = renderer.render(&email(&user, &digest)).unwrap();

        let tag = renderer.locale_of(&user);
        insta::assert_snapshot!(format!("digest_{tag}"), whole(&rendered));
    }
}

#[test]
fn a_batch_is_entirely_in_the_language_of_its_user() {
    let renderer = renderer();
    let one = content(vec![comment_with("Ada", "Are the travel costs in here?", "Budget")], 0);
    let comment = |by, words| -> (&str, Object) { comment_with(by, words, "Budget") };
    let many = content(
        vec![
            comment("Ada", "Are the travel costs in here?"),
            comment("ليلى الحداد", "هل تكاليف السفر مدرجة هنا؟"),
            comment("Ben", "They are."),
            comment("Cem", "On page four."),
        ],
        0,
    );
    for user in readers() {
        let tag = renderer.locale_of(&user);
        for (name, content) in [("one", &one), ("many", &many)] {
            let rendered = renderer.render(&batch_email(&user, content)).unwrap();

            insta::assert_snapshot!(format!("batch_{name}_{tag}"), whole(&rendered));
        }
    }
}
