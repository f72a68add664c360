//! Tests of the module `secrets`.

mod secret {
    use super::super::*;

    #[test]
    fn a_secret_prints_as_hidden() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "(hidden) (hidden)");
        assert_eq!(secret.expose(), "hunter2");
    }
}

mod server_key {
    use super::super::*;

    #[test]
    fn a_greater_scope_includes_the_lesser_ones() {
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().unwrap(), scope);
        }
        assert!("root".parse::<Scope>().is_err());
    }
}
