//! Classes of outputs: what each takes for the same, where the first difference is, and which of them are equivalences.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn class(value: Value) -> OutputClass {
    OutputClass::read(&value).unwrap()
}

fn differs(class: &OutputClass, one: &Value, other: &Value) -> Option<String> {
    let found = class.first_difference(one, other).unwrap();
    found.map(|difference| difference.pointer)
}

#[test]
fn canonical_json_ignores_the_spelling_and_nothing_else() {
    let class = OutputClass::default();
    assert_eq!(class, OutputClass::CanonicalJson);
    let one = json!({"a": 1, "b": [1.0, "x"]});
    assert_eq!(
        differs(&class, &one, &json!({"b": [1, "x"], "a": 1.0})),
        None
    );
    for (other, place) in [
        (json!({"a": 1, "b": ["x", 1]}), "/b/0"),
        (json!({"a": 1, "b": [1, "x", null]}), "/b/2"),
        (json!({"a": 1}), "/b"),
        (json!({"a": 2, "b": 3}), "/a"),
        (json!([]), ""),
    ] {
        assert_eq!(differs(&class, &one, &other).as_deref(), Some(place));
    }
}

#[test]
fn a_difference_says_which_side_has_nothing() {
    let class = OutputClass::CanonicalJson;
    let difference = class
        .first_difference(&json!({"a/b": {"~": null}}), &json!({"a/b": {}}))
        .unwrap()
        .unwrap();
    assert_eq!(difference.pointer, "/a~1b/~0");
    assert_eq!(difference.missing, Some(Side::Found));
    let both_null = class.first_difference(&json!([null]), &json!([0])).unwrap();
    assert_eq!(both_null.unwrap().missing, None);
}

#[test]
fn a_declared_tolerance_is_held_to_its_edge() {
    let absolute = class(json!({"absolute_tolerance": 0.5}));
    assert_eq!(differs(&absolute, &json!([1, 2.5]), &json!([1.5, 2])), None);
    assert_eq!(
        differs(&absolute, &json!([1, 2.5]), &json!([1.5, 1.75])).as_deref(),
        Some("/1")
    );
    let relative = class(json!({"relative_tolerance": 0.01}));
    assert_eq!(differs(&relative, &json!(1000), &json!(1009)), None);
    assert!(differs(&relative, &json!(1000), &json!(1011)).is_some());
    assert!(differs(&relative, &json!("1000"), &json!("1001")).is_some());
    assert!(differs(&relative, &json!(0), &json!(1e-300)).is_some());
}

#[test]
fn arrays_are_unordered_where_that_is_declared_and_nowhere_else() {
    let class = class(json!({"unordered_arrays": ["/rows", "/groups/*/members"]}));
    let one = json!({"rows": [1, 2, 2], "groups": {"x": {"members": ["a", "b"]}}, "list": [1, 2]});
    let other =
        json!({"rows": [2, 1, 2], "groups": {"x": {"members": ["b", "a"]}}, "list": [1, 2]});
    assert_eq!(differs(&class, &one, &other), None);
    let mut wrong = other.clone();
    wrong["list"] = json!([2, 1]);
    assert_eq!(differs(&class, &one, &wrong).as_deref(), Some("/list/0"));
    let mut wrong = other.clone();
    wrong["rows"] = json!([2, 1, 1]);
    assert_eq!(
        differs(&class, &one, &wrong).as_deref(),
        Some("/rows/2"),
        "each has a partner of its own"
    );
    let mut wrong = other;
    wrong["groups"]["x"]["members"] = json!(["a", "b", "c"]);
    assert_eq!(
        differs(&class, &one, &wrong).as_deref(),
        Some("/groups/x/members/2")
    );
}

#[test]
fn partners_are_searched_where_a_greedy_choice_would_fail() {
    let class = class(json!({"absolute_tolerance": 1, "unordered_arrays": [""]}));
    // The first of the left fits both of the right; the second fits only one of them.
    assert_eq!(differs(&class, &json!([1, 0]), &json!([1, 2])), None);
    assert_eq!(
        differs(&class, &json!([1, 0]), &json!([2, 2])).as_deref(),
        Some("/1")
    );
}

/// With a tolerance, "the same" is no equivalence, and cannot be one.
#[test]
fn a_tolerance_is_not_transitive() {
    let class = class(json!({"absolute_tolerance": 1}));
    assert_eq!(differs(&class, &json!(0), &json!(1)), None);
    assert_eq!(differs(&class, &json!(1), &json!(2)), None);
    assert!(differs(&class, &json!(0), &json!(2)).is_some());
}

