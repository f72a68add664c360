//! Tests of the module `feedback`.

mod reports {
    use super::super::*;

    #[test]
    fn worse_feedback_outweighs_and_on_a_tie_the_earlier_one() {
        let feedback =
            |news, second| Feedback { news, at: DateTime::from_timestamp(second, 0).unwrap() };
        for (better, worse) in ReportKind::ALL.into_iter().zip(ReportKind::ALL.into_iter().skip(1))
        {
            assert!(feedback(worse, 9).outweighs(feedback(better, 1)), "{worse}");
            assert!(!feedback(better, 1).outweighs(feedback(worse, 9)), "{worse}");
            assert!(feedback(worse, 1).outweighs(feedback(worse, 2)));
            assert!(!feedback(worse, 1).outweighs(feedback(worse, 1)));
        }
        assert_eq!(ReportKind::Delivered.better_kinds().collect::<Vec<_>>(), [ReportKind::Delayed]);
    }

    #[test]
    fn shares_are_relative_to_sent_emails() {
        let mut report_counts = ReportCounts::default();
        assert_eq!(report_counts.share(report_counts.bounced), 0.0);
        for (state, news, emails) in [
            (DeliveryState::Sent, None, 50),
            (DeliveryState::Sent, Some(ReportKind::Delivered), 40),
            (DeliveryState::Unknown, Some(ReportKind::Delivered), 5),
            (DeliveryState::Unknown, None, 7),
            (DeliveryState::Canceled, None, 9),
            (DeliveryState::Sent, Some(ReportKind::Bounced), 4),
            (DeliveryState::Sent, Some(ReportKind::Complained), 1),
        ] {
            report_counts.add(state, news, emails);
        }
        assert_eq!((report_counts.sent, report_counts.bounced), (100, 4));
        assert_eq!(report_counts.share(report_counts.bounced), 0.04);
        assert_eq!(report_counts.share(report_counts.complained), 0.01);
    }
}

mod enhanced_status {
    use super::super::*;

    #[test]
    fn a_failure_is_classified_by_class_subject_and_detail() {
        use FailureKind::{BadAddress, Refused, Soft};
        for (code, expected) in [
            ("5.1.0", BadAddress),
            ("5.1.1", BadAddress),
            ("5.1.2", BadAddress),
            ("5.1.3", BadAddress),
            ("5.1.6", BadAddress),
            ("5.1.10", BadAddress),
            ("5.2.1", BadAddress),
            ("5.1.7", Refused),
            ("5.1.8", Refused),
            ("5.2.2", Soft),
            ("5.2.121", Soft),
            ("5.1.90", Refused),
            ("4.2.2", Soft),
            ("4.1.1", Soft),
            ("4.7.1", Soft),
            ("4.4.1", Soft),
            ("5.2.3", Refused),
            ("5.3.4", Refused),
            ("5.4.0", Refused),
            ("5.4.5", Refused),
            ("5.5.1", Refused),
            ("5.7.1", Refused),
            ("5.7.26", Refused),
        ] {
            let status: EnhancedStatus = code.parse().unwrap();
            assert_eq!(status.to_string(), code);
            assert_eq!(status.failure_kind(""), Some(expected), "{code}");
        }
        let too_fast = "The user you are trying to contact is receiving mail at a rate that";
        let status: EnhancedStatus = "5.2.1".parse().unwrap();
        assert_eq!(status.failure_kind(too_fast), Some(Soft));
        for code in ["5.0.0", "5.3.0", "5.4.1", "5.4.4", "5.5.0"] {
            let status: EnhancedStatus = code.parse().unwrap();
            assert_eq!(status.failure_kind(""), None, "{code}");
        }
        for text in ["", "5", "5.1", "5.1.1.1", "2.1.5", "6.1.1", "5.1.x", "5.1.1000", "5..1"] {
            assert_eq!(text.parse::<EnhancedStatus>(), Err(()), "{text}");
        }
    }

    #[test]
    fn only_the_code_after_the_reply_code_is_read() {
        for (reply, expected) in [
            ("550 5.1.1 no such user", Some("5.1.1")),
            ("553-5.1.10\r\n553 5.1.10 takes none", Some("5.1.10")),
            ("554 5.7.1 Message rejected by FilterGate 5.2.1 (policy)", Some("5.7.1")),
            ("smtp; 550 5.1.1 user unknown", Some("5.1.1")),
            ("smtp;552-5.2.2 over quota", Some("5.2.2")),
            ("550 #5.1.0 Address rejected", Some("5.1.0")),
            ("5.2.1: disabled", Some("5.2.1")),
            ("550 no mailbox, see 5.1.1", None),
            ("host 192.0.2.1 said: 550 5.1.1", None),
            ("550", None),
            ("", None),
        ] {
            let found = EnhancedStatus::in_reply(reply);
            assert_eq!(found, expected.map(|code| code.parse().unwrap()), "{reply}");
        }
    }
}

mod suppression {
    use super::super::*;

    fn suppression(reason: SuppressionReason, second: i64) -> Suppression {
        let address = Address::new("Ada@Example.org").unwrap();
        let at = DateTime::from_timestamp(second, 0).unwrap();
        Suppression::new(&address, reason, at, "mailgun")
    }

    #[test]
    fn the_graver_reason_wins_and_on_a_tie_the_earlier_one() {
        let complaint = suppression(SuppressionReason::Complaint, 9);
        for reason in SuppressionReason::ALL {
            let other = suppression(reason, 5);
            assert_eq!(complaint.outweighs(&other), reason != SuppressionReason::Complaint);
            assert_eq!(other.outweighs(&complaint), reason == SuppressionReason::Complaint);
            assert!(!other.outweighs(&other), "it stands already");
        }
        let hard = suppression(SuppressionReason::HardBounce, 5);
        assert!(hard.outweighs(&suppression(SuppressionReason::SoftBounces, 1)));
    }

    #[test]
    fn only_reports_after_a_lift_suppress_again() {
        let lifted = Suppression {
            lifted: DateTime::from_timestamp(10, 0),
            ..suppression(SuppressionReason::HardBounce, 5)
        };
        assert!(lifted.is_lifted());
        for second in [1, 5, 9, 10] {
            assert!(!suppression(SuppressionReason::Complaint, second).outweighs(&lifted));
        }
        let later = suppression(SuppressionReason::SoftBounces, 11);
        assert!(later.outweighs(&lifted));
        let again = Suppression { lifted: lifted.lifted, ..later };
        assert!(!again.is_lifted());
        assert!(!suppression(SuppressionReason::Complaint, 9).outweighs(&again));
    }

    #[test]
    fn every_reason_round_trips() {
        for reason in SuppressionReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("Bounce".parse::<SuppressionReason>().is_err());
    }

    #[test]
    fn a_detail_keeps_codes_and_omits_addresses() {
        let said = "smtp;550 5.1.1 <ada.lovelace@example.org> \"no\nsuch\" user, see https://x";
        let detailed = suppression(SuppressionReason::HardBounce, 1).with_detail(Some(said));
        assert_eq!(detailed.detail.as_deref(), Some("smtp550 5.1.1 no such user see httpsx"));
        assert_eq!(detailed.with_detail(Some(" @ ")).detail, None);
    }
}
