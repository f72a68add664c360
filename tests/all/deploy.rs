//! The manifests in `deploy/kubernetes` have the structure that Kubernetes expects, refer to each
//! other correctly, and configure tidings with valid options. Containers and units stop slowly
//! enough.
//!
//! The schema `kubernetes.json` covers the used fields only, so a mistyped field is an error.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use tidings::config::{Config, Sources};

use crate::house::{File, files};

/// Returns all documents of all manifests, by kind and name.
fn manifests() -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for file in files(&["deploy/kubernetes"]) {
        for document in serde_yaml_ng::Deserializer::from_str(&file.text) {
            let document = Value::deserialize(document);
            let document = document.unwrap_or_else(|error| panic!("{}: {error}", file.place));
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            let name = format!("{} {name}", document["kind"].as_str().unwrap_or_default());
            assert!(found.insert(name.clone(), document).is_none(), "{name}");
        }
    }
    found
}

/// Returns the templates of pods, by the kind and name of their owners.
fn pods(manifests: &BTreeMap<String, Value>) -> Vec<(&str, &Value)> {
    let mut all = Vec::new();
    for (name, document) in manifests {
        let spec = &document["spec"];
        match name.split(' ').next() {
            Some("Deployment") => all.push((name.as_str(), &spec["template"])),
            Some("CronJob") => all.push((name.as_str(), &spec["jobTemplate"]["spec"]["template"])),
            _ => {}
        }
    }
    assert_eq!(all.len(), 3);
    all
}

/// Returns the objects in a list.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the environment of the Secret, with its placeholders replaced by `key`.
fn environment(manifests: &BTreeMap<String, Value>, key: &str) -> Vec<(String, String)> {
    let secret = manifests["Secret tidings"]["stringData"].as_object();
    let values = secret.unwrap().iter().map(|(name, value)| {
        let value = value.as_str().unwrap();
        (name.clone(), value.replace("change me", key))
    });
    values.collect()
}

/// Loads the configuration of the ConfigMap and the Secret.
fn load(manifests: &BTreeMap<String, Value>, key: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidings.toml");
    let text = manifests["ConfigMap tidings"]["data"]["tidings.toml"].as_str();
    std::fs::write(&file, text.unwrap()).unwrap();
    Config::load(&Sources {
        file: Some(file),
        environment: environment(manifests, key),
        flags: Vec::new(),
    })
    .map_err(|problems| problems.to_string())
}

