//! What each speaker says, in the words that the real tools use.

use super::*;

fn one(speaker: Speaker, output: &str) -> Diagnostic {
    let found = read(&[speaker], &[output], "/work");
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

fn told(found: &Diagnostic) -> (Option<&str>, Option<u32>, Option<u32>, Option<&str>, &str) {
    (
        found.file.as_deref(),
        found.line,
        found.column,
        found.code.as_deref(),
        &found.message,
    )
}

#[test]
fn what_msbuild_says_is_read_once_and_without_the_project() {
    let line = "/work/calc/C.cs(3,17): error CS1002: ; expected [/work/calc/calc.csproj]\n";
    let found = one(
        Speaker::Msbuild,
        &format!("Build FAILED.\n{line}\n{line}    1 Error(s)\n"),
    );
    assert_eq!(
        told(&found),
        (
            Some("calc/C.cs"),
            Some(3),
            Some(17),
            Some("CS1002"),
            "; expected"
        )
    );
    let found = one(
        Speaker::Msbuild,
        "C.cs(1,68): error CS1002: ; expected [/work/calc/calc.csproj]\n",
    );
    assert_eq!(found.file.as_deref(), Some("calc/C.cs"));
    let found = one(
        Speaker::Msbuild,
        "MSBUILD : error MSB1009: Project file does not exist.\n",
    );
    assert_eq!(
        told(&found),
        (
            None,
            None,
            None,
            Some("MSB1009"),
            "Project file does not exist."
        )
    );
    let found = one(
        Speaker::Msbuild,
        "/work/a.csproj : error NU1101: Unable to find package X. [/work/all.sln]",
    );
    assert_eq!(found.code.as_deref(), Some("NU1101"));
    assert_eq!(
        one(Speaker::Msbuild, "a.cs(1,2): warning CS0168: unused").severity,
        Severity::Warning
    );
}

#[test]
fn what_tsc_and_eslint_say_is_read() {
    let found = one(
        Speaker::Tsc,
        "src/a.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.\n",
    );
    assert_eq!(
        told(&found),
        (
            Some("src/a.ts"),
            Some(1),
            Some(7),
            Some("TS2322"),
            "Type 'string' is not assignable to type 'number'."
        )
    );
    let found = one(Speaker::Tsc, "src/a.ts:1:7 - error TS2322: No.\n");
    assert_eq!((found.line, found.column), (Some(1), Some(7)));
    let text = "\n/work/src/a.js\n  1:7   error    'x' is assigned a value but never used  no-unused-vars\n  2:1   warning  Unexpected console statement\n\n✖ 2 problems (1 error, 1 warning)\n";
    let found = read(&[Speaker::Eslint], &[text], "/work");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(
        told(&found[0]),
        (
            Some("src/a.js"),
            Some(1),
            Some(7),
            Some("no-unused-vars"),
            "'x' is assigned a value but never used"
        )
    );
    assert_eq!(
        (found[1].severity, found[1].code.as_deref()),
        (Severity::Warning, None)
    );
}

#[test]
fn what_npm_says_is_one_diagnostic_and_a_failing_script_is_none() {
    let found = one(
        Speaker::Npm,
        "npm error code ENOTCACHED\nnpm error request to x failed: cache mode is 'only-if-cached' but no cached response is available.\nnpm error A complete log of this run can be found in: /x\n",
    );
    assert_eq!(found.code.as_deref(), Some("ENOTCACHED"));
    assert!(!found.message.contains("complete log"));
    assert_eq!(
        read(
            &[Speaker::Npm],
            &["npm ERR! code ELIFECYCLE\nnpm ERR! errno 1\n"],
            "/work"
        ),
        []
    );
}

#[test]
fn what_python_says_is_read_at_its_last_frame() {
    let text = "*** Error compiling './bad.py'...\n  File \"./bad.py\", line 2\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n";
    let found = one(Speaker::Python, text);
    assert_eq!(
        told(&found),
        (
            Some("bad.py"),
            Some(2),
            Some(5),
            Some("SyntaxError"),
            "invalid syntax"
        )
    );
    let text = "Traceback (most recent call last):\n  File \"/work/a.py\", line 3, in <module>\n    f()\n  File \"/work/b.py\", line 9, in f\n    raise json.JSONDecodeError('no')\njson.JSONDecodeError: no: line 1\n";
    let found = one(Speaker::Python, text);
    assert_eq!(
        told(&found),
        (
            Some("b.py"),
            Some(9),
            None,
            Some("json.JSONDecodeError"),
            "no: line 1"
        )
    );
}

#[test]
fn what_rustc_go_and_javac_say_is_read() {
    let line = r#"{"reason":"compiler-message","message":{"message":"mismatched types","level":"error","code":{"code":"E0308"},"spans":[{"file_name":"src/lib.rs","line_start":1,"column_start":20,"is_primary":true,"label":"expected `i32`"}]}}"#;
    let found = one(
        Speaker::Rustc,
        &format!("{line}\n{{\"reason\":\"build-finished\",\"success\":false}}\n"),
    );
    assert_eq!(
        told(&found),
        (
            Some("src/lib.rs"),
            Some(1),
            Some(20),
            Some("E0308"),
            "mismatched types (expected `i32`)"
        )
    );
    let found = one(Speaker::Go, "# example.com/m\n./a.go:3:7: undefined: x\n");
    assert_eq!(
        told(&found),
        (Some("a.go"), Some(3), Some(7), None, "undefined: x")
    );
    assert_eq!(one(Speaker::Go, "vet: ./a.go:3:7: bad").line, Some(3));
    let found = one(
        Speaker::Maven,
        "[INFO] building\n[ERROR] /work/src/main/java/A.java:[3,7] ';' expected\n",
    );
    assert_eq!(
        told(&found),
        (
            Some("src/main/java/A.java"),
            Some(3),
            Some(7),
            None,
            "';' expected"
        )
    );
    assert_eq!(
        one(Speaker::Maven, "A.java:3: error: ';' expected").line,
        Some(3)
    );
    let found = one(Speaker::Places, "a.py:1:8: F401 `os` imported but unused");
    assert_eq!(
        told(&found),
        (
            Some("a.py"),
            Some(1),
            Some(8),
            Some("F401"),
            "`os` imported but unused"
        )
    );
}

#[test]
fn sarif_has_levels_rules_and_places() {
    let found = read(
        &[Speaker::Tsc],
        &["s r/a.ts(1,7): error TS2322: No.\n"],
        "/work",
    );
    let document = sarif(&found, "0.1.0");
    let result = &document["runs"][0]["results"][0];
    assert_eq!(document["version"], "2.1.0");
    assert_eq!(
        (&result["level"], &result["ruleId"]),
        (&"error".into(), &"TS2322".into())
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "s%20r/a.ts");
    assert_eq!(
        place["region"],
        serde_json::json!({"startLine": 1, "startColumn": 7})
    );
    assert_eq!(
        document["runs"][0]["tool"]["driver"]["rules"][0]["id"],
        "TS2322"
    );
}

proptest::proptest! {
    #[test]
    fn no_output_makes_a_reader_fail_badly(text: String, lines in "(error|: |\\(|\\)|[0-9]|,|a\\.ts|\\[|\\]| |\n|File \"|\", line |:|é){0,40}") {
        let all = [Speaker::Msbuild, Speaker::Tsc, Speaker::Eslint, Speaker::Npm, Speaker::Python, Speaker::Rustc, Speaker::Go, Speaker::Maven, Speaker::Places];
        let _ = read(&all, &[&text], "/work");
        let _ = read(&all, &[&lines], "/work");
    }
}
