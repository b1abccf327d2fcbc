//! How long it takes to find the projects among 100,000 files: `cargo run --release -p cofferdam-project --example hundred_thousand`. Fails above one second.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example that prints figures and may stop where it fails"
)]

use std::fs;
use std::time::{Duration, Instant};

use cofferdam_project::{Bounds, detect};

const PROJECTS: usize = 100;
const DIRS: usize = 10;
const FILES: usize = 100;
const PROMISED: Duration = Duration::from_secs(1);

fn main() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join(".gitignore"), "*.log\n/out/\n").unwrap();
    for project in 0..PROJECTS {
        let dir = top.path().join(format!("group{}/p{project}", project % 10));
        for sub in 0..DIRS {
            let dir = dir.join(format!("src/m{sub}"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..FILES {
                fs::write(dir.join(format!("f{file}.ts")), "").unwrap();
            }
        }
        fs::write(
            dir.join("package.json"),
            format!("{{\"name\": \"p{project}\", \"scripts\": {{\"test\": \"jest\"}}}}"),
        )
        .unwrap();
    }
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let found = detect(top.path(), &Bounds::default()).unwrap();
            assert_eq!(found.projects.len(), PROJECTS);
            assert!(found.entries > 100_000, "{}", found.entries);
            start.elapsed()
        })
        .collect();
    times.sort();
    let (best, worst) = (
        times.first().copied().unwrap_or_default(),
        times.last().copied().unwrap_or_default(),
    );
    println!(
        "{} files in {} projects: {best:.0?} at best, {worst:.0?} at worst of 5",
        PROJECTS * DIRS * FILES,
        PROJECTS
    );
    if best > PROMISED {
        println!("slower than the {PROMISED:?} that are promised");
        std::process::exit(1);
    }
}
