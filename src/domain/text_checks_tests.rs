//! Tests of the module `text_checks`.

mod link {
    use super::super::*;

    #[test]
    fn a_web_address_has_a_host_and_no_hidden_parts() {
        for text in [
            "https://example.org",
            "HTTPS://Example.ORG/Works?id=1#top",
            "http://127.0.0.1:8080/a b",
            "https://[::1]:8443/",
            "https://b\u{fc}cher.example/\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
            "https://example.org/@ada",
        ] {
            assert_eq!(check_link(text), Ok(()), "{text}");
        }
        for (text, why) in [
            ("javascript:alert(1)", "does not begin"),
            ("ftp://example.org", "does not begin"),
            ("//example.org", "does not begin"),
            ("https:example.org", "does not begin"),
            (" https://example.org", "does not begin"),
            ("https://", "not a web address"),
            ("https://example.org:99999/", "not a web address"),
            ("https://example.org:x/", "not a web address"),
            ("https://exa<mple.org/", "not a web address"),
            ("https://example.org:0/", "port 0"),
            ("https://u:pw@example.org/", "user or a password"),
            ("https://@example.org/", "user or a password"),
            ("https://example.org\\@evil.example/ ", "cannot be seen"),
            ("https://example.org/a\nb", "cannot be seen"),
            ("https://example.org/\u{202e}gpj", "cannot be seen"),
            ("https://example.org/\u{200b}", "cannot be seen"),
        ] {
            let refused = check_link(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}

mod locale {
    use super::super::*;

    #[test]
    fn a_malformed_locale_is_rejected_and_one_without_a_catalog_is_not() {
        for good in ["", "de", "pt-BR", "pt_br", "xx", "de_AT.UTF-8", "zh-Hant-TW", "tlh"] {
            assert_eq!(check_locale(good), Ok(()), "{good}");
        }
        for bad in ["german!", "d", "pt BR", " de", "de-", "de-toolongpart", "C.\u{e9}", "de\n"] {
            let refused = check_locale(bad).unwrap_err().to_string();
            assert!(
                refused.contains("is no language tag; write one such as de or pt-BR"),
                "{bad}: {refused}"
            );
        }
        let long = check_locale(&"de-".repeat(40)).unwrap_err().to_string();
        assert!(long.contains("120 bytes is more than the 100"), "{long}");
    }
}

mod lines {
    use super::super::*;

    #[test]
    fn a_phrase_is_one_line_of_bounded_length() {
        let phrase = |text: &str| Phrase::new(text).map(|phrase| phrase.as_str().to_owned());

        assert_eq!(phrase(" commented on ").unwrap(), "commented on");
        assert!(phrase(&"é".repeat(60)).is_ok());
        for (text, why) in [
            ("", "says nothing"),
            ("  ", "says nothing"),
            ("commented\non", "holds a line break"),
            ("\tcommented on", "holds a line break"),
        ] {
            let error = phrase(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = phrase(&"é".repeat(61)).unwrap_err().to_string();
        assert!(error.contains("longer than 60 characters"), "{error}");
    }

    #[test]
    fn categories_and_reasons_are_one_line_of_bounded_length() {
        assert_eq!(" Community ".parse(), Ok(Category::stored("Community")));
        let error = "é".repeat(61).parse::<Category>().unwrap_err().to_string();
        assert!(error.contains("longer than 60 characters"), "{error}");
        assert!("Commu\nnity".parse::<Category>().is_err());
        assert!("é".repeat(120).parse::<Mandate>().is_ok());
        let error = "é".repeat(121).parse::<Mandate>().unwrap_err().to_string();
        assert!(error.contains("longer than 120 characters"), "{error}");
    }
}
