//! Commands never print secrets, even if the configuration is invalid. They reject guessable keys,
//! and limit the cost of hostile templates and compressed files.

use super::Desk;
use crate::support::assert_contains;

/// A secret that no command may print.
const SECRET: &str = "hunter2-pa55";

/// Returns configurations that contain the secret, most of them invalid.
fn configurations() -> Vec<String> {
    let stores = [
        "mongdb://app:hunter2-pa55@db.example/tidings",
        "mongodb:/app:hunter2-pa55@db.example/tidings",
        "MONGODB://app:hunter2-pa55@db.example/tidings",
        "mongodb://app:hunter2-pa55@",
        "mongodb://app:hunter2-pa55/tidings",
        "mongodb://app:hunter2-pa55@127.0.0.1:1/tidings?serverSelectionTimeoutMS=1&nonsense=1",
        "mongodb://127.0.0.1:1/tidings?tls=true&tlsCertificateKeyFile=none.pem&tlsCertificateKeyFilePassword=hunter2-pa55&serverSelectionTimeoutMS=1",
        "mongodb://127.0.0.1:1/tidings?authMechanismProperties=AWS_SESSION_TOKEN:hunter2-pa55&serverSelectionTimeoutMS=1",
        "postgres://app:hunter2-pa55@db.example/tidings",
    ];
    let mut all: Vec<String> = stores.iter().map(|store| format!("store = {store:?}\n")).collect();
    for text in [
        "[mail]\nprovider = \"resend\"\nurl = \"ftp://app:hunter2-pa55@mail.example\"\nkey = \"k\"\n",
        "[mail]\nprovider = \"resend\"\nfrom = \"digest@art.example\"\nurl = \"https://app:hunter2-pa55@127.0.0.1:1\"\nkey = \"k\"\n",
        "[mail]\nkey = \"hunter2-pa55\n",
        "[mail]\nkey = hunter2-pa55\n",
        "[mail]\nkey = [\"hunter2-pa55\"]\n",
        "[mail]\nsmtp_password = {a = \"hunter2-pa55\"}\n",
        "[server]\nkey = \"\"\"hunter2-pa55\n",
        "[server]\nkey = \"a\"\nkey = \"hunter2-pa55\"\n",
        "[server]\nlink_secret = \"hunter2-pa55\"\n",
        "[server]\nlink_secret = 'hunter2-pa55'x\n",
        "[server]\npublic_url = \"ftp://app:hunter2-pa55@news.example\"\n",
        "[tokens]\nsecret = \"hunter2-pa55\"\n",
        "[tokens.keys.a]\nsecret = \"hunter2-pa55\"\n",
        "[tokens.keys.a]\nsecret = [\"hunter2-pa55\"]\n",
        "[tokens]\nkeys = \"hunter2-pa55\"\n",
        "[tokens]\nkeys = [\"hunter2-pa55\"]\n",
        "[hooks]\nmailgun_key = [\"hunter2-pa55\"]\nresend_secret = \"hunter2-pa55\"\npostmark_password = \"hunter2-pa55\"\nsendgrid_public_key = \"hunter2-pa55\"\n",
    ] {
        all.push(text.to_owned());
    }
    all
}

/// The password is not percent-encoded, and contains a delimiter of URLs.
#[test]
fn no_part_of_an_unencoded_password_is_printed() {
    for delimiter in ["?", "/", "@", "&", "=", ":", "?a=", "/?"] {
        let store = format!("mongodb://app:s3cr-one{delimiter}s3cr-two@db.example/tidings");
        let desk = Desk::new();
        desk.write("tidings.toml", &format!("store = {store:?}\n"));

        for arguments in [
            &["config"][..],
            &["doctor", "--offline", "--timeout", "1"],
            &["status", "--log", "trace"],
        ] {
            let ran = desk.run(arguments);

            for output in [&ran.out, &ran.err] {
                assert!(!output.contains("s3cr"), "{arguments:?} of {store}: {output}");
            }
        }
    }
}

#[test]
fn no_secret_of_an_invalid_configuration_is_printed() {
    for text in configurations() {
        let desk = Desk::new();
        desk.write("tidings.toml", &text);
        for arguments in [
            vec!["config"],
            vec!["doctor", "--offline", "--timeout", "1"],
            vec!["status", "--log", "trace"],
            vec!["doctor", "--offline", "--timeout", "1", "--json"],
        ] {
            if text.contains("127.0.0.1:1/") && arguments[0] == "status" {
                continue;
            }

            let ran = desk.run(&arguments);

            for output in [&ran.out, &ran.err] {
                assert!(!output.contains(SECRET), "{arguments:?} of {text}: {output}");
            }
        }
    }
}

#[test]
fn a_guessable_server_key_is_rejected_on_a_public_address() {
    let desk = Desk::new();
    for (listen, key, code) in [
        ("0.0.0.0:8080", "pa55", 2),
        ("[::]:8080", "fifteen-letters", 2),
        ("192.0.2.1:8080", "pa55", 2),
        ("127.0.0.1:8080", "short", 0),
        ("[::1]:8080", "short", 0),
        ("0.0.0.0:8080", "thirty-one-letters-are-too-few!", 2),
        ("0.0.0.0:8080", "thirty-two-letters-are-many-eno!", 0),
        ("0.0.0.0:8080", "", 0),
    ] {
        desk.write("tidings.toml", &format!("[server]\nlisten = {listen:?}\nkey = {key:?}\n"));

        let ran = desk.run(&["config"]);

        assert_eq!(ran.code, code, "{listen} {key}: {}{}", ran.out, ran.err);
        if code == 2 {
            assert_contains!(ran.err, "server.key");
            assert_contains!(ran.err, "openssl rand");
            assert!(!ran.err.contains(key), "{}", ran.err);
        }
    }
}

#[test]
fn an_endless_template_is_an_error_that_names_it() {
    let desk = Desk::with_people();
    std::fs::create_dir_all(desk.path().join("own/digest")).unwrap();
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}{% endfor %}";
    std::fs::write(desk.path().join("own/digest/body.txt"), endless).unwrap();
    desk.write("tidings.toml", "[mail]\ntemplates = \"own\"\n");

    let ran = desk.run(&["digest", "--dry-run", "--now"]);

    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("own/digest/body.txt"), "{}", ran.err);
}

#[cfg(target_os = "linux")]
#[test]
fn a_compression_bomb_is_imported_in_bounded_memory() {
    use std::io::Write;
    let desk = Desk::new();
    let file = std::fs::File::create(desk.path().join("objects.zst")).unwrap();
    let mut file = zstd::Encoder::new(file, 1).unwrap();
    let padding = "x".repeat(900_000);
    for _ in 0..700 {
        writeln!(file, "{{\"_id\": \"a1\", \"data\": {{\"p\": \"{padding}\"}}}}").unwrap();
    }
    let packed = file.finish().unwrap().metadata().unwrap().len();
    let program = env!("CARGO_BIN_EXE_tidings");
    // In KiB. The unpacked file has 630 MB.
    let limited = format!("ulimit -v 500000; exec {program} import objects objects.zst");

    let ran = std::process::Command::new("sh")
        .args(["-c", &limited])
        .current_dir(desk.path())
        .env_clear()
        .output()
        .unwrap();

    let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(0), "{errors}");
    assert!(packed < 200_000, "{packed}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("700 objects"));
}
