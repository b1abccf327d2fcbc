//! The API description (OpenAPI 3.1), made from the table of routes and from the types themselves. JSON Schema 2020-12 is what both OpenAPI 3.1 and these types speak, so that nothing
//! is written twice.

use cofferdam_contract::schema;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::fault::{ErrorBody, Refusal};
use crate::guide;
use crate::inputs::{InputRequest, InputView};
use crate::language::LanguageView;
use crate::routes::table::{Access, Method, ROUTES, Route};
use crate::routes::{
    BatchAnswer, BatchItem, ExecuteAnswer, ExecuteMetrics, ExecuteRequest, ListAnswer, ListQuery,
};
use crate::submission::{BatchRequest, RunRequest};
use crate::view::{ArtifactView, LeftOutView, RunView};

/// The whole document.
pub fn document() -> Value {
    let (schemas, list_parameters) = schemas();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = route.path.replace("{*path}", "{path}");
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        if let Some(entry) = entry.as_object_mut() {
            entry.insert(
                method(route.method).to_owned(),
                operation(route, &list_parameters),
            );
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cofferdam",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs untrusted work inside hard limits and returns a result that can be trusted.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8080" }],
        "security": [{ "bearer": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Wanted as soon as one token exists; until then only this machine is served.",
                },
            },
            "schemas": schemas,
        },
    })
}

/// The document as the golden file has it.
pub fn text() -> String {
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Delete => "delete",
    }
}

fn operation(route: &Route, list_parameters: &[Value]) -> Value {
    let mut parameters = path_parameters(route.path);
    parameters.extend(more_parameters(route, list_parameters));
    let mut responses = Map::new();
    for (status, media, schema) in route.gives {
        let content = if schema.is_empty() {
            json!({})
        } else {
            json!({ "schema": reference(schema) })
        };
        let response = responses
            .entry(status.to_string())
            .or_insert_with(|| json!({ "description": status_words(*status) }));
        if !media.is_empty() {
            response["content"][*media] = content;
        }
        let links = guide::links(route.method, route.path);
        if !links.is_empty() {
            response["links"] = json!(links);
        }
    }
    responses.insert(
        "default".to_owned(),
        json!({
            "description": "An error.",
            "content": { "application/json": { "schema": reference("Error") } },
        }),
    );
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(takes) = route.takes {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": reference(takes), "examples": guide::examples(takes) } },
        });
        if (route.method, route.path) == (Method::Post, "/v1/runs") {
            operation["requestBody"]["content"]["multipart/form-data"] = parts(takes);
        }
    }
    match route.access {
        Access::Anybody => operation["security"] = json!([]),
        Access::Scope(scope) => operation["x-scope"] = json!(scope),
    }
    operation
}

/// A request with its files beside it.
fn parts(request: &str) -> Value {
    let files = |what: &str| {
        json!({
            "type": "array",
            "description": what,
            "items": { "type": "string", "contentMediaType": "application/octet-stream" },
        })
    };
    json!({
        "schema": {
            "type": "object",
            "properties": {
                "request": reference(request),
                "file": files("Files for the workspace; the filename of each part is its path."),
                "executable": files("The same, for programs."),
                "project": { "type": "string", "contentMediaType": "application/octet-stream", "description": "A tar archive, compressed with gzip or not, or a git bundle." },
            },
            "required": ["request"],
        },
        "encoding": { "request": { "contentType": "application/json" } },
    })
}

fn operation_id(route: &Route) -> String {
    let words = route
        .path
        .split(['/', '{', '}', '*', '.'])
        .filter(|word| !word.is_empty());
    let path: Vec<&str> = words.collect();
    format!("{}_{}", method(route.method), path.join("_"))
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.trim_start_matches('*'))
    });
    names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect()
}

fn more_parameters(route: &Route, list_parameters: &[Value]) -> Vec<Value> {
    let header = |name: &str, what: &str, form: &str| json!({ "name": name, "in": "header", "description": what, "schema": { "type": "string", "pattern": form } });
    let query =
        |name: &str, schema: Value| json!({ "name": name, "in": "query", "schema": schema });
    match (route.method, route.path) {
        (Method::Get, "/v1/runs") => list_parameters.to_vec(),
        (Method::Post, "/v1/runs") => {
            vec![header(
                "Idempotency-Key",
                "The same key with the same body is the same run, for 24 hours.",
                "^[ -~]{1,255}$",
            )]
        }
        (Method::Get, "/v1/runs/{id}/events") => {
            vec![header(
                "Last-Event-ID",
                "The id of the last event that was read.",
                r"^[0-3]\.[0-9]{1,18}\.[0-9]{1,18}$",
            )]
        }
        (Method::Get, "/v1/runs/{id}/logs") => vec![
            query(
                "stream",
                json!({ "enum": ["stdout", "stderr", "both"], "default": "both" }),
            ),
            query("tail", json!({ "type": "integer", "minimum": 0 })),
            query(
                "format",
                json!({ "enum": ["json", "text"], "default": "json" }),
            ),
        ],
        _ => Vec::new(),
    }
}