#[test]
fn manifests_follow_the_schema() {
    let schema: Value = serde_json::from_str(include_str!("kubernetes.json")).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let mut found = Vec::new();
    for (name, document) in manifests() {
        let errors = schema.iter_errors(&document);
        found.extend(errors.map(|error| format!("{name} {}: {error}", error.instance_path())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_schema_rejects_a_mistyped_field() {
    let schema: Value = serde_json::from_str(include_str!("kubernetes.json")).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let mut document = manifests().remove("Deployment tidings-serve").unwrap();
    let pod = &mut document["spec"]["template"]["spec"];

    pod["terminationGracePeriodSecond"] = pod["terminationGracePeriodSeconds"].take();

    assert!(!schema.is_valid(&document));
}

#[test]
fn the_configuration_is_valid_and_the_placeholders_are_not() {
    let manifests = manifests();

    let config = load(&manifests, &"0123456789abcdef".repeat(3)).unwrap();
    let problems = load(&manifests, "change me").unwrap_err();

    for option in ["server.key", "server.link_secret", "tokens.secret"] {
        assert!(problems.contains(&format!("{option}: ")), "{problems}");
    }
    let grace = config.server.grace.num_seconds();
    for (name, pod) in pods(&manifests) {
        let container = &pod["spec"]["containers"][0];
        if let Some(limit) = pod["spec"]["terminationGracePeriodSeconds"].as_i64() {
            assert!(limit >= grace + 15, "{name}");
        }
        let port = |name: &str| {
            let ports = list(&container["ports"]).iter();
            let mut named = ports.filter(|port| port["name"] == name);
            named.next().and_then(|port| port["containerPort"].as_u64())
        };
        let probes: &[&str] = match name {
            "Deployment tidings-serve" => &["startupProbe", "livenessProbe", "readinessProbe"],
            name if name.starts_with("Deployment ") => &["startupProbe", "livenessProbe"],
            _ => &[],
        };
        for probe in probes {
            let probed = container[probe]["httpGet"]["port"].as_str();
            assert!(probed.and_then(port).is_some(), "{name} {probe}");
        }
        if let Some(startup) = container.get("startupProbe") {
            let seconds = |option: &str| startup[option].as_u64().unwrap();
            assert!(seconds("periodSeconds") * seconds("failureThreshold") >= 600, "{name}");
        }
        let listens = u64::from(config.server.listen.port());
        assert!(port("http").is_none_or(|port| port == listens), "{name}");
        let metrics = config.observability.metrics.map(|listen| u64::from(listen.port()));
        assert!(port("metrics").is_none_or(|port| Some(port) == metrics), "{name}");
    }
}

#[test]
fn manifests_refer_to_existing_objects() {
    let manifests = manifests();
    let pods = pods(&manifests);
    let exists = |kind: &str, name: &Value| {
        let name = name.as_str().unwrap();
        assert!(manifests.contains_key(&format!("{kind} {name}")), "{kind} {name}");
    };
    for (name, pod) in &pods {
        let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
        let volumes = list(&spec["volumes"]);
        for mount in list(&container["volumeMounts"]) {
            assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{name}");
        }
        for volume in volumes {
            match volume["configMap"].is_object() {
                true => exists("ConfigMap", &volume["configMap"]["name"]),
                false => {
                    exists("PersistentVolumeClaim", &volume["persistentVolumeClaim"]["claimName"])
                }
            }
        }
        for source in list(&container["envFrom"]) {
            exists("Secret", &source["secretRef"]["name"]);
        }
        let owner = &manifests[*name]["spec"]["selector"]["matchLabels"];
        assert!(owner.is_null() || *owner == pod["metadata"]["labels"], "{name}");
    }
    let selects = |selector: &Value, labels: &Value| {
        let mut wanted = selector.as_object().unwrap().iter();
        wanted.all(|(name, value)| labels[name] == *value)
    };
    for (name, document) in &manifests {
        let spec = &document["spec"];
        let is_found = match name.split(' ').next() {
            Some("Service") => {
                pods.iter().any(|(_, pod)| selects(&spec["selector"], &pod["metadata"]["labels"]))
            }
            Some("PodDisruptionBudget") => pods
                .iter()
                .any(|(_, pod)| spec["selector"]["matchLabels"] == pod["metadata"]["labels"]),
            Some("ServiceMonitor") => manifests.iter().any(|(name, other)| {
                let labels = &other["metadata"]["labels"];
                name.starts_with("Service ") && selects(&spec["selector"]["matchLabels"], labels)
            }),
            _ => true,
        };
        assert!(is_found, "{name} selects nothing");
    }
}

#[test]
fn the_arguments_of_pods_are_those_of_commands() {
    for (name, pod) in pods(&manifests()) {
        let arguments = list(&pod["spec"]["containers"][0]["args"]).iter();
        let arguments: Vec<&str> = arguments.filter_map(Value::as_str).collect();

        let ran = Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(&arguments)
            .arg("--help")
            .env_clear()
            .output();

        assert!(ran.unwrap().status.success(), "{name}: {arguments:?}");
    }
}

/// A process stops within `server.grace` and a few seconds. If it is killed earlier, it leaves
/// emails with an unknown outcome.
#[test]
fn compose_and_systemd_wait_longer_than_the_grace() {
    let compose: Value = serde_yaml_ng::from_str(&File::read("docker-compose.yml").text).unwrap();
    let (tidings, mongo) = (&compose["services"]["tidings"], &compose["services"]["mongo"]);
    let unit = File::read("deploy/systemd/tidings.service").text;
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
    let seconds = |text: &str| text.strip_suffix('s').unwrap().parse::<i64>().unwrap();

    let has_line = |wanted: &str| unit.lines().any(|line| line == wanted);
    assert!(has_line("TimeoutStartSec=infinity"), "an upgrade may be slow");
    for limit in [tidings["stop_grace_period"].as_str().unwrap(), stop.unwrap()] {
        assert!(seconds(limit) >= Config::with_defaults().server.grace.num_seconds() + 10);
    }
    assert!(mongo["ports"].is_null(), "the database is not published");
    let health = serde_json::json!(["CMD", "/usr/bin/tidings", "health"]);
    assert_eq!(tidings["healthcheck"]["test"], health);
    for name in tidings["environment"].as_object().unwrap().keys() {
        assert!(name.starts_with("TIDINGS_"), "{name}");
    }
}