#[test]
fn enormous_unordered_arrays_end_and_accuse_nobody() {
    let class = class(json!({"absolute_tolerance": 0.1, "unordered_arrays": ["", "/*"]}));
    let inner: Vec<u32> = (0..500).collect();
    let one = json!(vec![&inner; 500]);
    let mut changed = inner.clone();
    changed[499] = 10_000;
    let other = json!(vec![&changed; 500]);
    assert_eq!(class.first_difference(&one, &other), Err(TooMuch));
    let long: Vec<u32> = (0..2000).collect();
    assert_eq!(class.first_difference(&json!(long), &json!(long)), Ok(None));
    let mut longer = long.clone();
    longer[0] = 5000;
    assert_eq!(
        class.first_difference(&json!(long), &json!(longer)),
        Err(TooMuch)
    );
}

/// Both the places that are declared and the names in an output may be megabytes long, and there are as many arrays as fit.
#[test]
fn long_names_and_many_arrays_end() {
    let name = "n".repeat(1 << 20);
    let patterns: Vec<String> = (0..32)
        .map(|n| format!("/{}{n:02}/*", "n".repeat((1 << 20) - 2)))
        .collect();
    let class = class(json!({"unordered_arrays": patterns}));
    let arrays = json!({name: vec![json!([]); 300_000]});
    assert_eq!(class.first_difference(&arrays, &arrays), Err(TooMuch));
    let short = OutputClass::read(&json!({"unordered_arrays": ["/a/*", "/b/*"]})).unwrap();
    assert_eq!(short.first_difference(&arrays, &arrays), Ok(None));
}

#[test]
fn what_is_no_class_is_named() {
    for (value, fields) in [
        (json!("loose"), vec!["output_class"]),
        (
            json!({"absolute_tolerance": -1, "relative_tolerance": 2, "unordered_arrays": ["a"], "x": 1}),
            vec![
                "output_class.absolute_tolerance",
                "output_class.relative_tolerance",
                "output_class.unordered_arrays",
                "output_class.x",
            ],
        ),
    ] {
        let found = OutputClass::read(&value).unwrap_err();
        let mut named: Vec<_> = found.iter().map(|problem| problem.field.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, fields);
    }
}

fn small_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        (-3.0..3.0f64).prop_map(Value::from),
        "[a-b]{0,1}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-b]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_class() -> impl Strategy<Value = OutputClass> {
    prop_oneof![
        Just(OutputClass::Exact),
        Just(OutputClass::CanonicalJson),
        Just(class(json!({"unordered_arrays": ["", "/*", "/*/*"]}))),
        Just(class(
            json!({"absolute_tolerance": 1, "unordered_arrays": ["", "/a"]})
        )),
    ]
}

fn without_tolerance() -> impl Strategy<Value = OutputClass> {
    prop_oneof![
        Just(OutputClass::CanonicalJson),
        Just(class(json!({"unordered_arrays": [""]}))),
        Just(class(json!({"unordered_arrays": ["", "/*", "/*/*"]}))),
    ]
}

proptest! {
    #[test]
    fn everything_is_like_itself_and_likeness_goes_both_ways(class in any_class(), one in small_json(), other in small_json()) {
        prop_assert_eq!(class.first_difference(&one, &one), Ok(None));
        let there = class.first_difference(&one, &other).unwrap().is_none();
        let back = class.first_difference(&other, &one).unwrap().is_none();
        prop_assert_eq!(there, back);
    }

    #[test]
    fn without_a_tolerance_likeness_is_an_equivalence(class in without_tolerance(), a in small_json(), b in small_json(), c in small_json()) {
        let like = |one: &Value, other: &Value| class.first_difference(one, other).unwrap().is_none();
        if like(&a, &b) && like(&b, &c) {
            prop_assert!(like(&a, &c));
        }
        // Every order of an array that is unordered is the same.
        if let Value::Array(items) = &a && class != OutputClass::CanonicalJson {
            let mut turned = items.clone();
            turned.reverse();
            prop_assert!(like(&a, &Value::Array(turned)));
        }
    }

    #[test]
    fn canonical_json_is_what_the_digest_says(one in small_json(), other in small_json()) {
        let same = OutputClass::CanonicalJson.first_difference(&one, &other).unwrap().is_none();
        prop_assert_eq!(same, canonical::to_bytes(&one).unwrap() == canonical::to_bytes(&other).unwrap());
    }
}
