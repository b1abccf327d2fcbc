//! Which call gets which answer. Answers go into the caller's memory, and nowhere else; whoever cannot be answered so has the kernel's answer, and is counted.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use cofferdam_sys::caller::{self, Beginning, Directory, Memory, Numbers};
use cofferdam_sys::seccomp::{self, Notification};
use cofferdam_sys::vdso;
use rustix::io::Errno;

use super::clock::{Clock, EPOCH, START, Until, Waiting};
use super::listing::Listings;
use super::random::{Device, Random};
use super::view;

/// Everything that is answered in one run.
#[derive(Debug)]
pub(crate) struct Answers {
    seed: u64,
    clock: Clock,
    random: Random,
    listings: Listings,
    device: Option<Device>,
    pub(super) shortfall: Shortfall,
}

/// What could not be fixed, and shows in the record.
#[derive(Debug, Default)]
pub(super) struct Shortfall {
    /// Programs that may read the clock without asking.
    pub(super) clocks: Option<Errno>,
    /// Calls that had the kernel's answer.
    pub(super) calls: u64,
    /// Whether a program's monotonic clock is the machine's for the kernel.
    pub(super) machine_time: bool,
    pub(super) device: Option<Errno>,
}

/// What becomes of a call.
enum Answer {
    Returns(i64),
    Fails(Errno),
    /// The kernel's own.
    Passes,
}

impl From<Result<i64, Errno>> for Answer {
    fn from(result: Result<i64, Errno>) -> Self {
        match result {
            Ok(value) => Self::Returns(value),
            Err(errno) => Self::Fails(errno),
        }
    }
}

/// More than anybody asks for at once. Whoever does is given less, and asks again.
const MOST_RANDOM: u64 = 1 << 20;

