//! The limit holds, characters stay whole, and what matters is kept.

use proptest::prelude::{
    ProptestConfig, Strategy as _, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::{Piece, SMALLEST_MARKED, Strategy, plan, truncate};

fn cut(text: &str, limit: usize, strategy: Strategy) -> String {
    String::from_utf8(truncate(text.as_bytes(), limit, strategy).bytes)
        .unwrap_or_else(|error| error.to_string())
}

fn numbered(lines: usize) -> String {
    (1..=lines).map(|line| format!("line {line}\n")).collect()
}

#[test]
fn what_fits_is_not_touched() {
    for strategy in Strategy::ALL {
        assert_eq!(cut("short\n", 6, strategy), "short\n");
        assert_eq!(plan(b"", 0, strategy), []);
        assert_eq!(plan(b"abc", 3, strategy), [Piece::Kept(0..3)]);
    }
    let long = numbered(1000);
    assert_eq!(cut(&long, 10, Strategy::None), long);
}

#[test]
fn head_and_tail_keep_whole_lines() {
    let text = numbered(100);
    assert_eq!(text.len(), 792);
    let head = cut(&text, 150, Strategy::Head);
    assert!(
        head.starts_with("line 1\nline 2\n")
            && head.ends_with("\nline 15\n[TRUNCATED: 681 bytes removed]\n"),
        "{head}"
    );
    let tail = cut(&text, 150, Strategy::Tail);
    assert!(
        tail.starts_with("[TRUNCATED: 679 bytes removed]\nline 87\n")
            && tail.ends_with("line 99\nline 100\n"),
        "{tail}"
    );
}

#[test]
fn a_long_line_is_cut_within_and_the_marker_has_a_line_of_its_own() {
    let text = "x".repeat(1000);
    let head = cut(&text, 200, Strategy::Head);
    assert_eq!(head.len(), 199);
    assert!(
        head.ends_with("xxx\n[TRUNCATED: 833 bytes removed]\n"),
        "{head}"
    );
    let smart = cut(&text, 200, Strategy::Smart);
    assert!(
        smart.starts_with("xxx")
            && smart.ends_with("xxx")
            && smart.contains("x\n[TRUNCATED: ")
            && smart.contains("removed]\nx"),
        "{smart}"
    );
}

#[test]
fn smart_keeps_the_edges_and_the_errors_with_what_is_around_them() {
    let mut lines: Vec<String> = (1..=2000).map(|line| format!("line {line}")).collect();
    lines[700] = "ERROR: the one that matters".to_owned();
    lines[1200] = "warning: less so".to_owned();
    let text = lines.join("\n") + "\n";
    let kept = cut(&text, 1000, Strategy::Smart);
    for wanted in [
        "line 1\n",
        "line 5\n",
        "line 1996\n",
        "line 2000\n",
        "\nline 691\n",
        "ERROR: the one",
        "\nline 711\n",
        "warning: less so\n",
    ] {
        assert!(kept.contains(wanted), "{wanted:?} in\n{kept}");
    }
    assert_eq!(kept.matches("[TRUNCATED: ").count(), 3, "{kept}");
    let small = cut(&text, 280, Strategy::Smart);
    assert!(
        small.contains("\nline 699\nline 700\nERROR: the one") && !small.contains("warning"),
        "{small}"
    );
}

#[test]
fn many_errors_do_not_push_out_the_edges() {
    let text = "first\n".to_owned() + &"panic at the disco\nok\n".repeat(10_000) + "last\n";
    let kept = cut(&text, 4096, Strategy::Smart);
    assert!(
        kept.starts_with("first\n")
            && kept.ends_with("last\n")
            && kept.len() <= 4096
            && kept.len() > 3800,
        "{}",
        kept.len()
    );
}

#[test]
fn an_error_in_a_very_long_line_is_kept() {
    let text = format!(
        "{}\n{} ERROR here {}\n{}",
        "a".repeat(5000),
        "b".repeat(100_000),
        "c".repeat(100_000),
        "d".repeat(5000)
    );
    let kept = cut(&text, 4096, Strategy::Smart);
    assert!(
        kept.contains(" ERROR here ") && kept.len() <= 4096,
        "{kept}"
    );
}

#[test]
fn pieces_say_what_was_removed() {
    let text = numbered(500);
    for strategy in [Strategy::Head, Strategy::Tail, Strategy::Smart] {
        let truncated = truncate(text.as_bytes(), 400, strategy);
        let result = String::from_utf8(truncated.bytes).unwrap();
        let said: u64 = result
            .lines()
            .filter_map(|line| {
                line.strip_prefix("[TRUNCATED: ")?
                    .strip_suffix(" bytes removed]")?
                    .parse::<u64>()
                    .ok()
            })
            .sum();
        assert_eq!(said, truncated.removed);
    }
}

#[test]
fn names_of_strategies_are_read_back() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.to_string().parse::<Strategy>().unwrap(), strategy);
    }
    let error = "Smart".parse::<Strategy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "truncation: must be one of none, head, tail, smart (got `Smart`)"
    );
}

