//! Snapshots of the help texts. They are documentation, so they change only on purpose.

use super::Desk;

fn help(command: &str) -> String {
    Desk::new().run(&[command, "--help"]).done()
}

#[test]
fn the_list_of_commands() {
    insta::assert_snapshot!("tidings", Desk::new().run(&["--help"]).done());
}

macro_rules! helps {
    ($($command:ident)*) => {$(
        #[test]
        fn $command() {
            insta::assert_snapshot!(stringify!($command), help(stringify!($command)));
        }
    )*};
}

helps!(init serve demo notify feed explain flush digest worker batches deliveries archive restore import export status doctor health preview simulate suppressions users keys token config completions);

#[test]
fn send_test() {
    insta::assert_snapshot!("send_test", help("send-test"));
}
