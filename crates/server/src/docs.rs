//! The API description as a page to read. Made here and not in the browser: no script, nothing from elsewhere.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f4f4f4;padding:.7rem;overflow:auto}\
h2{border-top:1px solid #ccc;padding-top:1rem}.m{font-weight:700;text-transform:uppercase}table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}pre{background:#222}a{color:#8bf}}";

pub(crate) fn page(document: &Value) -> String {
    let title = text(document, "/info/title");
    let mut html = String::new();
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style><h1>{0} {1}</h1><p>{2}</p><p>As JSON: <a href=\"/openapi.json\">/openapi.json</a></p>",
        escaped(title),
        escaped(text(document, "/info/version")),
        escaped(text(document, "/info/description")),
    );
    for (path, methods) in object(document, "/paths") {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            write_operation(&mut html, path, method, operation);
        }
    }
    html.push_str("<h2>Forms</h2>");
    for (name, schema) in object(document, "/components/schemas") {
        let shown = serde_json::to_string_pretty(schema).unwrap_or_default();
        let _ = write!(
            html,
            "<h3 id=\"{0}\">{0}</h3><details><summary>Schema</summary><pre>{1}</pre></details>",
            escaped(name),
            escaped(&shown)
        );
    }
    html.push_str("</html>\n");
    html
}

fn write_operation(html: &mut String, path: &str, method: &str, operation: &Value) {
    let _ = write!(
        html,
        "<h2><span class=\"m\">{}</span> <code>{}</code></h2><p>{}</p>",
        escaped(method),
        escaped(path),
        escaped(text(operation, "/summary"))
    );
    if let Some(scope) = operation.get("x-scope").and_then(Value::as_str) {
        let _ = write!(html, "<p>Scope: <code>{}</code></p>", escaped(scope));
    }
    let parameters = operation.get("parameters").and_then(Value::as_array);
    let parameters = parameters.map(Vec::as_slice).unwrap_or_default();
    if !parameters.is_empty() {
        html.push_str("<table><tr><th>Parameter<th>In<th>What");
        for parameter in parameters {
            let what = [
                text(parameter, "/description"),
                text(parameter, "/schema/description"),
            ]
            .concat();
            let _ = write!(
                html,
                "<tr><td><code>{}</code><td>{}<td>{}",
                escaped(text(parameter, "/name")),
                escaped(text(parameter, "/in")),
                escaped(&what)
            );
        }
        html.push_str("</table>");
    }
    let takes = text(
        operation,
        "/requestBody/content/application~1json/schema/$ref",
    );
    if let Some(name) = takes.rsplit('/').next().filter(|name| !name.is_empty()) {
        let _ = write!(html, "<p>Takes: {}</p>", link(name));
    }
    for (status, response) in object(operation, "/responses") {
        for (media, content) in object(response, "/content") {
            let name = text(content, "/schema/$ref")
                .rsplit('/')
                .next()
                .unwrap_or("");
            let what = if name.is_empty() {
                escaped(media)
            } else {
                link(name)
            };
            let _ = write!(html, "<p>Gives {}: {what}</p>", escaped(status));
        }
    }
}

fn link(name: &str) -> String {
    format!("<a href=\"#{0}\">{0}</a>", escaped(name))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn object<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let found: Option<&Map<String, Value>> = value.pointer(pointer).and_then(Value::as_object);
    found.into_iter().flatten()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
