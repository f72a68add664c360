//! Tests of the module `object`.

mod objects {
    use super::super::*;

    #[test]
    fn a_key_is_the_model_and_the_id() {
        let key = ObjectKey::from_parts(
            Some(&ModelName::new("Artwork").unwrap()),
            &ObjectId::new("A:1").unwrap(),
        );
        assert_eq!(key.as_str(), "Artwork:A:1");
        assert_eq!(key.split(), Some(("Artwork", "A:1")));
        assert_eq!(ObjectKey::from_parts(None, &ObjectId::new("0").unwrap()).as_str(), "0");
    }

    #[test]
    fn an_id_means_the_same_with_and_without_its_model() {
        let model = ModelName::new("Artwork").unwrap();
        let id = |text: &str| ObjectId::new(text).unwrap();
        for text in ["A1", "Artwork:A1"] {
            assert_eq!(ObjectKey::from_parts(Some(&model), &id(text)).as_str(), "Artwork:A1");
            assert_eq!(id(text).strip_model(Some(&model)), id("A1"));
        }
        for text in ["Artwork:", "Show:A1", "ArtworkA1"] {
            assert_eq!(id(text).strip_model(Some(&model)), id(text));
        }
        assert_eq!(id("Artwork:A1").strip_model(None), id("Artwork:A1"));
    }

    #[test]
    fn a_link_that_is_not_a_web_address_is_rejected() {
        let mut object = Object::without_data("Artwork:1".parse().unwrap());
        object.url = Some("javascript:alert(1)".into());
        assert!(object.check().unwrap_err().to_string().contains("object url"));
    }
}

mod about {
    use serde_json::{Value, json};

    use super::super::*;
    use crate::domain::ObjectKey;

    fn key_and_topic(data: Value) -> (String, GroupTopic) {
        let object = Object {
            by: Some("Ada".into()),
            data: data.into(),
            ..Object::without_data(ObjectKey::stored("Comment:c1"))
        };
        (feed_topic(&object).into_owned(), GroupTopic::of(&object, None))
    }

    #[test]
    fn emails_and_feeds_derive_the_same_topic_from_an_object() {
        let other = |title: &str, url: Option<&str>| {
            GroupTopic::Stated(Topic { title: title.into(), url: url.map(str::to_owned) })
        };
        let url = "https://a.example/1";
        for (said, key, about) in [
            (json!("thread:9"), "thread:9", other("thread:9", None)),
            (json!(" Budget "), "Budget", other("Budget", None)),
            (json!({"title": "Budget"}), "Budget", other("Budget", None)),
            (json!({"title": "Budget", "url": url}), url, other("Budget", Some(url))),
            (json!({"title": "Budget", "url": " "}), "Budget", other("Budget", None)),
            // These state no topic.
            (json!({"url": url}), "Ada", GroupTopic::Object),
            (json!({"title": ""}), "Ada", GroupTopic::Object),
            (json!(""), "Ada", GroupTopic::Object),
            (json!(7), "Ada", GroupTopic::Object),
            (json!(["Budget"]), "Ada", GroupTopic::Object),
            (json!(null), "Ada", GroupTopic::Object),
        ] {
            let expected = (key.to_owned(), about);
            assert_eq!(key_and_topic(json!({"about": said})), expected, "{said}");
        }
        assert_eq!(key_and_topic(Value::Null), ("Ada".to_owned(), GroupTopic::Object));
    }

    #[test]
    fn a_topic_key_is_the_stated_topic_then_the_author_then_the_object() {
        let mut object = Object::without_data(ObjectKey::stored("Comment:c1"));
        assert_eq!(feed_topic(&object), "Comment:c1");
        object.by = Some(String::new());
        assert_eq!(feed_topic(&object), "Comment:c1");
        object.by = Some("Ada".into());
        assert_eq!(feed_topic(&object), "Ada");
    }
}
