//! `openapi.json` and `docs/api.md` describe every route, code and provider of the API.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidings::email::PROVIDERS;
use tidings::http::api::problem::Code;
use tidings::http::{api, pages};
use tidings::wire::OPENAPI;

use super::{Api, answer};
use crate::support::Fresh;

on_sqlite! {
    the_description_is_served_without_a_key
}

const DOCS: &str = include_str!("../../../docs/api.md");

fn described() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

fn routes() -> BTreeSet<(String, String)> {
    let tables = api::V1_ROUTES.iter().chain(api::METRICS_ROUTES).chain(api::OPEN_ROUTES);
    let tables = tables.chain(pages::PAGES);
    let routes = tables.flat_map(|table| table.routes).map(|route| (route.method, route.path));
    routes.map(|(method, path)| (method.to_owned(), path.to_owned())).collect()
}

async fn the_description_is_served_without_a_key(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let served = answer(api.anonymous("GET", "/openapi.json")).await;

    assert_eq!((served.status, served.header("Content-Type")), (200, "application/json"));
    assert_eq!(served.body, described());
    api.stop().await;
}

#[test]
fn every_route_is_described_and_every_description_has_a_route() {
    let description = described();
    let paths = description["paths"].as_object().unwrap();

    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods
                .filter(|method| *method != "parameters")
                .map(|method| (method.clone(), path.clone()))
        })
        .collect();

    assert_eq!(described, routes());
}

#[test]
fn every_route_is_described_with_its_permissions() {
    let description = described();

    let tables = api::V1_ROUTES.iter().chain(api::METRICS_ROUTES);
    for route in tables.flat_map(|table| table.routes) {
        let api::Route { method, path, .. } = route;
        let operation = &description["paths"][path][method];
        let key = json!({"serverKey": [route.scope.unwrap().as_str()]});
        let security = match route.own {
            true => json!([key, {"userToken": []}]),
            false => json!([key]),
        };
        assert_eq!(operation["security"], security, "{method} {path}");
        for status in ["401", "403", "429"] {
            let response = &operation["responses"][status];
            assert!(response.is_object(), "{method} {path} has no {status}");
        }
    }
}

#[test]
fn every_route_is_described_with_its_query_parameters() {
    let description = described();

    for route in api::V1_ROUTES.iter().flat_map(|table| table.routes) {
        let operation = &description["paths"][route.path][route.method];
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let described: BTreeSet<&str> = parameters
            .filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        let accepted: BTreeSet<&str> = route.parameters.iter().copied().collect();
        assert_eq!(described, accepted, "{} {}", route.method, route.path);
    }
}

#[test]
fn every_name_in_a_path_is_described() {
    let description = described();

    for (path, methods) in description["paths"].as_object().unwrap() {
        let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let empty = Vec::new();
        let parameters = methods["parameters"].as_array().unwrap_or(&empty);
        let described = parameters.iter().map(|parameter| {
            let parameter = match parameter["$ref"].as_str() {
                Some(place) => description.pointer(place.trim_start_matches('#')).unwrap(),
                None => parameter,
            };
            parameter["name"].as_str().unwrap()
        });
        assert_eq!(named.collect::<Vec<_>>(), described.collect::<Vec<_>>(), "{path}");
    }
}

#[test]
fn every_reference_resolves_and_every_component_is_used() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str().filter(|_| name == "$ref") {
                        Some(place) => {
                            found.insert(place.to_owned());
                        }
                        None => references(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let description = described();
    let mut found = BTreeSet::new();
    references(&description, &mut found);

    for place in &found {
        let pointer = place.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{place}");
    }
    for kind in ["schemas", "responses", "parameters", "headers"] {
        for name in description["components"][kind].as_object().unwrap().keys() {
            let place = format!("#/components/{kind}/{name}");
            assert!(found.contains(&place), "nobody refers to {place}");
        }
    }
}

#[test]
fn every_schema_with_properties_has_a_name_for_generators() {
    fn inline(value: &Value, place: &str, found: &mut Vec<String>) {
        let named = place.strip_prefix("/components/schemas/");
        let is_named = named.is_some_and(|name| !name.contains('/'));
        if value["properties"].is_object() && !is_named {
            found.push(place.to_owned());
        }
        match value {
            Value::Object(fields) => fields
                .iter()
                .for_each(|(name, value)| inline(value, &format!("{place}/{name}"), found)),
            Value::Array(values) => values
                .iter()
                .enumerate()
                .for_each(|(index, value)| inline(value, &format!("{place}/{index}"), found)),
            _ => {}
        }
    }
    let mut found = Vec::new();

    inline(&described(), "", &mut found);

    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_code_is_described_and_documented_with_its_status() {
    let description = described();
    let problem = &description["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let described: Vec<&str> =
        problem.as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();

    assert_eq!(described, codes);
    for code in Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status().as_u16());
        assert!(DOCS.contains(&row), "docs/api.md has no row {row}");
    }
}

#[test]
fn every_route_is_documented_with_an_example() {
    for (method, path) in routes() {
        let heading = format!("`{} {path}", method.to_uppercase());
        let section = DOCS.split("\n### ").find(|section| section.starts_with(&heading));
        let section = section.unwrap_or_else(|| panic!("docs/api.md has no section {heading}`"));
        assert!(section.contains("    curl "), "{heading}` has no example");
    }
}

#[test]
fn every_provider_is_named_wherever_providers_are_listed() {
    const GUIDE: &str = include_str!("../../../docs/guides/providers.md");
    let description = described();
    let hooks = &description["paths"]["/hooks/{provider}"]["parameters"][0]["schema"]["enum"];
    let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).collect();

    assert_eq!(*hooks, json!(names));
    for provider in PROVIDERS {
        let (name, title, option) = (provider.name, provider.title, provider.hook_key.options().0);
        assert!(DOCS.contains(&format!("`{name}`")), "{name}");
        for row in [format!("| `{name}` | `key`"), format!("| {title} | `{option}`")] {
            assert!(GUIDE.contains(&row), "{row}");
        }
    }
}
