//! Machine of the measurement: processors, kernel, load, and durations of a sync and of creating a file.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ralph_bot::clock::Stopwatch;

/// Number of syncs and created files for the medians.
const ATTEMPTS: usize = 200;

/// Properties of the machine at the start of the run.
pub struct Machine {
    /// Cargo profile of this program, such as `release` or `dist`, taken from its folder.
    pub profile: String,
    /// Number of processors available to this process.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel version.
    pub kernel: String,
    /// Median duration of a 4 KiB write with `fdatasync`, in the folder of the databases.
    pub sync: Duration,
    /// Median duration of creating an empty file in this folder. ext4 without a journal takes almost a millisecond for
    /// minutes after files were deleted, other file systems a hundredth of this.
    pub create: Duration,
}

impl Machine {
    /// Measures the machine. `folder` is on the disk of the databases.
    pub fn look(folder: &Path) -> anyhow::Result<Self> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("the kernel's version")?;
        let memory = std::fs::read_to_string("/proc/meminfo").context("the memory's size")?;
        let program = std::env::current_exe().context("the path of this program")?;
        let profile =
            program.ancestors().nth(2).and_then(Path::file_name).context("this program is in no folder of Cargo")?;
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        Ok(Self {
            profile: profile.to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory_mib: kib.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) / 1024,
            kernel: kernel.trim().to_owned(),
            sync: sync_time(folder)?,
            create: create_time(folder)?,
        })
    }
}

/// Returns the load average over one minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns the resident memory of a process, in KiB.
pub fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    line.and_then(|text| text.trim().parse().ok()).context("the kernel does not say how large the process is")
}

/// Processor time of a process, and of its children that have ended.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProcessorTimes {
    pub own: Duration,
    pub children: Duration,
}

/// Returns the processor times of a process so far.
pub fn processor_times(pid: u32) -> anyhow::Result<ProcessorTimes> {
    /// Clock ticks per second in `/proc`, equal on all Linux systems.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    // The program's name, in parentheses, may contain spaces.
    let (_, rest) = stat.rsplit_once(')').context("an unknown format of /proc/PID/stat")?;
    let ticks: Vec<f64> = rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    anyhow::ensure!(ticks.len() == 4, "an unknown format of /proc/PID/stat");
    let time = |ticks: &[f64]| Duration::from_secs_f64(ticks.iter().sum::<f64>() / TICKS);
    Ok(ProcessorTimes { own: time(&ticks[..2]), children: time(&ticks[2..]) })
}

/// Returns the median of several durations.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn sync_time(folder: &Path) -> anyhow::Result<Duration> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::with_capacity(ATTEMPTS);
    for _ in 0..ATTEMPTS {
        let watch = Stopwatch::start();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(watch.elapsed());
    }
    Ok(median(times))
}

fn create_time(folder: &Path) -> anyhow::Result<Duration> {
    let folder = tempfile::tempdir_in(folder)?;
    let create = |n: usize| {
        let watch = Stopwatch::start();
        std::fs::File::create_new(folder.path().join(n.to_string()))?;
        Ok(watch.elapsed())
    };
    Ok(median((0..ATTEMPTS).map(create).collect::<anyhow::Result<_>>()?))
}
