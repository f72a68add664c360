//! Whatever is wrong with a configuration, what is secret in it is not printed; and what would let
//! anybody guess one is refused.

use super::Desk;

/// A word that nothing may print.
const SECRET: &str = "hunter2-pa55";

/// A configuration that holds the secret.
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
    let mut all: Vec<String> = stores
        .iter()
        .map(|store| format!("store = {store:?}\n"))
        .collect();
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
        "[[tokens.keys]]\nid = \"a\"\nalgorithm = \"HS256\"\nsecret = \"hunter2-pa55\"\n",
        "[[tokens.keys]]\nid = \"a\"\nalgorithm = \"EdDSA\"\nsecret = [\"hunter2-pa55\"]\n",
        "[tokens]\nkeys = \"hunter2-pa55\"\n",
        "[tokens]\nkeys = [\"hunter2-pa55\"]\n",
        "[hooks]\nmailgun_key = [\"hunter2-pa55\"]\nresend_secret = \"hunter2-pa55\"\npostmark_password = \"hunter2-pa55\"\nsendgrid_public_key = \"hunter2-pa55\"\n",
    ] {
        all.push(text.to_owned());
    }
    all
}

/// A password that nobody encoded, with each of the signs that end a part of an address.
#[test]
fn no_part_of_a_password_is_printed_whatever_signs_it_holds() {
    for sign in ["?", "/", "@", "&", "=", ":", "?a=", "/?"] {
        let store = format!("mongodb://app:s3cr-one{sign}s3cr-two@db.example/tidings");
        let desk = Desk::new();
        desk.write("tidings.toml", &format!("store = {store:?}\n"));

        for arguments in [
            &["config"][..],
            &["doctor", "--offline", "--timeout", "1"],
            &["status", "--log", "trace"],
        ] {
            let ran = desk.run(arguments);

            for told in [&ran.out, &ran.err] {
                assert!(!told.contains("s3cr"), "{arguments:?} of {store}: {told}");
            }
        }
    }
}

#[test]
fn no_secret_is_printed_whatever_is_wrong_with_the_configuration() {
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

            for told in [&ran.out, &ran.err] {
                assert!(!told.contains(SECRET), "{arguments:?} of {text}: {told}");
            }
        }
    }
}

#[test]
fn a_server_key_that_can_be_guessed_is_refused_where_others_can_reach_it() {
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
        desk.write(
            "tidings.toml",
            &format!("[server]\nlisten = {listen:?}\nkey = {key:?}\n"),
        );

        let ran = desk.run(&["config"]);

        assert_eq!(ran.code, code, "{listen} {key}: {}{}", ran.out, ran.err);
        if code == 2 {
            assert!(
                ran.err.contains("server.key") && ran.err.contains("openssl rand"),
                "{}",
                ran.err
            );
            assert!(!ran.err.contains(key), "{}", ran.err);
        }
    }
}

#[test]
fn a_template_that_never_ends_is_an_error_with_its_name() {
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
fn a_small_file_that_unpacks_to_gigabytes_is_read_in_bounded_memory() {
    use std::io::Write;
    let desk = Desk::new();
    let file = std::fs::File::create(desk.path().join("objects.zst")).unwrap();
    let mut file = zstd::Encoder::new(file, 1).unwrap();
    let padding = "x".repeat(900_000);
    for _ in 0..700 {
        writeln!(
            file,
            "{{\"_id\": \"a1\", \"data\": {{\"p\": \"{padding}\"}}}}"
        )
        .unwrap();
    }
    let packed = file.finish().unwrap().metadata().unwrap().len();
    let program = env!("CARGO_BIN_EXE_tidings");
    // Less than all of it unpacked, which is 630 MB.
    let limited = format!("ulimit -v 500000; exec {program} import objects objects.zst");

    let ran = std::process::Command::new("sh")
        .args(["-c", &limited])
        .current_dir(desk.path())
        .env_clear()
        .output()
        .unwrap();

    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(0), "{told}");
    assert!(packed < 200_000, "{packed}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("700 objects"));
}