#[test]
fn a_large_output_takes_linear_time() {
    let begin = std::time::Instant::now();
    for text in [
        "\n".repeat(4 << 20),
        "ERROR\n".repeat(1 << 20),
        "x".repeat(4 << 20),
        "error: warning: ".repeat(1 << 18),
    ] {
        assert!(cut(&text, 1 << 18, Strategy::Smart).len() <= 1 << 18);
    }
    // Quadratic time would be days.
    assert!(begin.elapsed() < std::time::Duration::from_secs(120));
}

fn outputs() -> impl proptest::strategy::Strategy<Value = String> {
    let fragment = prop_oneof![
        prop::sample::select(vec![
            "ERROR",
            "warning: x",
            "\n",
            "\n",
            "\n",
            "line\n",
            "é",
            "€uro",
            "\u{1f600}",
            "\r\n",
            "[TRUNCATED: 5 bytes removed]\n",
            "panic"
        ])
        .prop_map(str::to_owned),
        (
            prop::sample::select(vec!["x", "é", "\u{1f600}", "a\n", "\n"]),
            0..400_usize
        )
            .prop_map(|(text, times)| text.repeat(times)),
    ];
    prop::collection::vec(fragment, 0..40).prop_map(|fragments| fragments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_limit_holds_characters_stay_whole_and_twice_is_once(text in outputs(), limit in 0..3000_usize) {
        for strategy in [Strategy::Head, Strategy::Tail, Strategy::Smart] {
            let once = truncate(text.as_bytes(), limit, strategy);
            prop_assert!(once.bytes.len() <= limit, "{strategy}: {} > {limit}", once.bytes.len());
            prop_assert!(std::str::from_utf8(&once.bytes).is_ok(), "{strategy}");
            let twice = truncate(&once.bytes, limit, strategy);
            prop_assert_eq!(&twice.bytes, &once.bytes);
            prop_assert_eq!(twice.removed, 0);
        }
    }

    #[test]
    fn pieces_are_in_order_and_markers_fill_the_gaps(bytes in prop::collection::vec(any::<u8>(), 0..2000), limit in 0..1500_usize) {
        for strategy in Strategy::ALL {
            let mut done = 0;
            let mut marked = false;
            for piece in plan(&bytes, limit, strategy) {
                match piece {
                    Piece::Kept(range) => {
                        prop_assert!(range.start >= done && range.end <= bytes.len() && !range.is_empty());
                        // A marker stands in every gap and nowhere else; under the least limit there are none.
                        prop_assert_eq!(marked, range.start > done && limit >= SMALLEST_MARKED);
                        done = range.end;
                        marked = false;
                    }
                    Piece::Marker(_) => marked = true,
                }
            }
        }
    }
}
