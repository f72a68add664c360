//! Sizes, samples and picks: exact where all is looked at, and the same each time where it is not.

use super::*;

fn ids(n: u32) -> impl Iterator<Item = DeliveryId> {
    (0..n).map(|n| DeliveryId::stored(format!("digest:p{n}:weekly:2014-W17")))
}

fn measure(ids: impl Iterator<Item = DeliveryId>, most: u64) -> Levels {
    let mut levels = Levels::new(most);
    for id in ids {
        let drawn = draw(&id);
        if levels.takes(drawn) {
            let bytes = 1_000 * (drawn >> 32) as usize % 80_000;
            levels.of(drawn).add(bytes, 10, Shown::All);
        }
    }
    levels
}

#[test]
fn up_to_the_most_every_mail_is_measured() {
    let levels = measure(ids(1_000), 1_000);

    assert_eq!((levels.sum().mails, levels.sampled()), (1_000, false));
}

#[test]
fn of_more_a_part_is_measured_that_does_not_depend_on_their_order() {
    let mut backwards: Vec<_> = ids(50_000).collect();
    backwards.reverse();

    let (one, other) = (
        measure(ids(50_000), 1_000),
        measure(backwards.into_iter(), 1_000),
    );

    assert!(one.sampled());
    let (one, other) = (one.sum(), other.sum());
    assert!((400..=1_000).contains(&one.mails), "{}", one.mails);
    assert_eq!((one.mails, one.html), (other.mails, other.html));
}

#[test]
fn the_median_is_the_size_that_half_of_the_mails_do_not_pass() {
    let mut measured = Measured::default();
    for bytes in [5_500, 9_000, 30_100, 30_900, 101_000] {
        measured.add(bytes, 0, Shown::All);
    }

    assert_eq!(measured.median(), 30);
    assert_eq!(
        (measured.smallest, measured.largest, measured.over),
        (5_500, 101_000, 0)
    );
}

#[test]
fn sizes_are_told_in_a_dozen_steps_at_most_and_none_is_left_out() {
    let bars = |sizes: &[usize]| {
        let mut measured = Measured::default();
        for bytes in sizes {
            measured.add(*bytes, 0, Shown::All);
        }
        measured.bars()
    };
    let bar = |label: &str, count| (label.to_owned(), count);

    assert_eq!(bars(&[]), []);
    assert_eq!(
        bars(&[6_000, 6_999, 8_000]),
        [
            bar("6 to 7 kB", 2),
            bar("7 to 8 kB", 0),
            bar("8 to 9 kB", 1)
        ]
    );
    let wide = bars(&[500, 9_999, 55_000, 101_999, 102_000, 400_000]);
    assert_eq!((wide[0].clone(), wide.len()), (bar("0 to 10 kB", 2), 11));
    assert_eq!(wide[10], bar("100 kB and more", 3));
}

#[test]
fn what_would_be_clipped_or_is_cut_is_counted() {
    let mut measured = Measured::default();
    measured.add(CLIP_BYTES, 0, Shown::Capped);
    measured.add(CLIP_BYTES + 1, 0, Shown::Cut);

    assert_eq!((measured.over, measured.capped, measured.cut), (1, 2, 1));
}

fn offer(picks: &mut Picks, drawn: u64, bytes: usize, types: usize) {
    picks.offer(drawn, bytes, types, || Candidate {
        drawn,
        brand: None,
        to: String::new(),
        subject: String::new(),
        html: String::new(),
        text: String::new(),
        bytes,
        events: 1,
        types,
    });
}

#[test]
fn five_mails_are_shown_that_differ_as_much_as_they_can() {
    let mut picks = Picks::default();
    for (drawn, bytes, types) in [
        (9, 20_000, 1),
        (8, 10_000, 2),
        (7, 30_000, 1),
        (6, 20_100, 1),
        (5, 15_000, 3),
        (1, 16_000, 1),
        (2, 16_100, 1),
    ] {
        offer(&mut picks, drawn, bytes, types);
    }

    let chosen: Vec<_> = picks
        .chosen(20)
        .iter()
        .map(|(one, why)| (one.drawn, why.join(", ")))
        .collect();

    let told = [
        (8, "the smallest"),
        (9, "of the median size"),
        (7, "the largest"),
        (5, "with the most types"),
        (1, "drawn at random"),
    ];
    assert_eq!(chosen, told.map(|(drawn, why)| (drawn, why.to_owned())));
}

#[test]
fn a_mail_that_is_chosen_for_several_reasons_is_shown_once() {
    let mut picks = Picks::default();
    offer(&mut picks, 3, 10_000, 2);
    offer(&mut picks, 4, 10_000, 2);

    let chosen = picks.chosen(10);

    assert_eq!(chosen.len(), 2);
    assert_eq!(
        chosen[0].1,
        [
            "the smallest",
            "of the median size",
            "the largest",
            "with the most types"
        ]
    );
    assert_eq!(chosen[1].1, ["drawn at random"]);
}
