//! The merged configuration for reading: a table for people, JSON for programs. Values are written the way a file would take them.

use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::units::{Cap, format_duration};
use serde_json::{Value, json};

use super::setting::{BACKEND, MODE, Merged, Origin, Setting, names};
use super::spelling::UNLIMITED;

/// Setting, value and origin in columns.
pub(crate) fn table(merged: &Merged) -> String {
    let head = [
        "SETTING".to_owned(),
        "VALUE".to_owned(),
        "ORIGIN".to_owned(),
    ];
    let body = rows(merged)
        .into_iter()
        .map(|row| [row.setting, row.value, row.origin.to_string()]);
    let lines: Vec<[String; 3]> = std::iter::once(head).chain(body).collect();
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let (first, second) = (width(0), width(1));
    lines
        .iter()
        .map(|[setting, value, origin]| format!("{setting:first$}  {value:second$}  {origin}\n"))
        .collect()
}

/// One object for each setting, in the order of the table.
pub(crate) fn json(merged: &Merged) -> Value {
    let row = |row: Row<'_>| json!({ "setting": row.setting, "value": row.value, "origin": origin(row.origin) });
    let settings: Vec<Value> = rows(merged).into_iter().map(row).collect();
    json!({ "schema": "cofferdam.config/1", "settings": settings })
}

struct Row<'a> {
    setting: String,
    value: String,
    origin: &'a Origin,
}

fn rows(merged: &Merged) -> Vec<Row<'_>> {
    let setting = format!("sandbox.{}", BACKEND.yaml);
    let backend = Row {
        setting,
        value: merged.backend.value.as_str().to_owned(),
        origin: &merged.backend.origin,
    };
    let mode = Row {
        setting: MODE.yaml.to_owned(),
        value: merged
            .mode
            .value
            .map_or("-", |mode| mode.as_str())
            .to_owned(),
        origin: &merged.mode.origin,
    };
    let mut rows = vec![
        mode,
        backend,
        row(LimitName::WallTime, &merged.wall_time, format_duration),
        row(LimitName::CpuTime, &merged.cpu_time, format_duration),
        row(LimitName::Memory, &merged.memory, |size| size.to_string()),
        row(LimitName::Output, &merged.output, |size| size.to_string()),
        row(LimitName::Processes, &merged.processes, |count| {
            count.to_string()
        }),
        row(LimitName::Disk, &merged.disk, |size| size.to_string()),
        row(LimitName::OpenFiles, &merged.open_files, |count| {
            count.to_string()
        }),
        row(LimitName::Cpus, &merged.cpus, |share| share.to_string()),
        row(LimitName::DiskIo, &merged.disk_io, |rates| {
            rates.to_string()
        }),
    ];
    let docker = merged.docker.rows().into_iter();
    rows.extend(docker.map(|(setting, value, origin)| Row {
        setting,
        value,
        origin,
    }));
    let history = merged.history.rows().into_iter();
    rows.extend(history.map(|(setting, value, origin)| Row {
        setting,
        value,
        origin,
    }));
    let serve = merged.serve.rows().into_iter();
    rows.extend(serve.map(|(setting, value, origin)| Row {
        setting,
        value,
        origin,
    }));
    rows
}

fn row<T: Copy>(limit: LimitName, setting: &Setting<Cap<T>>, spell: fn(T) -> String) -> Row<'_> {
    let value = setting
        .value
        .at_most()
        .map_or_else(|| UNLIMITED.to_owned(), spell);
    Row {
        setting: format!("sandbox.limits.{}", names(limit).yaml),
        value,
        origin: &setting.origin,
    }
}

