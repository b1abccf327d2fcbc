//! From what a person asks for to the bench that the steps run on.

use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::NetworkReach;
use cofferdam_contract::request::{BackendName, WorkspaceAccess};
use cofferdam_engine::host::Host;
use cofferdam_project::action::Trust;
use cofferdam_project::report::Budget;
use cofferdam_project::{Action, limits};
use cofferdam_store::private_dir;
use cofferdam_workshop::{Bench, Shelf, Wish, act as carry_out};

use super::screen::{Prints, Screen};
use super::tell::Tell;
use crate::arguments::Places;
use crate::arguments::project::ActArgs;
use crate::cache;
use crate::config::{self, Flags, Sources};
use crate::failure::Failure;
use crate::terminal::output::note;
use crate::{containers, history, policy, run};

pub(super) fn act(
    args: ActArgs,
    places: Places,
    mut wish: Wish,
    junit: Option<PathBuf>,
) -> Result<ExitCode, Failure> {
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    let tell = Tell::new(&args, junit)?;
    let host = Host::detect();
    wish.projects.clone_from(&args.project);
    let is_shown = !args.json && !args.quiet;
    let stdin = std::io::stdin();
    let mut bench = bench(args, places, wish.action, &host, cancel.as_fd())?;
    if wish.action == Action::Run {
        bench.stdin = Some(stdin.as_fd());
    }
    if wish.action == Action::Restore && is_shown {
        note(&restore_note(&bench, wish.options.trust));
    }
    private_dir::sweep_best_effort(&bench.data_dir);
    let outcome = carry_out(&bench, wish);
    // What is told now must not stand behind a line that is still being drawn.
    let root = bench.root.clone();
    drop(bench);
    let outcome = outcome?;
    tell.outcome(&outcome, &root)?;
    Ok(ExitCode::from(outcome.exit_code))
}

pub(super) fn bench<'a>(
    args: ActArgs,
    places: Places,
    action: Action,
    host: &'a Host,
    cancel: BorrowedFd<'a>,
) -> Result<Bench<'a>, Failure> {
    let root = args.path.canonicalize().map_err(|error| {
        let what = format!("cannot use `{}`", args.path.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })?;
    let merged = config::load(Sources::of_process(
        places.config.clone(),
        Flags {
            mode: places.mode,
            docker: containers::flags(&args.container),
            ..run::flags(&args.limits, args.backend)
        },
        limits::PROJECT,
    ))
    .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    policy::obey(&merged, NetworkReach::None)?;
    let docker = containers::settings(&merged, &args.container)?;
    if let Some(image) = args
        .container
        .image
        .as_ref()
        .filter(|_| merged.backend.value != BackendName::Docker)
    {
        let fix =
            "is for projects in containers; add --backend docker, or show a toolchain with --mount";
        return Err(Failure::problem("--image", image, fix));
    }
    let data_dir = history::place(places.data_dir.clone()).ok_or_else(|| {
        Failure::problem(
            "--data-dir",
            "",
            "says where reports are laid; name a directory",
        )
    })?;
    let carrier = containers::backends(Some(&data_dir), docker);
    let cache = cache::place(args.cache_dir.as_deref(), &root)?;
    cache::remember_best_effort(&cache, &root);
    let waived = args.waive.iter().map(|name| run::waived(name));
    Ok(Bench {
        action,
        root,
        cache,
        shelf: Shelf::Own,
        data_dir,
        access: if args.cow {
            WorkspaceAccess::CopyOnWrite
        } else {
            WorkspaceAccess::ReadWrite
        },
        env: args
            .env
            .into_iter()
            .map(run::variable)
            .collect::<Result<_, _>>()?,
        mounts: args
            .mount
            .into_iter()
            .map(run::mount)
            .collect::<Result<_, _>>()?,
        waived: waived.collect::<Result<_, _>>()?,
        backend: merged.backend.value,
        limits: merged.limits(),
        until: None,
        together: None,
        host,
        cancel: Some(cancel),
        usage: None,
        watcher: Arc::new(Screen::new(
            match action {
                Action::Run if !args.json => Prints::AsItIs,
                _ => Prints::Nothing,
            },
            args.json || args.quiet,
            args.history,
            places.data_dir,
            merged.history,
        )),
        carrier: Arc::new(carrier),
        stdin: None,
        budget: Arc::new(Mutex::new(Budget::default())),
    })
}

fn restore_note(bench: &Bench<'_>, trust: Trust) -> String {
    let cache = bench.cache.display();
    match bench.backend {
        BackendName::Host => format!(
            "cofferdam: fetching with your network and without isolation, into the cache in {cache}{}",
            match trust {
                Trust::Yes =>
                    "; parts of the project may be executed with your rights (--trust-project)",
                Trust::No => "; nothing of the project is executed",
            }
        ),
        _ => format!(
            "cofferdam: restoring without network, from the cache in {cache}; --backend host fetches into it, without isolation"
        ),
    }
}
