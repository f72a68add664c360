//! The help texts, as snapshots: they are documentation, and change only on purpose.

use super::Desk;

fn help(verb: &str) -> String {
    Desk::new().run(&[verb, "--help"]).done()
}

#[test]
fn the_list_of_commands() {
    insta::assert_snapshot!("tidings", Desk::new().run(&["--help"]).done());
}

macro_rules! helps {
    ($($verb:ident)*) => {$(
        #[test]
        fn $verb() {
            insta::assert_snapshot!(stringify!($verb), help(stringify!($verb)));
        }
    )*};
}

helps!(serve demo notify feed explain flush digest worker batches deliveries archive restore import export status doctor preview simulate suppressions users keys token config);

#[test]
fn send_test() {
    insta::assert_snapshot!("send_test", help("send-test"));
}
