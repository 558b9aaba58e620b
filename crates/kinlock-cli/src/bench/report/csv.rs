//! One line per lock and cell, for spreadsheets.

use std::io::Write;

use crate::bench::results::Report;

/// Writes a heading and all lines. No field needs quoting: names are plain words, the rest are numbers.
///
/// # Errors
/// As the writer has them.
pub fn write(report: &Report, mut out: impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "suite,workload,threads,lock,ops_per_s,ops_per_s_min,ops_per_s_max,ns_per_op,ratio_to,ratio,ratio_min,ratio_max,\
         jain,min_over_mean,acquire_p50_ns,acquire_p99_ns,acquire_p999_ns,acquire_max_ns,handoffs_local,handoffs_remote,\
         handoffs_retaken,longest_remote_wait_ns,longest_local_run_ns,cpu_ns_per_op,flags"
    )?;
    for entry in &report.results {
        let (ops, ratio) = (&entry.ops_per_s, &entry.ratio.over_rounds);
        let (acquire, handoffs) = (&entry.acquire_ns, &entry.handoffs);
        let flags: Vec<_> = entry
            .flags
            .iter()
            .map(|flag| flag.to_string().replace(' ', "_"))
            .collect();
        writeln!(
            out,
            "{},{},{},{},{:.1},{:.1},{:.1},{:.3},{},{:.6},{:.6},{:.6},{:.4},{:.4},{},{},{},{},{},{},{},{},{},{:.3},{}",
            entry.suite,
            entry.workload,
            entry.threads,
            entry.lock,
            ops.median,
            ops.min,
            ops.max,
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
            handoffs.longest_remote_wait_ns,
            handoffs.longest_local_run_ns,
            entry.cpu_ns_per_op.median,
            flags.join(" "),
        )?;
    }
    Ok(())
}
