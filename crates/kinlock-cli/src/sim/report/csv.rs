//! One line per lock, workload and number of threads, for spreadsheets.

use std::io::Write;

use crate::sim::results::Report;

/// Writes a heading and all lines. No field needs quoting: names are plain words, the rest are numbers.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "suite,workload,threads,lock,ops_per_us,ops_per_us_low,ops_per_us_high,ns_per_op,ratio_to,ratio,ratio_min,ratio_max,\
         jain,min_over_mean,acquire_p50_ns,acquire_p99_ns,acquire_p999_ns,acquire_max_ns,handoffs_local,handoffs_remote,\
         handoffs_retaken,own_cache_per_op,last_level_per_op,local_per_op,remote_per_op,memory_per_op,events,\
         events_per_host_second"
    )?;
    for entry in &report.results {
        let (ops, ratio) = (&entry.ops_per_us, &entry.ratio.over_runs);
        let (acquire, handoffs) = (&entry.acquire_ns, &entry.handoffs);
        let traffic = &entry.traffic;
        writeln!(
            out,
            "{},{},{},{},{:.6},{:.6},{:.6},{:.3},{},{:.6},{:.6},{:.6},{:.4},{:.4},{},{},{},{},{},{},{},\
             {:.3},{:.3},{:.3},{:.3},{:.3},{},{:.0}",
            entry.suite,
            entry.workload,
            entry.threads,
            entry.lock,
            ops.median,
            ops.low,
            ops.high,
            entry.ns_per_op.median,
            entry.ratio.to,
            ratio.median,
            ratio.min,
            ratio.max,
            entry.fairness.jain,
            entry.fairness.min_over_mean,
            acquire.p50,
            acquire.p99,
            acquire.p999,
            acquire.max,
            handoffs.local,
            handoffs.remote,
            handoffs.retaken,
            traffic.own_cache,
            traffic.last_level,
            traffic.local,
            traffic.remote,
            traffic.memory,
            entry.events,
            entry.events_per_host_second,
        )?;
    }
    Ok(())
}