fn status_words(status: u16) -> &'static str {
    match status {
        200 => "Done.",
        202 => "Taken on.",
        204 => "There is nothing more.",
        503 => "Not able to.",
        _ => "Answered.",
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// All schemas by name, and the parameters of the list.
fn schemas() -> (Map<String, Value>, Vec<Value>) {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    name::<RunRequest>(&mut generator);
    name::<BatchRequest>(&mut generator);
    name::<InputRequest>(&mut generator);
    name::<RunView>(&mut generator);
    name::<InputView>(&mut generator);
    name::<BatchAnswer>(&mut generator);
    name::<BatchItem>(&mut generator);
    name::<ListAnswer>(&mut generator);
    name::<ExecuteRequest>(&mut generator);
    name::<ExecuteAnswer>(&mut generator);
    name::<ExecuteMetrics>(&mut generator);
    name::<ArtifactView>(&mut generator);
    name::<LeftOutView>(&mut generator);
    name::<LanguageView>(&mut generator);
    name::<ErrorBody>(&mut generator);
    let list = generator.root_schema_for::<ListQuery>();
    let mut schemas = generator.take_definitions(true);
    if let Some(mut error) = schemas.remove("ErrorBody") {
        let codes = Refusal::ALL.map(Refusal::code).into_iter();
        let known = cofferdam_contract::codes::ErrorCode::ALL.map(|code| code.as_str());
        let codes: Vec<&str> = codes.chain(known).collect();
        error["properties"]["error_code"]["examples"] = json!(codes);
        schemas.insert("Error".to_owned(), error);
    }
    rename(&mut schemas);
    take_in(&mut schemas, "ExecutionPayload", schema::payload_schema());
    take_in(&mut schemas, "ResultEnvelope", schema::envelope_schema());
    schemas.insert("Health".to_owned(), health());
    schemas.insert("Languages".to_owned(), list_of("languages", "LanguageView"));
    schemas.insert("Artifacts".to_owned(), list_of("artifacts", "ArtifactView"));
    schemas.insert("Logs".to_owned(), logs());
    schemas.insert("TestsDiff".to_owned(), tests_diff());
    (schemas, parameters(list.as_value()))
}

fn tests_diff() -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "type": "object",
        "properties": {
            "newly_failing": names,
            "fixed": names,
            "slower": { "type": "array", "items": {
                "type": "object",
                "properties": { "name": { "type": "string" }, "a_ms": { "type": "number" }, "b_ms": { "type": "number" } },
                "required": ["name", "a_ms", "b_ms"],
            } },
            "added": names,
            "removed": names,
        },
        "required": ["newly_failing", "fixed", "slower", "added", "removed"],
    })
}

fn name<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

/// `ErrorBody` is `Error` to a client.
fn rename(schemas: &mut Map<String, Value>) {
    for schema in schemas.values_mut() {
        replace(
            schema,
            "#/components/schemas/ErrorBody",
            "#/components/schemas/Error",
        );
    }
}

fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => *text = to.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, from, to)),
        Value::Object(map) => map.values_mut().for_each(|item| replace(item, from, to)),
        _ => {}
    }
}

/// A schema that stands alone elsewhere. Its parts become schemas of the document under names of their own: few readers of such documents follow references
/// into a schema's own parts.
fn take_in(schemas: &mut Map<String, Value>, name: &str, mut schema: Value) {
    let parts = schema.as_object_mut().and_then(|map| {
        map.remove("$schema");
        map.remove("$id");
        map.remove("$defs")
    });
    let Some(Value::Object(parts)) = parts else {
        schemas.insert(name.to_owned(), schema);
        return;
    };
    let names: Vec<String> = parts.keys().cloned().collect();
    let mut taken = vec![(name.to_owned(), schema)];
    taken.extend(
        parts
            .into_iter()
            .map(|(part, schema)| (format!("{name}{part}"), schema)),
    );
    for (key, mut schema) in taken {
        for part in &names {
            let to = format!("#/components/schemas/{name}{part}");
            replace(&mut schema, &format!("#/$defs/{part}"), &to);
        }
        schemas.insert(key, schema);
    }
}

fn parameters(list: &Value) -> Vec<Value> {
    let properties = list.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    properties
        .map(|(name, schema)| json!({ "name": name, "in": "query", "schema": schema }))
        .collect()
}

fn health() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": { "enum": ["healthy", "unhealthy"] },
            "version": { "type": "string" },
            "uptime_seconds": { "type": "integer" },
            "active_executions": { "type": "integer" },
            "queued_executions": { "type": "integer" },
            "reason": { "type": "string", "description": "Why it is unhealthy." },
        },
        "required": ["status", "version", "uptime_seconds", "active_executions"],
    })
}

fn list_of(field: &str, item: &str) -> Value {
    json!({
        "type": "object",
        "properties": { field: { "type": "array", "items": reference(item) } },
        "required": [field],
    })
}

fn logs() -> Value {
    json!({
        "type": "object",
        "properties": {
            "run_id": { "type": "string" },
            "pieces": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "stream": { "enum": ["stdout", "stderr"] },
                        "at_ms": { "type": "number", "description": "Since the run began." },
                        "data": { "type": "string" },
                        "encoding": { "enum": ["utf-8", "base64"] },
                    },
                },
            },
        },
    })
}
