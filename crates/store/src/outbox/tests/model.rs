//! Any order of comings, takings and failures: nothing is lost, and each run keeps its order.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Bring { run: u8, kind: Kind },
    Take,
    Deliver,
    Fail { peer: bool },
    GiveUp,
    Reopen,
    Move { seconds: i64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kinds = prop_oneof![
        Just(Kind::Status),
        Just(Kind::Result),
        Just(Kind::Heartbeat)
    ];
    let step = prop_oneof![
        3 => (0_u8..3, kinds).prop_map(|(run, kind)| Step::Bring { run, kind }),
        3 => Just(Step::Take),
        2 => Just(Step::Deliver),
        1 => any::<bool>().prop_map(|peer| Step::Fail { peer }),
        1 => Just(Step::GiveUp),
        1 => Just(Step::Reopen),
        2 => (-5_000_i64..5_000).prop_map(|seconds| Step::Move { seconds }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens, in whatever order, also with a clock that jumps: of each run the ordered messages end in the order in which they came, and all of them end.
    #[test]
    fn nothing_is_lost_and_order_holds(steps in steps()) {
        let place = Place::new();
        let mut outbox = place.open();
        let (mut now, mut number) = (0_i64, 0_u32);
        let mut brought: Vec<(String, String)> = Vec::new();
        let mut ended: Vec<(String, String)> = Vec::new();
        let mut held: Vec<Delivery> = Vec::new();
        let end = |delivery: &Delivery, ended: &mut Vec<(String, String)>| {
            let pair = (delivery.run.clone(), delivery.idempotency_key.clone());
            if delivery.kind != Kind::Heartbeat && !ended.contains(&pair) {
                ended.push(pair);
            }
        };
        for step in steps {
            match step {
                Step::Bring { run, kind } => {
                    number += 1;
                    let (run, key) = (format!("r{run}"), format!("k{number}"));
                    outbox.enqueue(message(&run, kind, &key), at(now)).unwrap();
                    if kind != Kind::Heartbeat {
                        brought.push((run, key));
                    }
                }
                Step::Take => held.extend(outbox.next_due(at(now), LEASE).unwrap()),
                Step::Deliver => if let Some(delivery) = held.pop() {
                    outbox.delivered(&delivery, "200", at(now)).unwrap();
                    end(&delivery, &mut ended);
                },
                Step::Fail { peer } => if let Some(delivery) = held.pop() {
                    let until = peer.then(|| at(now + 30));
                    outbox.failed(&delivery, &Retry { peer_until: until, ..retry(at(now + 30)) }, at(now)).unwrap();
                },
                Step::GiveUp => if let Some(delivery) = held.pop() {
                    let before = outbox.figures(at(now)).unwrap().given_up;
                    outbox.given_up(&delivery, "404", None, at(now)).unwrap();
                    if outbox.figures(at(now)).unwrap().given_up > before {
                        end(&delivery, &mut ended);
                    }
                },
                Step::Reopen => {
                    held.clear();
                    drop(outbox);
                    outbox = place.open();
                    outbox.take_back_from_the_dead(at(now)).unwrap();
                }
                Step::Move { seconds } => now += seconds,
            }
        }
        drop(outbox);
        let outbox = place.open();
        outbox.take_back_from_the_dead(at(now)).unwrap();
        for _ in 0..300 {
            while let Some(delivery) = outbox.next_due(at(now), LEASE).unwrap() {
                outbox.delivered(&delivery, "200", at(now)).unwrap();
                end(&delivery, &mut ended);
            }
            now += 1;
        }
        let of = |all: &[(String, String)], run: &str| -> Vec<String> {
            all.iter().filter(|(found, _)| found == run).map(|(_, key)| key.clone()).collect()
        };
        for run in ["r0", "r1", "r2"] {
            prop_assert_eq!(of(&brought, run), of(&ended, run));
        }
        prop_assert_eq!(outbox.figures(at(now)).unwrap().waiting, 0);
    }
}
