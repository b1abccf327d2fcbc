//! Measures what collecting artifacts costs: `cargo run --release -p cofferdam-store --example collect_figures`.
//!
//! Everything is in the page cache: a first pass warms it. Each figure is the median of several passes.

#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::error::Error;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_store::collect::{ArtifactLimits, Rules, Snapshot, collect};
use cofferdam_store::objects::Objects;
use cofferdam_store::{DataDir, StoreError};
use rustix::fs::{Mode, OFlags};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let place = tempfile::tempdir()?;
    walks(&place.path().join("tree"), place.path())?;
    contents(place.path())?;
    crowd(place.path())
}

fn walks(tree: &Path, place: &Path) -> Outcome {
    for dir in 0..1_000 {
        let dir = tree.join(format!("d{}/s{dir}", dir % 10));
        fs::create_dir_all(&dir)?;
        for file in 0..100 {
            fs::write(dir.join(format!("file-{file:03}.txt")), b"x")?;
        }
    }
    let top = rustix::fs::open(tree, OFlags::DIRECTORY, Mode::empty())?;
    let before = Snapshot::of(top.as_fd())?;
    println!("files in the tree             {}", before.len());
    let walk = median(9, || Snapshot::of(top.as_fd()))?;
    println!("snapshot                      {walk:?}");
    let rules = Rules {
        limits: ArtifactLimits::default(),
        scanner: None,
        give_up: None,
    };
    let objects = Objects::open(&DataDir::at(place.join("walks")));
    let nothing = median(9, || collect(top.as_fd(), Some(&before), &objects, &rules))?;
    println!("collect, nothing changed      {nothing:?}");
    for file in 0..1_000 {
        fs::write(
            tree.join(format!("new-{file}")),
            file.to_string().repeat(500),
        )?;
    }
    let began = Instant::now();
    let kept = collect(top.as_fd(), Some(&before), &objects, &rules)?;
    println!(
        "collect, {} new files       {:?}",
        kept.artifacts.len(),
        began.elapsed()
    );
    let again = median(5, || collect(top.as_fd(), Some(&before), &objects, &rules))?;
    println!("the same, contents known      {again:?}");
    Ok(())
}

fn contents(place: &Path) -> Outcome {
    let text: Vec<u8> = (0..4_000_000_u64)
        .flat_map(|n| {
            format!(
                "line {n} took {} ms\n",
                n.wrapping_mul(2_654_435_761) % 9973
            )
            .into_bytes()
        })
        .take(64 << 20)
        .collect();
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(64 << 20)
    .collect();
    for (what, bytes) in [("text", text), ("noise", noise)] {
        let objects = Objects::open(&DataDir::at(place.join(what)));
        let began = Instant::now();
        let stored = objects.put(&bytes)?;
        println!(
            "put 64 MiB of {what:6}          {:?}, stored in {} KiB",
            began.elapsed(),
            stored.stored_bytes >> 10
        );
        let get = median(5, || objects.get(&stored.digest))?;
        println!("get it                        {get:?}");
    }
    Ok(())
}

fn crowd(place: &Path) -> Outcome {
    let objects = Objects::open(&DataDir::at(place.join("crowd")));
    let began = Instant::now();
    for n in 0..20_000_u32 {
        objects.put(&n.to_le_bytes().repeat(100))?;
    }
    println!("put 20,000 objects            {:?}", began.elapsed());
    objects.recount()?;
    let exact = median(5, || objects.stored_bytes())?;
    let about = median(5, || objects.about_stored_bytes())?;
    println!("stored_bytes                  {exact:?}");
    println!("about_stored_bytes            {about:?}");
    Ok(())
}

fn median<T>(
    times: usize,
    mut what: impl FnMut() -> Result<T, StoreError>,
) -> Result<Duration, Box<dyn Error>> {
    what()?;
    let mut took = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        what()?;
        took.push(began.elapsed());
    }
    took.sort();
    took.get(times / 2)
        .copied()
        .ok_or_else(|| "no passes".into())
}