impl Answers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            clock: Clock::new(),
            random: Random::new(seed),
            listings: Listings::default(),
            device: None,
            shortfall: Shortfall::default(),
        }
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// The sandbox stands: the pipe of random bytes is there.
    pub(crate) fn open_device(&mut self, scratch: BorrowedFd<'_>) {
        match Device::open(scratch, view::RANDOM_PIPE, self.seed) {
            Ok(device) => self.device = Some(device),
            Err(errno) => self.shortfall.device = Some(errno),
        }
    }

    /// To be filled whenever there is room in it.
    pub(crate) fn device(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_ref().map(Device::pipe)
    }

    pub(crate) fn fill_device(&mut self) {
        if let Some(device) = &mut self.device {
            device.fill();
        }
    }

    /// Answers a call, unless it is none of ours. Whoever is not the program yet has the kernel's answer.
    pub(crate) fn take(
        &mut self,
        listener: BorrowedFd<'_>,
        call: &Notification,
        caller: Caller,
    ) -> Taken {
        if !ASKED.contains(&call.number.into()) {
            return Taken::No;
        }
        let answer = match caller {
            Caller::Program => self.answer(listener, call),
            Caller::Starter => Answer::Passes,
        };
        let _ = match answer {
            Answer::Returns(value) => seccomp::answer(listener, call.id, value),
            Answer::Fails(errno) => seccomp::respond(listener, call.id, errno.raw_os_error()),
            Answer::Passes => seccomp::let_through(listener, call.id),
        };
        Taken::Yes
    }

    fn answer(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Answer {
        let number = i64::from(call.number);
        match number {
            libc::SYS_rseq => return Answer::Fails(Errno::NOSYS),
            libc::SYS_sched_setaffinity => return Answer::Returns(0),
            libc::SYS_arch_prctl => {
                match self.begin(listener, call) {
                    // Nobody is left who could read a clock.
                    Ok(()) | Err(Errno::SRCH | Errno::NOENT) => {}
                    Err(errno) => drop(self.shortfall.clocks.get_or_insert(errno)),
                }
                return Answer::Passes;
            }
            libc::SYS_poll => return self.wait_millis(call, call.args[2]),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                return self.wait_millis(call, call.args[3]);
            }
            _ => {}
        }
        let memory = match Memory::of(listener, call) {
            Ok(memory) => memory,
            Err(errno) => {
                let is_there = !matches!(errno, Errno::SRCH | Errno::NOENT);
                self.shortfall.calls += u64::from(is_there);
                return Answer::Passes;
            }
        };
        match number {
            libc::SYS_getrandom => self.random(listener, call, &memory),
            libc::SYS_getdents64 => self.list(listener, call, &memory),
            libc::SYS_sched_getaffinity => affinity(call, &memory).into(),
            libc::SYS_getcpu => processor(call, &memory).into(),
            libc::SYS_clock_gettime
            | libc::SYS_gettimeofday
            | libc::SYS_time
            | libc::SYS_times
            | libc::SYS_getrusage
            | libc::SYS_sysinfo => {
                let now = self.clock.look(call.pid);
                tell(call, &memory, now).into()
            }
            _ => {
                if let Some((waiting, until)) = bound(call, &memory) {
                    self.clock.wait(call.pid, waiting, until);
                }
                Answer::Passes
            }
        }
    }

    /// A new program is given its random bytes, and from now on asks for the time.
    fn begin(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
        self.clock.settle(call.pid);
        let beginning = Beginning::of(listener, call)?;
        let memory = Memory::of(listener, call)?;
        if let Some(at) = beginning.random() {
            let inside = Numbers::of(listener, call)?.inside;
            memory.write(at, &self.random.beginning(inside))?;
        }
        if let Some(at) = beginning.vdso() {
            for stub in vdso::stubs()? {
                memory.write(at.saturating_add(stub.offset), &stub.code)?;
            }
        }
        match caller::time_offset(call) {
            Some(offset) => self.clock.set_offset(offset),
            None => self.shortfall.machine_time = true,
        }
        Ok(())
    }

    fn wait_millis(&mut self, call: &Notification, millis: u64) -> Answer {
        // An `int`, and never negative: the filter lets those through.
        let lasts = Duration::from_millis(millis & 0x7fff_ffff);
        let until = Until::After(lasts);
        self.clock.wait(call.pid, Waiting::Event, until);
        Answer::Passes
    }

    fn random(&mut self, listener: BorrowedFd<'_>, call: &Notification, memory: &Memory) -> Answer {
        const KNOWN_FLAGS: u64 = 7;
        let [at, count, flags, ..] = call.args;
        if flags & 0xffff_ffff & !KNOWN_FLAGS != 0 {
            return Answer::Fails(Errno::INVAL);
        }
        let Ok(numbers) = Numbers::of(listener, call) else {
            self.shortfall.calls += 1;
            return Answer::Passes;
        };
        let count = usize::try_from(count.min(MOST_RANDOM)).unwrap_or(0);
        let bytes = self.random.bytes(numbers.inside, count);
        let written = memory.write(at, &bytes);
        Answer::from(written.map(|()| i64::try_from(count).unwrap_or(0)))
    }

    /// A directory, sorted. What is odd about it is left to the kernel.
    fn list(&mut self, listener: BorrowedFd<'_>, call: &Notification, memory: &Memory) -> Answer {
        let [descriptor, at, room, ..] = call.args;
        let room = usize::try_from(room & 0xffff_ffff).unwrap_or(0);
        let Ok(numbers) = Numbers::of(listener, call) else {
            self.shortfall.calls += 1;
            return Answer::Passes;
        };
        let reader = (numbers.process, descriptor & 0xffff_ffff);
        match self.part(listener, call, reader, room) {
            Ok(Some(Ok(part))) => {
                let length = i64::try_from(part.len()).unwrap_or(0);
                memory.write(at, &part).map(|()| length).into()
            }
            Ok(Some(Err(errno))) => Answer::Fails(errno),
            // What is wrong with the descriptor is the kernel's to say.
            Ok(None) | Err(_) => Answer::Passes,
        }
    }

    fn part(
        &mut self,
        listener: BorrowedFd<'_>,
        call: &Notification,
        reader: (u32, u64),
        room: usize,
    ) -> Result<Option<Result<Vec<u8>, Errno>>, Errno> {
        let (process, descriptor) = reader;
        let directory = Directory::of(listener, call, process, descriptor)?;
        let mut position = directory.position()?;
        if position == 0 {
            let Some(listing) = directory.read(self.listings.room())? else {
                self.shortfall.calls += 1;
                return Ok(None);
            };
            position = directory.position()?;
            self.listings.begin(reader, position, &listing);
        }
        Ok(self.listings.next(reader, position, room))
    }
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Program,
    /// The process that will be the program.
    Starter,
}

/// What the policy's variant asks about.
const ASKED: [i64; 24] = [
    libc::SYS_arch_prctl,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getdents64,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_rseq,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_select,
    libc::SYS_sysinfo,
    libc::SYS_time,
    libc::SYS_times,
];

/// Whether a call was one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    No,
}

/// What the time, or something that follows from it, looks like for this call.
fn tell(call: &Notification, memory: &Memory, now: Duration) -> Result<i64, Errno> {
    let [first, second, ..] = call.args;
    match i64::from(call.number) {
        libc::SYS_clock_gettime => {
            let time = match clock_of(first)? {
                Told::Wall => EPOCH + now,
                Told::SinceStart => START + now,
                Told::Worked => now,
            };
            memory.write(second, &pair(time, time.subsec_nanos()))?;
            Ok(0)
        }
        libc::SYS_gettimeofday => {
            let time = EPOCH + now;
            if first != 0 {
                memory.write(first, &pair(time, time.subsec_micros()))?;
            }
            if second != 0 {
                // The time zone of a kernel that has none.
                memory.write(second, &[0; 8])?;
            }
            Ok(0)
        }
        libc::SYS_time => {
            let seconds = (EPOCH + now).as_secs();
            if first != 0 {
                memory.write(first, &seconds.to_ne_bytes())?;
            }
            Ok(seconds.cast_signed())
        }
        libc::SYS_times => {
            let ticks = u64::try_from(now.as_millis() / 10).unwrap_or(0);
            if first != 0 {
                // All of it the program's own work, none the kernel's, none its children's.
                let told = [ticks, 0, 0, 0].map(u64::to_ne_bytes);
                memory.write(first, told.as_flattened())?;
            }
            let since_start = u64::try_from(START.as_millis() / 10).unwrap_or(0);
            Ok((ticks + since_start).cast_signed())
        }
        libc::SYS_getrusage => {
            // Time, then time in the kernel, then 14 figures.
            let mut told = [0; 144];
            for (to, from) in told.iter_mut().zip(pair(now, now.subsec_micros())) {
                *to = from;
            }
            memory.write(second, &told)?;
            Ok(0)
        }
        _ => {
            memory.write(first, &view::sysinfo((START + now).as_secs()))?;
            Ok(0)
        }
    }
}

