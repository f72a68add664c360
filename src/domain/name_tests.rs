//! Tests of the module `name`.

mod names {
    use super::super::*;

    #[test]
    fn names_that_look_falsy_are_valid() {
        for text in ["0", "false", "null", "$ne", "a.b", "NaN"] {
            assert_eq!(UserId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn an_invalid_name_is_rejected_with_its_value_and_the_reason() {
        let error = UserId::new("").unwrap_err().to_string();
        assert_eq!(error, "user id \"\" is empty");
        assert!(UserId::new("a\0b").is_err());
        assert!(UserId::new(" a").is_err());
        assert!(UserId::new("x".repeat(257)).is_err());
        assert!(UserId::new("x".repeat(256)).is_ok());
    }

    #[test]
    fn only_lowercase_hex_has_a_legacy_form() {
        assert!(UserId::new("533998b1c9dc24c371000041").unwrap().to_object_id().is_some());
        assert!(UserId::new("533998B1C9DC24C371000041").unwrap().to_object_id().is_none());
        assert!(UserId::new("alice").unwrap().to_object_id().is_none());
    }
}

mod nearest {
    use super::super::*;

    #[test]
    fn a_name_with_a_small_typo_is_near() {
        let names = ["ArtworkPublished", "CommentAdded", "hour"];

        for (given, expected) in [
            ("ArtworkPublishd", Some("ArtworkPublished")),
            ("artworkpublished", Some("ArtworkPublished")),
            ("CommentsAdded", Some("CommentAdded")),
            ("huor", Some("hour")),
            ("TaskFailed", None),
            ("", None),
        ] {
            assert_eq!(most_similar(given, names), expected, "{given}");
        }
    }
}

mod brand {
    use super::super::*;

    #[test]
    fn a_brand_name_is_short_and_plain() {
        for text in ["acme", "0", "a-b_c", &"x".repeat(40)] {
            assert_eq!(BrandName::new(text).unwrap().as_str(), text);
        }
        for text in ["", "Acme", "a b", "a.b", "$ne", "ä", "a:b", &"x".repeat(41)] {
            assert!(BrandName::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_reason_of_a_waiting_email_names_its_missing_brand() {
        let acme = BrandName::new("acme").unwrap();

        assert_eq!(acme.unconfigured_reason(), "the brand acme is not configured");
        assert_eq!(BrandName::from_unconfigured_reason(&acme.unconfigured_reason()), Some(acme));
        assert_eq!(BrandName::from_unconfigured_reason("the provider may not be called yet"), None);
    }
}
