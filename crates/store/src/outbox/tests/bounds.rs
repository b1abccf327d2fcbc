//! What an outbox gives up, forgets and refuses.

use super::*;

#[test]
fn what_was_given_up_is_kept_and_can_be_revived() {
    let place = Place::new();
    let outbox = place.open();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(0))
        .unwrap();
    outbox
        .enqueue(message("r", Kind::Artifacts, "r:artifacts"), at(0))
        .unwrap();
    let result = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    outbox
        .given_up(&result, "answered 400: no", None, at(1))
        .unwrap();
    let kept = outbox.list(Standing::GivenUp, 10).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].outcome.as_deref(), Some("answered 400: no"));
    assert_eq!(outbox.body(result.id).unwrap(), Some(result.body.clone()));
    outbox.revive(result.id, at(2)).unwrap();
    assert!(outbox.revive(result.id, at(2)).is_err());
    let artifacts = outbox.next_due(at(2), LEASE).unwrap().unwrap();
    assert_eq!(artifacts.kind, Kind::Artifacts);
    outbox.delivered(&artifacts, "200", at(3)).unwrap();
    let result = outbox.next_due(at(3), LEASE).unwrap().unwrap();
    assert_eq!((result.kind, result.attempt), (Kind::Result, 1));
}

#[test]
fn age_removes_what_is_done_and_never_what_waits() {
    let place = Place::new();
    let outbox = place.open();
    for key in ["delivered", "given-up", "waiting"] {
        outbox
            .enqueue(message(key, Kind::Result, key), at(0))
            .unwrap();
    }
    let delivered = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    outbox.delivered(&delivered, "200", at(0)).unwrap();
    let given_up = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    outbox.given_up(&given_up, "404", None, at(0)).unwrap();
    let day = 86_400;
    assert_eq!(outbox.prune(at(day)).unwrap(), 0);
    assert_eq!(outbox.prune(at(day + 1)).unwrap(), 1);
    assert_eq!(outbox.prune(at(29 * day)).unwrap(), 0);
    assert_eq!(outbox.prune(at(31 * day)).unwrap(), 1);
    let figures = outbox.figures(at(31 * day)).unwrap();
    assert_eq!(
        (figures.waiting, figures.given_up, figures.delivered),
        (1, 0, 0)
    );
    assert_eq!(figures.oldest, Some(Duration::from_secs(31 * 86_400)));
}

#[test]
fn what_was_given_up_cannot_fill_the_disk() {
    let place = Place::new();
    let outbox = place.open_with(Limits {
        given_up_bytes: 1000,
        ..Limits::default()
    });
    for n in 0..5 {
        let mut big = message(&format!("r{n}"), Kind::Result, &format!("r{n}"));
        big.body = vec![b'x'; 400];
        outbox.enqueue(big, at(n)).unwrap();
        let delivery = outbox.next_due(at(n), LEASE).unwrap().unwrap();
        outbox.given_up(&delivery, "404", None, at(n)).unwrap();
    }
    assert_eq!(outbox.prune(at(10)).unwrap(), 3);
    let left: Vec<String> = outbox
        .list(Standing::GivenUp, 10)
        .unwrap()
        .into_iter()
        .map(|e| e.run)
        .collect();
    assert_eq!(left, ["r4", "r3"]);
}

#[test]
fn a_full_outbox_says_so_and_takes_again_when_something_has_left() {
    let place = Place::new();
    let outbox = place.open_with(Limits {
        messages: 2,
        bytes: 100,
        body_bytes: 90,
        ..Limits::default()
    });
    let sized = |key: &str, size: usize| Message {
        body: vec![b'x'; size],
        ..message(key, Kind::Result, key)
    };
    let too_large = outbox.enqueue(sized("a", 91), at(0)).unwrap_err();
    assert!(
        matches!(too_large, StoreError::Invalid { field: "body", .. }),
        "{too_large}"
    );
    outbox.enqueue(sized("a", 60), at(0)).unwrap();
    let full = outbox.enqueue(sized("b", 60), at(0)).unwrap_err();
    assert!(
        matches!(full, StoreError::OutboxFull { .. }) && full.to_string().contains("60 bytes wait"),
        "{full}"
    );
    outbox.enqueue(sized("b", 10), at(0)).unwrap();
    let full = outbox.enqueue(sized("c", 1), at(0)).unwrap_err();
    assert!(
        full.to_string().contains("2 messages wait, and 2 may"),
        "{full}"
    );
    // The same message again is no more than it was.
    assert!(matches!(
        outbox.enqueue(sized("a", 60), at(0)).unwrap(),
        Enqueued::Known(_)
    ));
    let delivery = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    outbox.delivered(&delivery, "200", at(0)).unwrap();
    outbox.enqueue(sized("c", 60), at(0)).unwrap();
}

#[test]
fn what_could_not_be_sent_is_refused_at_the_door() {
    let place = Place::new();
    let outbox = place.open();
    let good = || message("r", Kind::Result, "k");
    let bad = [
        Message {
            run: String::new(),
            ..good()
        },
        Message {
            idempotency_key: "a\r\nX: y".to_owned(),
            ..good()
        },
        Message {
            idempotency_key: String::new(),
            ..good()
        },
        Message {
            url: "ftp://x/".to_owned(),
            ..good()
        },
        Message {
            url: "http:///x".to_owned(),
            ..good()
        },
        Message {
            url: "http://u:p@x/".to_owned(),
            ..good()
        },
        Message {
            url: "http://x/ y".to_owned(),
            ..good()
        },
        Message {
            authorization: Some("eyJ/secret+token==".to_owned()),
            ..good()
        },
        Message {
            peer: Peer::Client,
            ..good()
        },
        Message {
            trace: Some(TraceHeaders {
                parent: "00\r\nX-Secret: 1".to_owned(),
                state: None,
            }),
            ..good()
        },
    ];
    for message in bad {
        let refused = outbox.enqueue(message.clone(), at(0)).unwrap_err();
        assert!(matches!(refused, StoreError::Invalid { .. }), "{message:?}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    assert_eq!(outbox.figures(at(0)).unwrap(), Figures::default());
}