enum Told {
    Wall,
    SinceStart,
    /// How long it has worked: as long as it has taken.
    Worked,
}

fn clock_of(clock: u64) -> Result<Told, Errno> {
    // An `int`; negative ones name processes.
    match clock & 0xffff_ffff {
        0 | 5 | 8 | 11 => Ok(Told::Wall),
        1 | 4 | 6 | 7 | 9 => Ok(Told::SinceStart),
        2 | 3 | 0x8000_0000.. => Ok(Told::Worked),
        _ => Err(Errno::INVAL),
    }
}

/// Seconds, and a part of one.
fn pair(time: Duration, part: u32) -> [u8; 16] {
    let words = [time.as_secs(), u64::from(part)].map(u64::to_ne_bytes);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(words.as_flattened());
    bytes
}

/// The first processor, and no other.
fn affinity(call: &Notification, memory: &Memory) -> Result<i64, Errno> {
    let [_, room, at, ..] = call.args;
    if room & 0xffff_ffff < 8 || room % 8 != 0 {
        return Err(Errno::INVAL);
    }
    memory.write(at, &1_u64.to_ne_bytes())?;
    Ok(8)
}

fn processor(call: &Notification, memory: &Memory) -> Result<i64, Errno> {
    let [processor, node, ..] = call.args;
    for at in [processor, node].into_iter().filter(|at| *at != 0) {
        memory.write(at, &[0; 4])?;
    }
    Ok(0)
}

/// How long a call waits; `None` for what the kernel will refuse.
fn bound(call: &Notification, memory: &Memory) -> Option<(Waiting, Until)> {
    const ABSOLUTE: u64 = 1;
    const FUTEX_CLOCK_REALTIME: u64 = 256;
    const FUTEX_WAIT: u64 = 0;
    const FUTEX_LOCK_PI: u64 = 6;
    let args = call.args;
    let time = |at: u64, parts_in_a_second: u64| {
        let bytes: [u8; 16] = memory.read(at).ok()?;
        let [seconds, part] = *bytes.as_chunks::<8>().0 else {
            return None;
        };
        let (seconds, part) = (u64::from_ne_bytes(seconds), u64::from_ne_bytes(part));
        // Neither negative nor more than a second, and no more than a century.
        let is_sane = part < parts_in_a_second && seconds < 1 << 32;
        let nanos = part * (NANOS / parts_in_a_second);
        is_sane.then(|| Duration::new(seconds, u32::try_from(nanos).unwrap_or(0)))
    };
    let absolute = |clock: u64, at: Duration| match clock_of(clock) {
        Ok(Told::Wall) => Some(Until::Wall(at)),
        Ok(Told::SinceStart) => Some(Until::Monotonic(at)),
        Ok(Told::Worked) | Err(_) => None,
    };
    let event = |until| Some((Waiting::Event, until));
    let sleep = |until| Some((Waiting::Sleep, until));
    match i64::from(call.number) {
        libc::SYS_nanosleep => sleep(Until::After(time(args[0], NANOS)?)),
        libc::SYS_clock_nanosleep => {
            let at = time(args[2], NANOS)?;
            match args[1] & ABSOLUTE {
                0 => sleep(Until::After(at)),
                _ => sleep(absolute(args[0], at)?),
            }
        }
        libc::SYS_ppoll | libc::SYS_rt_sigtimedwait => event(Until::After(time(args[2], NANOS)?)),
        libc::SYS_epoll_pwait2 => event(Until::After(time(args[3], NANOS)?)),
        libc::SYS_select => event(Until::After(time(args[4], 1_000_000)?)),
        libc::SYS_pselect6 => event(Until::After(time(args[4], NANOS)?)),
        libc::SYS_futex => {
            let at = time(args[3], NANOS)?;
            match (args[1] & 0x7f, args[1] & FUTEX_CLOCK_REALTIME) {
                (FUTEX_WAIT, _) => event(Until::After(at)),
                (FUTEX_LOCK_PI, _) => event(Until::Wall(at)),
                (_, 0) => event(Until::Monotonic(at)),
                (_, _) => event(Until::Wall(at)),
            }
        }
        _ => None,
    }
}

const NANOS: u64 = 1_000_000_000;