pub(crate) fn origin(origin: &Origin) -> Value {
    match origin {
        Origin::Default => json!({ "kind": "default" }),
        Origin::File { path, line } => {
            json!({ "kind": "file", "path": path.display().to_string(), "line": line })
        }
        Origin::Env { name } => json!({ "kind": "environment", "name": name }),
        Origin::Flag { name } => json!({ "kind": "flag", "name": name }),
        Origin::Mode { mode } => json!({ "kind": "mode", "name": mode }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use cofferdam_contract::limits::Limits;
    use cofferdam_contract::units::{Bytes, CpuShare};

    use super::super::spelling;
    use super::*;

    fn sample() -> Merged {
        let mut merged = Merged::built_in(Limits::DEFAULT);
        merged.memory.origin = Origin::File {
            path: PathBuf::from("/etc/cofferdam/config.yml"),
            line: Some(4),
        };
        merged.cpu_time = Setting {
            value: Cap::Unlimited,
            origin: Origin::Env {
                name: "COFFERDAM_CPU_TIME",
            },
        };
        merged.wall_time.origin = Origin::Flag { name: "--timeout" };
        merged
    }

    #[test]
    fn the_table_shows_setting_value_and_origin() {
        let expected = "\
SETTING                         VALUE                        ORIGIN
mode                            -                            default
sandbox.default_runtime         native                       default
sandbox.limits.timeout          5 min                        flag --timeout
sandbox.limits.cpu_time         unlimited                    environment COFFERDAM_CPU_TIME
sandbox.limits.memory           512 MiB                      /etc/cofferdam/config.yml:4
sandbox.limits.output           100 KiB                      default
sandbox.limits.processes        100                          default
sandbox.limits.disk             1 GiB                        default
sandbox.limits.open_files       1024                         default
sandbox.limits.cpus             unlimited                    default
sandbox.limits.disk_io          unlimited                    default
sandbox.docker.image            -                            default
sandbox.docker.host             unix:///var/run/docker.sock  default
sandbox.docker.pull             missing                      default
sandbox.docker.runtime          -                            default
sandbox.docker.init             true                         default
sandbox.docker.stop_grace       1s                           default
sandbox.docker.patience         30s                          default
sandbox.docker.pull_timeout     5m                           default
sandbox.docker.network_mode     none                         default
sandbox.docker.privileged       false                        default
history.enabled                 true                         default
history.stdout                  1 MiB                        default
history.stderr                  256 KiB                      default
history.truncation              smart                        default
history.artifacts               true                         default
history.artifact_size           10 MiB                       default
history.artifacts_per_run       100 MiB                      default
history.artifacts_total         2 GiB                        default
history.artifact_count          1000                         default
history.max_age                 30 d                         default
history.max_age_of_failures     90 d                         default
history.max_runs                1000000                      default
history.max_size                2 GiB                        default
serve.listen                    127.0.0.1:8080               default
serve.concurrency               auto                         default
serve.queue                     100                          default
serve.patience.execute          0 s                          default
serve.patience.runs             0 s                          default
serve.pool                      auto                         default
serve.copies                    true                         default
serve.memory_budget             80%                          default
serve.max_timeout               1 h                          default
serve.max_output                16 MiB                       default
serve.max_disk                  4 GiB                        default
serve.max_processes             1024                         default
serve.max_open_files            16384                        default
serve.max_body                  16 MiB                       default
serve.max_bodies                256 MiB                      default
serve.max_answers               256 MiB                      default
serve.max_head                  32 KiB                       default
serve.max_connections           1024                         default
serve.head_timeout              10 s                         default
serve.body_timeout              30 s                         default
serve.request_timeout           30 s                         default
serve.remember_for              10 min                       default
serve.remember_runs             1000                         default
serve.remember_size             64 MiB                       default
serve.grace                     2 s                          default
serve.results                   per-token                    default
serve.control_plane             none                         default
serve.control_plane_token_file  none                         default
serve.session_id                none                         default
serve.callbacks.allow_loopback  false                        default
serve.callbacks.allow_private   false                        default
serve.net                       none                         default
serve.net_private               refuse                       default
serve.net_proxy                 none                         default
serve.image_backend             native                       default
serve.otlp.endpoint             none                         default
serve.otlp.service_name         cofferdam                    default
serve.otlp.sampling             1                            default
serve.log                       info                         default
";
        assert_eq!(table(&sample()), expected);
    }

    #[test]
    fn json_carries_the_same_rows() {
        let shown = json(&sample());
        assert_eq!(shown["schema"], "cofferdam.config/1");
        let shown = &shown["settings"];
        assert_eq!(shown.as_array().map(Vec::len), Some(11 + 10 + 13 + 39));
        assert_eq!(
            shown[4],
            json!({
                "setting": "sandbox.limits.memory",
                "value": "512 MiB",
                "origin": { "kind": "file", "path": "/etc/cofferdam/config.yml", "line": 4 },
            })
        );
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_reads_back_as_the_same_value(size in 1u64.., ms in 1u64..1 << 40, milli in 1u32..1 << 20) {
            let size = Bytes::new(size);
            assert_eq!(spelling::bytes(&size.to_string()), Ok(Cap::AtMost(size)));
            let time = Duration::from_millis(ms);
            assert_eq!(spelling::duration(&format_duration(time)), Ok(Cap::AtMost(time)));
            let share = CpuShare::from_milli(milli).unwrap();
            assert_eq!(spelling::cpus(&share.to_string()), Ok(Cap::AtMost(share)));
        }
    }
}
